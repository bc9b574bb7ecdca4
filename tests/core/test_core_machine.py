"""A random walk over the core: after every command its invariants hold, and a reload equals the live state."""

from __future__ import annotations

from core_deadlines import assert_quiet_until_due
from core_driver import CoreDriver, checkpoint, completion, records
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from windrow_master.core import commands
from windrow_master.core.ids import NodeId
from windrow_master.core.leases import Lease
from windrow_master.core.refused import Refused
from windrow_master.core.settings import StepSettings
from windrow_master.core.states import ENDED_JOBS, Cause, MiniBatchState, StepState

NODES = st.sampled_from(["n1", "n2", "n3"])
CAUSES = st.sampled_from([Cause.NONE] * 6 + [cause for cause in Cause if cause])
COUNTS = st.lists(st.integers(0, 3), max_size=5)
SETTINGS = st.sampled_from(
    [
        (StepSettings("a"),),
        (StepSettings("a", append_row=False), StepSettings("b", depends_on=("a",), append_row=False)),
        (StepSettings("a", error_threshold=3, max_retries=0), StepSettings("b")),
        (StepSettings("a", mini_batch_error_threshold=1, max_retries=1, progress_update_timeout_s=20),),
        (StepSettings("a", allowed_failed_percent=30.0, max_retries=0, append_row=False),),
    ]
)


class CoreMachine(RuleBasedStateMachine):
    """Jobs, nodes and a network that forgets, repeats and comes late."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = CoreDriver()
        self.jobs = 0
        self.incarnations = 0
        self.groups = 0
        self.cordons: set[str] = set()
        """Names that were cordoned, by whatever they did since."""

    def open_steps(self) -> list[int]:
        """Steps that have not ended."""
        return [at for at, step in self.driver.core.state.steps.items() if step.state == StepState.RUNNING]

    def some_leases(self, data: st.DataObject) -> list[Lease]:
        """Leases, live or long gone."""
        if not self.driver.leases:
            return []
        recent = list(self.driver.leases.values())[-12:]
        return data.draw(st.lists(st.sampled_from(recent), max_size=4))

    @rule(steps=SETTINGS, priority=st.integers(0, 1))
    @precondition(lambda self: self.jobs < 3)
    def submit(self, steps: tuple[StepSettings, ...], priority: int) -> None:
        """A job comes."""
        self.jobs += 1
        self.driver.submit(*steps, job_id=f"job{self.jobs}", request_id=str(self.jobs), priority=priority)

    @rule(data=st.data(), counts=COUNTS, done=st.booleans(), twice=st.booleans())
    def plan(self, data: st.DataObject, counts: list[int], done: bool, twice: bool) -> None:
        """The planner hands over a group, perhaps twice."""
        steps = self.open_steps()
        if not steps:
            return
        step = self.driver.step(data.draw(st.sampled_from(steps)))
        first = len(step.mini_batches)
        planned = step.plan.is_done
        self.groups += 1
        group = commands.PlanGroup(
            step.step_id, step.plan.checkpoint,
            checkpoint(first + len(counts), done, self.groups, sum(step.mini_batches.item_counts) + sum(counts)), first,
            records(first, counts), done, b"{}",
        )  # fmt: skip
        replies = self.driver.group(*[group] * (2 if twice else 1))
        assert replies[0] == (not planned) and not any(replies[1:])

    @rule(name=NODES, replaced=st.booleans())
    def register_next(self, name: str, replaced: bool) -> None:
        """A new incarnation of a node comes."""
        self.incarnations += 1
        known = self.driver.core.state.nodes.get(NodeId(name))
        before = known.node_incarnation if known is not None and replaced else ""
        self.driver.register(name, f"i{self.incarnations}", before)

    @rule(name=NODES, data=st.data(), honest=st.booleans())
    def open(self, name: str, data: st.DataObject, honest: bool) -> None:
        """A node connects, and names what it holds, or something else."""
        node = self.driver.core.state.nodes.get(NodeId(name))
        if node is None:
            return
        leases = self.driver.held(name) if honest else self.some_leases(data)
        held = self.driver.as_held(*leases)
        self.driver.open(name, node.node_incarnation, held)

    @rule(name=NODES, leases_max=st.integers(0, 5), draining=st.booleans(), data=st.data())
    def capacity(self, name: str, leases_max: int, draining: bool, data: st.DataObject) -> None:
        """A node wants work."""
        steps = self.open_steps()
        if NodeId(name) in self.driver.core.state.nodes and steps:
            step_id = data.draw(st.sampled_from(steps))
            self.driver.capacity(name, leases_max, workers=1, step_id=step_id, draining=draining and leases_max == 0)

    @rule(name=NODES, data=st.data())
    def complete(self, name: str, data: st.DataObject) -> None:
        """Results come: of live leases, of long gone ones, twice in a group."""
        live = self.driver.held(name) if NodeId(name) in self.driver.core.state.nodes else []
        leases = live + self.some_leases(data)
        results = [
            completion(lease.lease_id, data.draw(CAUSES), items=3, results=data.draw(st.integers(0, 3)))
            for lease in leases
        ]
        command = commands.CompleteAttempts(NodeId(name), results)
        first, second = self.driver.group(command, command)
        for verdicts in (first, second):
            assert sorted(at for ids in verdicts.values() for at in ids) == sorted(at.lease_id for at in leases)

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        """Leases are given back."""
        leases = self.some_leases(data)
        for name in {lease.node_id for lease in leases}:
            self.driver.do(commands.ReleaseLeases(name, [at.lease_id for at in leases]))

    @rule(name=NODES)
    def close(self, name: str) -> None:
        """A stream ends."""
        node = self.driver.core.state.nodes.get(NodeId(name))
        if node is not None:
            self.driver.do(commands.CloseWork(NodeId(name), node.stream))

    @rule(name=NODES, data=st.data())
    def worker_fails(self, name: str, data: st.DataObject) -> None:
        """A worker cannot be made ready."""
        for step_id in self.open_steps()[:1]:
            self.driver.init_fails(name, step_id=step_id)

    @rule(after_s=st.sampled_from([0.25, 1.0, 3.0]), alive=st.booleans())
    def tick(self, after_s: float, alive: bool) -> None:
        """Time passes."""
        self.driver.tick_alive(after_s, *(self.driver.core.state.nodes if alive else ()))
        if not alive:
            self.driver.tick(after_s)

    @rule(gap_s=st.sampled_from([1.0, 1000.0]))
    def pause(self, gap_s: float) -> None:
        """Everything stands still: nobody is lost for it, but who would be by the next tick anyway."""
        state = self.driver.core.state
        tick = commands.Tick()
        if state.tick_s == self.driver.now_s:
            next_s = self.driver.now_s + tick.interval_s
            nodes = {node_id for node_id, node in state.nodes.items() if node.expires_s > next_s}
            self.driver.now_s += gap_s
            self.driver.do(tick)
            assert nodes <= set(state.nodes)

    @rule()
    def wait_until_due(self) -> None:
        """Nobody ticks before the moment that `next_due` names, and nothing is missed by that."""
        assert_quiet_until_due(self.driver.core, self.driver.now)

    @rule(name=NODES)
    def drain(self, name: str) -> None:
        """An operator asks a node to leave."""
        if self.driver.known(name) is not None:
            self.cordons.add(name)
        self.driver.do(commands.DrainNode(NodeId(name)))

    @rule(name=NODES, cordoned=st.booleans())
    def cordon(self, name: str, cordoned: bool) -> None:
        """An operator cordons a node, or takes that back: it is the name that is meant, whoever is here under it."""
        node = self.driver.known(name)
        reply = self.driver.do(commands.CordonNode(NodeId(name), cordoned))
        if node is None:
            assert isinstance(reply, Refused)
            return
        if cordoned:
            self.cordons.add(name)
        else:
            self.cordons.discard(name)

    @rule(name=NODES)
    def remove(self, name: str) -> None:
        """An operator has a node forgotten."""
        node = self.driver.known(name)
        connected = node is not None and node.stream
        reply = self.driver.do(commands.RemoveNode(NodeId(name)))
        if node is None or connected:
            assert reply.reason == ("NODE_CONNECTED" if connected else "NODE_UNKNOWN")
            return
        self.cordons.discard(name)
        assert self.driver.known(name) is None and name not in self.driver.tables.nodes
        assert not [lease for lease in self.driver.core.state.leases.values() if lease.node_id == name]

    @rule(data=st.data())
    @precondition(lambda self: self.jobs > 1)
    def cancel(self, data: st.DataObject) -> None:
        """A job is cancelled."""
        self.driver.do(commands.CancelJob(f"job{data.draw(st.integers(1, self.jobs))}"))

    @rule(data=st.data(), lost=st.booleans())
    def finish(self, data: st.DataObject, lost: bool) -> None:
        """An output stands, or rows turn out to be lost."""
        for step in list(self.driver.core.state.steps.values()):
            if step.state != StepState.CONCATENATING:
                continue
            rows = self.driver.tables.mini_batches[step.step_id]
            gone = [
                self.driver.tables.lost_rows(step.step_id, at) for at, row in enumerate(rows) if row.range is not None
            ][:2]
            if lost and gone:
                self.driver.do(commands.RequeueLostRows(step.step_id, 1, tuple(gone)))
            else:
                self.driver.do(commands.FinishStep(step.step_id, 1))

    @rule()
    def restart(self) -> None:
        """The master dies and comes back."""
        self.driver.restart()

    @invariant()
    def cordons_last(self) -> None:
        """They outlive incarnations and masters; nothing else of a node that is gone is kept."""
        state = self.driver.core.state
        known = {**state.nodes, **state.absent}
        assert {name for name, node in known.items() if node.cordoned} == self.cordons
        assert set(known) == set(self.driver.tables.nodes)

    @invariant()
    def reload_equals_live(self) -> None:
        """The tables hold all that is durable, and their counters are what a scan gives."""
        self.driver.assert_reload_equals_live()
        for key, row in self.driver.tables.jobs.items():
            live = self.driver.core.state.jobs.get(key)  # type: ignore[call-overload]
            assert live is None or live.state == row.state
            assert live is not None or row.state in ENDED_JOBS
        for step_id, rows in self.driver.tables.mini_batches.items():
            for at, mini_batch in enumerate(rows):
                assert mini_batch.state != MiniBatchState.LEASED, f"{step_id}/{at}: leases are volatile"


CoreMachine.TestCase.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
TestCoreMachine = CoreMachine.TestCase
