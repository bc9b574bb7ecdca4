"""The durable tables as plain Python: what a store must do with `Dirty`, simple enough to be checked by eye.

Used where a real store would only cost time: the core's state machine tests, and simulations of many seeds.
`commit` is atomic as far as its users go: whatever it raises ends the run.
"""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from itertools import repeat
from typing import NamedTuple

from windrow_master.core.commands import LostRows
from windrow_master.core.counters import Counters
from windrow_master.core.ids import LeaseId, StepId
from windrow_master.core.ledger import ATTEMPTS
from windrow_master.core.records import (
    PLAN_RECORD,
    RANK,
    AllocationRow,
    AttemptRow,
    Dirty,
    EarlierAttempt,
    EventRow,
    FleetRow,
    ItemOutcomeRow,
    JobRow,
    LedgerRow,
    NodeRow,
    QueueRow,
    Snapshot,
    StepRow,
    StepSnapshot,
)
from windrow_master.core.states import ENDED_JOBS, ENDED_STEPS, AttemptState, Cause, JobState, MiniBatchState, StepState
from windrow_master.store.errors import NotReopened
from windrow_master.store.records import ReopenedJob, Reopening

FINAL = (MiniBatchState.SUCCEEDED, MiniBatchState.FAILED)


class ConstraintViolated(Exception):
    """A commit that the schema forbids."""


class IncarnationSuperseded(Exception):
    """A commit of a master that is not the present one any more."""


class SegmentRange(NamedTuple):
    """Where the rows of one mini-batch are."""

    segment: str
    offset: int
    length: int
    crc32: int


@dataclass(slots=True)
class MiniBatchRow:
    """One mini-batch."""

    item_first: int
    item_count: int
    recipe_offset: int
    recipe_length: int
    recipe_crc32: int
    generation: int
    rank: int | None = None
    state: int = MiniBatchState.QUEUED
    items_counted: int = 0
    ok_count: int = 0
    lease_id: int = 0
    row_count: int = 0
    range: SegmentRange | None = None
    tries_since: int = 0


@dataclass
class MemoryTables:
    """All tables. Invariants are those of the schema: keys, and at most one SUCCEEDED attempt a mini-batch."""

    incarnation: int = 0
    lease_prefixes: set[int] = field(default_factory=set)
    """Of all incarnations so far."""
    jobs: dict[int, JobRow] = field(default_factory=dict)
    steps: dict[int, StepRow] = field(default_factory=dict)
    mini_batches: dict[int, list[MiniBatchRow]] = field(default_factory=dict)
    attempts: dict[int, AttemptRow] = field(default_factory=dict)
    succeeded: dict[tuple[int, int], int] = field(default_factory=dict)
    item_outcomes: dict[tuple[int, int], list[ItemOutcomeRow]] = field(default_factory=dict)
    nodes: dict[str, NodeRow] = field(default_factory=dict)
    queues: dict[str, QueueRow] = field(default_factory=dict)
    fleets: dict[str, FleetRow] = field(default_factory=dict)
    allocations: dict[str, AllocationRow] = field(default_factory=dict)
    ledger: dict[tuple[int, int, str, str], LedgerRow] = field(default_factory=dict)
    spent_us: Counter[int] = field(default_factory=Counter)
    """By job: what the ledger says of its attempts."""
    took_us: Counter[int] = field(default_factory=Counter)
    """By job: what all attempts took that were ever stored, also those of a step that began anew."""
    events: list[EventRow] = field(default_factory=list)
    commits: int = 0

    def next_incarnation(self) -> int:
        """A master starts."""
        self.incarnation += 1
        return self.incarnation

    def lost_rows(self, step_id: int, mini_batch: int) -> LostRows:
        """What concatenation says of a mini-batch whose committed rows are gone."""
        row = self.mini_batches[step_id][mini_batch]
        assert row.range is not None
        failures = tuple(
            (at.lease_id, Cause(at.cause))
            for at in self.attempts.values()
            if (at.step_id, at.mini_batch, at.state) == (step_id, mini_batch, AttemptState.FAILED)
            and at.generation >= row.tries_since
        )
        return LostRows(
            mini_batch,
            LeaseId(row.lease_id),
            row.items_counted,
            row.ok_count,
            row.row_count,
            row.range.length,
            failures,
        )

    def fence(self, incarnation: int) -> None:
        """Refuse a master that is not the present one. Raises IncarnationSuperseded."""
        if incarnation != self.incarnation:
            raise IncarnationSuperseded(f"incarnation {incarnation} commits, {self.incarnation} is the present one")

    def commit(self, incarnation: int, dirty: Dirty, ranges: list[SegmentRange]) -> None:
        """Apply one group; `ranges` belong to `dirty.row_blocks`.

        Raises IncarnationSuperseded or ConstraintViolated.
        """
        self.fence(incarnation)
        self.commits += 1
        for job in dirty.jobs:
            self.jobs[job.job_key] = job
        for step in dirty.steps:
            self.steps[step.step_id] = step
            self.mini_batches.setdefault(step.step_id, [])
        for planned in dirty.planned:
            table = self.mini_batches[planned.step_id]
            if planned.first_index != len(table):
                raise ConstraintViolated(
                    f"step {planned.step_id}: mini-batch {planned.first_index} planned, {len(table)} exist"
                )
            ranks = [rank for (rank,) in RANK.iter_unpack(planned.ranks)] or repeat(None)
            for record, rank in zip(PLAN_RECORD.iter_unpack(planned.records), ranks, strict=False):
                table.append(MiniBatchRow(*record, planned.generation, rank))
        for outcome in dirty.outcomes:
            row = self.mini_batches[outcome.step_id][outcome.mini_batch]
            row.state, row.generation = outcome.state, outcome.generation
            row.items_counted, row.ok_count = outcome.item_count, outcome.ok_count
            row.lease_id, row.row_count = outcome.lease_id, outcome.row_count
            row.range = ranges[outcome.rows] if outcome.rows >= 0 else None
        for step_id in dirty.cancelled_steps:
            for row in self.mini_batches[step_id]:
                if row.state == MiniBatchState.QUEUED:
                    row.state = MiniBatchState.CANCELLED
        for attempt in dirty.attempts:
            self._put_attempt(attempt)
        for step_id, mini_batch in dirty.item_outcomes_cleared:
            self.item_outcomes.pop((step_id, mini_batch), None)
        for item in dirty.item_outcomes:
            self.item_outcomes.setdefault((item.step_id, item.mini_batch), []).append(item)
        if not {node.node_id for node in dirty.nodes}.isdisjoint(dirty.nodes_removed):
            raise ConstraintViolated(f"nodes both written and removed: {dirty.nodes} {dirty.nodes_removed}")
        for node_id in dirty.nodes_removed:
            self.nodes.pop(node_id, None)
        for node in dirty.nodes:
            self.nodes[node.node_id] = node
        self.queues.update({row.name: row for row in dirty.queues})
        for name in dirty.fleets_removed:
            self.fleets.pop(name, None)
        self.fleets.update({row.name: row for row in dirty.fleets})
        for name in dirty.allocations_removed:
            self.allocations.pop(name, None)
        self.allocations.update({row.name: row for row in dirty.allocations})
        for spent in dirty.ledger:
            known = self.ledger.get(spent[:4])
            self.spent_us[spent.job_key] += sum(spent.sums[:ATTEMPTS]) - (sum(known.sums[:ATTEMPTS]) if known else 0)
            self.ledger[spent[:4]] = spent
        self.events.extend(dirty.events)

    def reopen(self, job: ReopenedJob) -> Snapshot:
        """Open a job that has ended again, and load it. Raises NotReopened."""
        row = self.jobs[job.job_key]
        if row.state not in ENDED_JOBS or row.generation != job.generation:
            raise NotReopened(row.job_id)
        self.jobs[job.job_key] = row._replace(
            state=JobState.RUNNING, generation=row.generation + 1, seq=row.seq + 1, message="", end_time=None,
            run_digest=job.run_digest, document=job.document,
        )  # fmt: skip
        for step_id, how in job.steps.items():
            if how == Reopening.RESUMED:
                self._resume(step_id, row.generation + 1)
            elif how == Reopening.ANEW:
                self._forget(step_id)
        loaded = MemoryTables.load(self)
        of_job = [step for step in loaded.steps if step.step.job_key == job.job_key]
        spent = [row for row in loaded.ledger if row.job_key == job.job_key]
        return Snapshot(loaded.job_key_last, loaded.step_id_last, [self.jobs[job.job_key]], of_job, ledger=spent)

    def _resume(self, step_id: StepId, generation: int) -> None:
        for at, row in enumerate(self.mini_batches[step_id]):
            if row.state == MiniBatchState.SUCCEEDED and row.ok_count == row.items_counted:
                continue
            lease_id = self.succeeded.pop((step_id, at), None)
            if lease_id is not None:
                self.attempts[lease_id] = self.attempts[lease_id]._replace(state=AttemptState.ABANDONED)
            row.state, row.generation, row.lease_id = MiniBatchState.QUEUED, generation, 0
            row.tries_since = generation
            row.items_counted = row.ok_count = row.row_count = 0
            row.range = None
            self.item_outcomes.pop((step_id, at), None)
        rows = self.mini_batches[step_id]
        kept = [row for row in rows if row.state == MiniBatchState.SUCCEEDED]
        counters = Counters(
            planned=len(rows), succeeded=len(kept), items_ok=sum(row.ok_count for row in kept),
            items_total=sum(row.item_count or row.items_counted for row in rows),
            rows=sum(row.row_count for row in kept),
            output_bytes=sum(row.range.length for row in kept if row.range is not None),
            taken_over=sum(not row.lease_id for row in kept),
            items_taken_over=sum(row.ok_count for row in kept if not row.lease_id),
        )  # fmt: skip
        step = self.steps[step_id]
        self.steps[step_id] = step._replace(
            state=StepState.RUNNING, message="", end_time=None, error_category="", counters=counters.to_json(),
            header=step.header if counters.rows else None,
        )  # fmt: skip

    def _forget(self, step_id: StepId) -> None:
        self.mini_batches[step_id] = []
        self.attempts = {key: row for key, row in self.attempts.items() if row.step_id != step_id}
        for table in (self.succeeded, self.item_outcomes):
            for key in [key for key in table if key[0] == step_id]:
                del table[key]  # type: ignore[attr-defined]
        self.steps[step_id] = self.steps[step_id]._replace(
            state=StepState.WAITING, message="", end_time=None, error_category="", counters=Counters().to_json(),
            paths=b"{}", reader=None, header=None, checkpoint=None, start_time=None,
        )  # fmt: skip

    def _put_attempt(self, attempt: AttemptRow) -> None:
        key = (attempt.step_id, attempt.mini_batch)
        known = self.attempts.get(attempt.lease_id)
        if not attempt.node_id and known is not None:
            # The master's later verdict on a finished attempt.
            attempt = known._replace(state=attempt.state, cause=attempt.cause, message=attempt.message)
        self.took_us[self.steps[attempt.step_id].job_key] += attempt.elapsed_us - (known.elapsed_us if known else 0)
        if self.succeeded.get(key) == attempt.lease_id:
            del self.succeeded[key]
        if attempt.state == AttemptState.SUCCEEDED:
            if key in self.succeeded:
                raise ConstraintViolated(f"two SUCCEEDED attempts of mini-batch {key}")
            self.succeeded[key] = attempt.lease_id
        self.attempts[attempt.lease_id] = attempt

    def load(self) -> Snapshot:
        """What a new master starts from."""
        snapshot = Snapshot(
            max(self.jobs, default=0),
            max(self.steps, default=0),
            [job for _, job in sorted(self.jobs.items()) if job.state not in ENDED_JOBS],
            nodes=list(self.nodes.values()),
            queues=list(self.queues.values()),
            fleets=list(self.fleets.values()),
            allocations=list(self.allocations.values()),
            lease_prefixes=frozenset(self.lease_prefixes),
        )
        open_jobs = {job.job_key for job in snapshot.jobs}
        snapshot.ledger = [row for _, row in sorted(self.ledger.items()) if row.job_key in open_jobs]
        steps = [step for step in self.steps.values() if step.job_key in open_jobs]
        attempts = self._open_attempts()
        for step in sorted(steps, key=lambda step: (step.job_key, step.ordinal)):
            rows = [] if step.state in ENDED_STEPS else self.mini_batches[step.step_id]
            snapshot.steps.append(
                StepSnapshot(
                    step,
                    bytearray(row.state for row in rows),
                    array("Q", (row.item_first for row in rows)),
                    array("I", (row.item_count for row in rows)),
                    array("Q", (row.recipe_offset for row in rows)),
                    array("I", (row.recipe_length for row in rows)),
                    array("I", (row.recipe_crc32 for row in rows)),
                    array("Q", (row.lease_id for row in rows)),
                    array("Q", (row.rank for row in rows if row.rank is not None)),
                    attempts.get(step.step_id, []) if rows else [],
                )
            )
        return snapshot

    def _open_attempts(self) -> dict[int, list[EarlierAttempt]]:
        """Attempts of QUEUED mini-batches, by step, by lease id: in any order as far as incarnations go."""
        found: dict[int, list[EarlierAttempt]] = {}
        for _, attempt in sorted(self.attempts.items()):
            row = self.mini_batches[attempt.step_id][attempt.mini_batch]
            if row.state == MiniBatchState.QUEUED and attempt.generation >= row.tries_since:
                found.setdefault(attempt.step_id, []).append(
                    EarlierAttempt(attempt.mini_batch, attempt.lease_id, attempt.state, attempt.cause, attempt.node_id)
                )
        return found

    def counters(self, step_id: int) -> Counters:
        """The stored counters of a step."""
        return Counters.from_json(self.steps[StepId(step_id)].counters)

    def check(self) -> None:
        """Raise AssertionError unless the stored counters are what a scan of the stored rows gives."""
        for step_id, step in self.steps.items():
            counters, rows = self.counters(step_id), self.mini_batches[step_id]
            tally = {state: sum(row.state == state for row in rows) for state in MiniBatchState}
            ended = step.state in ENDED_STEPS
            assert counters.planned == len(rows), f"step {step_id}: planned {counters.planned}, {len(rows)} rows"
            assert counters.succeeded == tally[MiniBatchState.SUCCEEDED], f"step {step_id}: {counters} {tally}"
            assert counters.failed == tally[MiniBatchState.FAILED], f"step {step_id}: {counters} {tally}"
            assert counters.cancelled == tally[MiniBatchState.CANCELLED], f"step {step_id}: {counters} {tally}"
            final = [row for row in rows if row.state in FINAL]
            assert counters.items_ok == sum(row.ok_count for row in final), f"step {step_id}: {counters}"
            failed = sum(row.items_counted - row.ok_count for row in final)
            assert counters.items_failed == failed, f"step {step_id}: items_failed {counters.items_failed}, {failed}"
            assert counters.rows == sum(row.row_count for row in final), f"step {step_id}: {counters}"
            taken = [row for row in rows if row.state == MiniBatchState.SUCCEEDED and not row.lease_id]
            assert counters.taken_over == len(taken), f"step {step_id}: {counters}, taken over {len(taken)}"
            assert counters.items_taken_over == sum(row.ok_count for row in taken), f"step {step_id}: {counters}"
            if ended:
                total = counters.items_ok + counters.items_failed + counters.items_cancelled
                assert counters.items_total == total, f"step {step_id}: in = {counters.items_total}, out = {total}"
                assert not tally[MiniBatchState.QUEUED], f"step {step_id} ended with {tally} queued"
            told = {key[1]: sum(item.item_count for item in items) for key, items in self.item_outcomes.items()
                    if key[0] == step_id}  # fmt: skip
            for at, row in enumerate(rows):
                bad = row.items_counted - row.ok_count if row.state in FINAL else 0
                assert told.get(at, 0) == bad, f"step {step_id}, mini-batch {at}: {bad} items not ok, {told.get(at)}"
        for job in self.jobs.values():
            states = [StepState(step.state) for step in self.steps.values() if step.job_key == job.job_key]
            over = job.state in ENDED_JOBS or job.state == JobState.CANCELLING
            assert over == all(state in ENDED_STEPS for state in states), (
                f"job {job.job_id} is {JobState(job.state).name}, its steps {[state.name for state in states]}"
            )
