"""One master process: the real core, the writer's rules, simple stand-ins for streams, planners and concatenation."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sim_disk import RowsLost
from sim_network import Stream
from sim_splitting import ordered
from sim_view import settings_of
from sim_world import Process
from sim_writer import Reply, SimWriter
from windrow_master.core import commands
from windrow_master.core import effects as fx
from windrow_master.core.commands import HeldLease, PlanGroup
from windrow_master.core.core import Core
from windrow_master.core.ids import NodeId, StepId
from windrow_master.core.records import PLAN_RECORD, RANK
from windrow_master.core.refused import Refused
from windrow_master.core.state import Step
from windrow_master.core.states import StepState
from windrow_master.shell.ticking import Plan

if TYPE_CHECKING:
    from sim_agent import Agent
    from sim_run import Simulation


def _for_people(effect: Any) -> None:
    """Nothing in the simulation waits for it."""


class SimMaster(Process):
    """One incarnation."""

    def __init__(self, sim: Simulation) -> None:
        super().__init__(sim.world)
        self.sim, self.config = sim, sim.config
        incarnation = sim.disk.tables.next_incarnation()
        self.core = Core(incarnation, sim.next_prefix())
        sim.disk.tables.lease_prefixes.add(self.core.state.lease_prefix)
        self.core.load(sim.disk.tables.load(), settings_of, self.world.moment)
        self.writer = SimWriter(self, self.core, sim.disk, sim.config, sim.checkers, self._carry_out)
        self.streams: dict[NodeId, Stream] = {}
        self._numbers = itertools.count(1)
        self._planners: dict[StepId, SimPlanner] = {}
        self._handlers: dict[type, Callable[[Any], None]] = {
            fx.SendAssignments: self._send_assignments,
            fx.SendStep: self._send_step,
            fx.SendShares: lambda e: self._tell(e, "shares", e.shares),
            fx.RevokeLeases: lambda e: self._tell(e, "revoke", e.lease_ids),
            fx.RecallLeases: lambda e: self._tell(e, "recall", (e.step_id, e.leases_max, e.kept)),
            fx.EndStep: lambda e: self._tell(e, "end", (e.step_id, e.generation)),
            fx.SendDrain: lambda e: self._tell(e, "drain", None),
            fx.CloseStream: self._close_stream,
            fx.PrepareStep: self._prepare_step,
            fx.StopStepWork: self._stop_step_work,
            fx.ConcatenateRows: self._concatenate_rows,
            fx.NotifyJob: _for_people,
            fx.ReportFailures: _for_people,
        }
        self.world.trace("master starts", incarnation)
        self._plan = Plan(self.core)
        self._looks_at_s = math.inf
        self.writer.after_group = self._plan_looks
        self.writer.start()
        self._plan_looks([commands.Tick()])

    def _look(self, at_s: float) -> None:
        """What shell/ticking.py does by the event loop's clock."""
        if at_s != self._looks_at_s:
            return  # an earlier look came in its place
        self._looks_at_s = math.inf
        tick = self._plan.take(self.world.moment)
        if tick is not None:
            self.writer.submit(tick, None)
        self._arm()

    def _plan_looks(self, handled: list[Any]) -> None:
        self._plan.after(handled, self.world.now_s)
        self._arm()

    def _arm(self) -> None:
        if self._plan.wake_s < self._looks_at_s:
            at_s = self._looks_at_s = self._plan.wake_s
            self.after(max(0.0, at_s - self.world.now_s), lambda: self._look(at_s))

    def submit(self, command: Any, reply: Reply | None = None) -> None:
        """A command arrives."""
        self.writer.submit(command, reply)

    # Streams

    def open_stream(self, agent: Agent) -> Stream:
        """An agent connects; its hello is the first thing it sends."""
        return Stream(self.world, self.config.latency_s, agent, self, next(self._numbers))

    def hello(
        self,
        stream: Stream,
        incarnation: str,
        held: tuple[HeldLease, ...],
        step_ids: tuple[StepId, ...],
        workers: tuple[tuple[StepId, int], ...],
    ) -> None:
        """The first message of a stream."""
        node_id = stream.agent.node_id
        older = self.streams.get(node_id)
        if older is not None and older is not stream:
            older.close_by_master()
        self.streams[node_id] = stream

        def answer(reply: Any) -> None:
            if isinstance(reply, Refused):
                stream.close_by_master()

        self.sim.checkers.stream_owner[self.core.state.incarnation, stream.number] = incarnation
        self.submit(commands.OpenWork(node_id, incarnation, stream.number, held, step_ids, workers), answer)

    def completions(self, stream: Stream, results: list[Any]) -> None:
        """Results arrive."""

        def acknowledge(verdicts: Any) -> None:
            stream.down.send(lambda: stream.agent.acknowledged(verdicts))

        self.submit(commands.CompleteAttempts(stream.agent.node_id, results), acknowledge)

    def stream_ended(self, stream: Stream) -> None:
        """A stream ended, as far as this side knows."""
        if self.streams.get(stream.agent.node_id) is stream:
            del self.streams[stream.agent.node_id]
        self.submit(commands.CloseWork(stream.agent.node_id, stream.number))

    def _stream(self, node_id: NodeId, number: int) -> Stream | None:
        stream = self.streams.get(node_id)
        return stream if stream is not None and stream.number == number else None

    # Effects

    def _carry_out(self, effects: list[fx.Effect]) -> None:
        for effect in effects:
            self._handlers[type(effect)](effect)

    def _tell(self, effect: Any, kind: str, what: Any) -> None:
        stream = self._stream(effect.node_id, effect.stream)
        if stream is not None:
            stream.down.send(lambda: stream.agent.told(stream, kind, what))

    def _send_step(self, effect: fx.SendStep) -> None:
        step = self.core.state.steps[effect.step_id]
        job_id = self.core.state.jobs[step.job_key].job_id
        self._tell(effect, "step", (effect.step_id, job_id, step.ordinal, self.core.state.identity_of(step)))

    def _send_assignments(self, effect: fx.SendAssignments) -> None:
        if not self.world.chance(self.config.assignment_loss):
            steps = self.core.state.steps
            self.sim.orders.update(
                (lease.lease_id, ordered(lease.split)) for lease in effect.leases if lease.split is not None
            )
            leases = [
                HeldLease(
                    lease.lease_id,
                    lease.step_id,
                    lease.mini_batch,
                    lease.generation,
                    self.core.state.identity_of(steps[lease.step_id]),
                )
                for lease in effect.leases
            ]
            self._tell(effect, "assign", leases)

    def _close_stream(self, effect: fx.CloseStream) -> None:
        stream = self._stream(effect.node_id, effect.stream)
        if stream is not None:
            stream.close_by_master()

    def _prepare_step(self, effect: fx.PrepareStep) -> None:
        step = self.core.state.steps.get(effect.step_id)
        if step is None:
            return
        self.submit(commands.StartStep(effect.step_id, b'{"out": "/out"}'))
        if not step.plan.is_done:
            planner = self._planners[effect.step_id] = SimPlanner(self, step)
            planner.start()

    def _stop_step_work(self, effect: fx.StopStepWork) -> None:
        planner = self._planners.pop(effect.step_id, None)
        if planner is not None:
            planner.running += 1

    def kill_planners(self) -> None:
        """Every planner process dies; each is started again from the checkpoint the master knows."""
        for planner in self._planners.values():
            planner.start()

    # Concatenation

    def _concatenate_rows(self, effect: fx.ConcatenateRows) -> None:
        self.after(self.world.around(self.config.commit_s * 10), lambda: self._concatenate(effect))

    def _concatenate(self, effect: fx.ConcatenateRows) -> None:
        """Read all committed ranges in order; damaged ones send their mini-batches back."""
        step = self.core.state.steps.get(effect.step_id)
        if step is None or step.state != StepState.CONCATENATING:
            return
        rows = self.sim.disk.tables.mini_batches[effect.step_id]
        ranges = [(at, row) for at, row in enumerate(rows) if row.range is not None]
        if ranges and self.world.chance(self.config.rot):
            _, row = self.world.rng.choice(ranges)
            if row.range is not None and row.range.length and not self.sim.disk.is_rotten(row.range):
                self.sim.disk.damage(row.range)
        lost, parts = [], []
        for at, row in ranges:
            assert row.range is not None
            try:
                parts.append(self.sim.disk.read(row.range))
            except RowsLost:
                lost.append(self.sim.disk.tables.lost_rows(effect.step_id, at))
        if lost:
            self.submit(commands.RequeueLostRows(effect.step_id, effect.generation, tuple(lost)))
        else:
            self.sim.disk.outputs[effect.step_id] = b"".join(parts)
            self.submit(commands.FinishStep(effect.step_id, effect.generation))


class SimPlanner:
    """Divides the input of one step. Killed, it goes on from the checkpoint; what it had sent may still arrive."""

    def __init__(self, master: SimMaster, step: Step) -> None:
        self._master, self._step = master, step
        self._job_id = master.core.state.jobs[step.job_key].job_id
        self._counts = master.sim.planned_counts(self._job_id, step.ordinal)
        self.running = 0
        """Number of the present process."""

    def start(self) -> None:
        """Start a process from the checkpoint that the core knows."""
        self.running += 1
        self._master.after(self._master.world.around(0.05), lambda number=self.running: self._go_on(number))  # type: ignore[misc]

    def _go_on(self, number: int) -> None:
        step, world = self._step, self._master.world
        if number != self.running or step.plan.is_done or step.state != StepState.RUNNING:
            return
        start = step.plan.checkpoint
        first = json.loads(start)["mini_batches"] if start else 0
        counts = self._counts[first : first + world.rng.choice([1, 5, 30, 500])]
        end = first + len(counts)
        done = end == len(self._counts)
        job_id, ordinal = self._job_id, step.ordinal
        taken = (self._master.sim.taken_over(job_id, ordinal, mini_batch) for mini_batch in range(first, end))
        group = PlanGroup(
            step.step_id,
            start,
            json.dumps({"mini_batches": end, "items": sum(self._counts[:end]), "done": done}).encode(),
            first,
            b"".join(PLAN_RECORD.pack((first + at) * 10, items, 0, 0, first + at) for at, items in enumerate(counts)),
            done,
            b"{}" if start is None else None,
            # Every other step runs its largest first.
            ranks=b"".join(RANK.pack(items) for items in counts) if step.step_id % 2 else b"",
            taken=tuple(one for one in taken if one is not None),
        )
        self._master.submit(group, lambda taken: self._go_on(number))
        if world.chance(self._master.config.planner_kills):
            self._master.submit(group, None)
