"""Drives a core by commands, and keeps its books: every dirty row goes into tables, every lease is remembered."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from sim_tables import MemoryTables, SegmentRange
from sim_view import assert_reload_equals_live, document_of, settings_of
from windrow.rpc.v1 import work_pb2
from windrow_master.core import commands, invariants
from windrow_master.core import effects as fx
from windrow_master.core.commands import HeldLease, Moment
from windrow_master.core.core import Core
from windrow_master.core.counters import Counters
from windrow_master.core.ids import DEFAULT_PROJECT, JobKey, LeaseId, NodeId, StepId
from windrow_master.core.leases import Lease
from windrow_master.core.records import PLAN_RECORD, RANK
from windrow_master.core.settings import StepSettings, Timing
from windrow_master.core.state import Job, Node, Step
from windrow_master.core.states import Cause, StepState, Verdict
from windrow_master.limits import Limits
from windrow_master.store.records import ReopenedJob, Reopening

WALL_S = 1_700_000_000.0


def checkpoint(count: int, done: bool, position: int = 0, items: int | None = None) -> bytes:
    """A planner's checkpoint. `items` None: one a mini-batch."""
    items = count if items is None else items
    found = {"mini_batches": count, "items": items, "done": done, "position": position}
    return json.dumps(found, sort_keys=True).encode()


def records(first: int, item_counts: list[int]) -> bytes:
    """A planner's packed records; items are numbered by tens of thousands."""
    return b"".join(
        PLAN_RECORD.pack((first + at) * 10_000, items, (first + at) * 10, 10, first + at)
        for at, items in enumerate(item_counts)
    )


def completion(lease_id: int, cause: int = 0, items: int = 1, results: int | None = None, **more: Any) -> Any:
    """A result as an agent sends it."""
    rows = more.pop("rows", b"" if cause else b"row\n" * items)
    return work_pb2.Completion(
        lease_id=lease_id,
        cause=cause,  # type: ignore[arg-type]
        item_count=items,
        result_count=(0 if cause else items) if results is None else results,
        row_count=rows.count(b"\n"),
        rows=rows,
        rows_length=more.pop("rows_length", len(rows)),
        rows_crc32=more.pop("rows_crc32", crc32(rows)),
        **more,
    )


@dataclass
class CoreDriver:
    """A core, its tables, its clock."""

    timing: Timing = field(default_factory=Timing)
    limits: Limits = field(default_factory=Limits)
    now_s: float = 1000.0
    tables: MemoryTables = field(default_factory=MemoryTables)
    leases: dict[LeaseId, Lease] = field(default_factory=dict)
    """All leases ever handed out, as they were when they were."""
    effects: list[fx.Effect] = field(default_factory=list)
    """Those of the last group."""

    def __post_init__(self) -> None:
        self._streams = itertools.count(1)
        self._worker_failures = itertools.count(1)
        self.core = Core(self.tables.next_incarnation(), 7, self.timing, limits=self.limits)
        self.tables.lease_prefixes.add(7)

    @property
    def now(self) -> Moment:
        """The present."""
        return Moment(self.now_s, WALL_S + self.now_s)

    def group(self, *group: Any) -> list[Any]:
        """Handle commands as one group, pick, commit; return the replies."""
        replies = []
        for command in group:
            replies.append(self.core.handle(command, self.now))
            invariants.check(self.core.state)
        self.core.pick(self.now)
        invariants.check(self.core.state)
        self.effects = self.core.take_effects()
        for effect in self.effects:
            if isinstance(effect, fx.SendAssignments):
                assert not self.core.state.nodes[effect.node_id].cordoned, f"{effect} to a cordoned node"
                for lease in effect.leases:
                    assert lease.lease_id not in self.leases, f"{lease} was given before"
                    self.leases[lease.lease_id] = lease
        self.commit()
        return replies

    def do(self, command: Any) -> Any:
        """One command, as a group of its own; return its reply."""
        return self.group(command)[0]

    def commit(self) -> None:
        """Put the dirty rows into the tables."""
        dirty = self.core.take_dirty()
        ranges = [SegmentRange("segment", 0, block.length, block.crc32) for block in dirty.row_blocks]
        self.tables.commit(self.core.state.incarnation, dirty, ranges)

    def sent(self, kind: type[Any]) -> list[Any]:
        """The effects of one kind in the last group."""
        return [effect for effect in self.effects if isinstance(effect, kind)]

    # Jobs

    def submit(
        self,
        *settings: StepSettings,
        job_id: str = "job",
        request_id: str = "r",
        priority: int = 0,
        continue_on_step_failure: bool = False,
        project: str = DEFAULT_PROJECT,
    ) -> JobKey:
        """Submit a job; one plain step if none is given."""
        steps = settings or (StepSettings("step"),)
        document = document_of(steps, continue_on_step_failure=continue_on_step_failure)
        key = self.do(
            commands.SubmitJob(
                job_id,
                request_id,
                document,
                "digest",
                steps,
                priority,
                continue_on_step_failure=continue_on_step_failure,
                project=project,
            )
        )
        assert isinstance(key, int)
        return JobKey(key)

    def plan(
        self,
        step_id: int,
        item_counts: list[int],
        done: bool = True,
        ranks: Sequence[int] = (),
        reader: bytes = b"{}",
    ) -> bool:
        """Hand over a group of mini-batches behind those that are there."""
        step = self.step(step_id)
        first, items = len(step.mini_batches), sum(step.mini_batches.item_counts) + sum(item_counts)
        taken = self.do(
            commands.PlanGroup(
                StepId(step_id), step.plan.checkpoint, checkpoint(first + len(item_counts), done, items=items), first,
                records(first, item_counts), done, reader, ranks=b"".join(map(RANK.pack, ranks)),
            )
        )  # fmt: skip
        return bool(taken)

    def job(self, key: int = 1) -> Job:
        """A job in the core."""
        return self.core.state.jobs[JobKey(key)]

    def step(self, step_id: int = 1) -> Step:
        """A step in the core."""
        return self.core.state.steps[StepId(step_id)]

    def running(self, item_counts: list[int], **settings: Any) -> Step:
        """A submitted and wholly planned job of one step."""
        self.submit(StepSettings("step", **settings))
        step_id = self.core.state.step_id_last
        assert self.plan(step_id, item_counts)
        return self.step(step_id)

    def retry(self, **hows: Reopening) -> None:
        """Open the one job again; `hows` by step name, the others as a retry without another file would."""
        job = next(iter(self.tables.jobs.values()))
        steps = {}
        for row in (row for row in self.tables.steps.values() if row.job_key == job.job_key):
            done = row.state == StepState.COMPLETED and not Counters.from_json(row.counters).items_failed
            steps[row.step_id] = hows.get(row.name, Reopening.KEPT if done else Reopening.RESUMED)
        wanted = ReopenedJob(job.job_key, job.generation, job.document, job.run_digest, steps)
        snapshot = self.tables.reopen(wanted)
        assert self.do(commands.AdoptJob(snapshot, settings_of(job.document))) == job.job_key

    def cancel(self, job_id: str = "job") -> None:
        """Cancel a job; all nodes that are told to end its workers do so."""
        self.do(commands.CancelJob(job_id))
        for effect in self.sent(fx.EndStep):
            asked = effect.generation
            self.do(
                commands.ConfirmStepEnd(effect.node_id, effect.stream, effect.step_id, asked, asked_generation=asked)
            )

    def finish_step(self, step_id: int = 1, message: str = "") -> None:
        """The output of a step stands."""
        generation = self.job(self.step(step_id).job_key).generation
        self.do(commands.FinishStep(StepId(step_id), generation, message))

    # Nodes

    def node(self, name: str = "n1") -> Node:
        """A node in the core."""
        return self.core.state.nodes[NodeId(name)]

    def known(self, name: str) -> Node | None:
        """A node in the core, also one that is gone while its name is cordoned."""
        state = self.core.state
        return state.nodes.get(NodeId(name)) or state.absent.get(NodeId(name))

    def register(
        self,
        name: str = "n1",
        incarnation: str = "a",
        replaced: str = "",
        pool: str = "",
        memory_bytes: int = 0,
        has: tuple[int, ...] = (),
        slots: int = 2,
        gpus: int = 0,
        lifetime_s: float = math.inf,
        allocation: str = "",
    ) -> Any:
        """Register a node; return the reply. `has`: the steps that it has, whose identity it brings."""
        offers = {"slots": slots, "gpuCount": gpus} | ({"memoryBytes": str(memory_bytes)} if memory_bytes else {})
        resources = json.dumps(offers).encode()
        labels = json.dumps({"pool": pool} if pool else {}).encode()
        state = self.core.state
        steps = tuple((StepId(step_id), state.identity_of(state.steps[StepId(step_id)])) for step_id in has)
        return self.do(
            commands.RegisterNode(
                NodeId(name), incarnation, replaced, resources, labels, "", steps, lifetime_s, allocation
            )
        )

    def open(
        self,
        name: str = "n1",
        incarnation: str = "a",
        held: tuple[HeldLease, ...] = (),
        steps: tuple[StepId, ...] = (),
        workers: Mapping[int, int] | None = None,
    ) -> Any:
        """Open a Work stream; return the reply. `steps`: those that the node has, and has brought the identity of.
        `workers`: how many it has, by step.
        """
        node = self.core.state.nodes.get(NodeId(name))
        for step_id in steps if node is not None else ():
            node.note_told(step_id, self.core.state.steps)
        there = tuple((StepId(step_id), count) for step_id, count in (workers or {}).items())
        return self.do(commands.OpenWork(NodeId(name), incarnation, next(self._streams), held, steps, there))

    def capacity(self, name: str, leases_max: int, workers: int = 1, step_id: int = 1, draining: bool = False) -> None:
        """Set a node's capacity for a step."""
        node = self.node(name)
        self.do(commands.SetCapacity(node.node_id, node.stream, ((StepId(step_id), leases_max, workers),), draining))

    def close(self, name: str = "n1") -> None:
        """The Work stream of a node ends."""
        node = self.node(name)
        self.do(commands.CloseWork(node.node_id, node.stream))

    def give_up(self, name: str, step_id: int = 1) -> None:
        """A node starts no worker for a step any more."""
        node, step = self.node(name), StepId(step_id)
        self.do(commands.SetCapacity(node.node_id, node.stream, ((step, 0, 0),), False, (step,)))

    def init_fails(self, name: str, times: int = 1, step_id: int = 1) -> None:
        """Workers of a node fail in `init()`."""
        for process in range(times):
            number = next(self._worker_failures)
            self.do(
                commands.ReportWorkerFailure(
                    NodeId(name), StepId(step_id), Cause.INIT_FAILED, "no model", "", process, number
                )
            )

    def join(
        self, name: str = "n1", leases_max: int = 1000, incarnation: str = "a", step_id: int = 1, pool: str = ""
    ) -> Node:
        """A node registers, connects, and takes work."""
        assert self.register(name, incarnation, pool=pool) is None
        assert self.open(name, incarnation) is None
        self.capacity(name, leases_max, step_id=step_id)
        return self.node(name)

    def join_slots(self, name: str, slots: int, depth: int = 1, memory_bytes: int = 0) -> None:
        """A node with so many workers joins; it wants so many leases for each of them."""
        self.register(name, memory_bytes=memory_bytes)
        self.open(name)
        self.capacity(name, slots * depth, slots)

    def beat(
        self,
        name: str = "n1",
        incarnation: str = "a",
        held: Iterable[int] | None = None,
        ready_steps: tuple[StepId, ...] = (),
    ) -> Any:
        """A heartbeat with the view of the master, or another one."""
        digest, count = 0, 0
        for lease_id in self.node(name).lease_ids if held is None else held:
            digest ^= lease_id
            count += 1
        return self.do(commands.HeartbeatNode(NodeId(name), incarnation, count, digest, ready_steps))

    def beat_unknown(self) -> Any:
        """A heartbeat of a node that the core need not know."""
        return self.do(commands.HeartbeatNode(NodeId("n1"), "a", 0, 0))

    def tick(self, after_s: float = 0.25) -> None:
        """Let time pass in steps no longer than the tick's interval."""
        while after_s > 0:
            self.now_s += min(0.25, after_s)
            after_s -= 0.25
            self.do(commands.Tick())

    def tick_alive(self, after_s: float, *names: str) -> None:
        """Let time pass while these nodes send heartbeats."""
        for _ in range(int(after_s / 0.25)):
            for name in names:
                self.beat(name, self.node(name).node_incarnation)
            self.tick()

    # Leases

    def held(self, name: str = "n1") -> list[Lease]:
        """The leases of a node, by mini-batch."""
        leases = (self.core.state.leases[lease_id] for lease_id in self.node(name).lease_ids)
        return sorted(leases, key=lambda lease: lease.mini_batch)

    def as_held(self, *leases: Lease) -> tuple[HeldLease, ...]:
        """As a hello names them."""
        state = self.core.state
        steps = [state.steps.get(lease.step_id) for lease in leases]
        identities = [state.identity_of(step) if step is not None else 1 for step in steps]
        return tuple(
            HeldLease(lease.lease_id, lease.step_id, lease.mini_batch, lease.generation, identity)
            for lease, identity in zip(leases, identities, strict=True)
        )

    def complete(self, name: str, *results: Any) -> dict[Verdict, list[int]]:
        """Complete attempts; return the verdicts."""
        return self.do(commands.CompleteAttempts(NodeId(name), results))  # type: ignore[no-any-return]

    def fail(self, name: str, lease: Lease, cause: Cause, **more: Any) -> dict[Verdict, list[int]]:
        """Complete one attempt as failed."""
        return self.complete(name, completion(lease.lease_id, cause, message=cause.name.lower(), **more))

    def finish_all(self, name: str = "n1", **more: Any) -> None:
        """Complete all that a node holds, again and again, until it holds nothing."""
        while leases := self.held(name):
            items = {lease.lease_id: self.step(lease.step_id).mini_batches.item_counts[lease.mini_batch] or 1
                     for lease in leases}  # fmt: skip
            self.complete(name, *(completion(lease.lease_id, items=items[lease.lease_id], **more) for lease in leases))

    # Restarts

    def assert_reload_equals_live(self) -> None:
        """The tables hold all that the core knows."""
        self.tables.check()
        assert_reload_equals_live(self.tables, self.core.state, self.now)

    def restart(self, *, held: bool = False) -> None:
        """The master dies and starts again over the same tables."""
        incarnation = self.tables.next_incarnation()
        self.core = Core(incarnation, 7 + incarnation, self.timing, held=held, limits=self.limits)
        self.tables.lease_prefixes.add(7 + incarnation)
        self.core.load(self.tables.load(), settings_of, self.now)
        invariants.check(self.core.state)
        self.group()
