"""The durable tables as plain Python, and what a group changes in them."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from windrow_master.core.ids import StepId
from windrow_master.core.records import (
    PLAN_RECORD,
    RANK,
    AllocationRow,
    AttemptRow,
    Dirty,
    EventRow,
    FleetRow,
    ItemOutcomeRow,
    JobRow,
    LedgerRow,
    NodeRow,
    PlannedRows,
    QueueRow,
    StepRow,
)
from windrow_master.core.states import AttemptState, MiniBatchState
from windrow_master.store.errors import StoreBroken
from windrow_master.store.records import AssetRow, OutputRow, RowRange, SegmentRow, TokenRow

INT_MAX = (1 << 63) - 1


class MiniBatch(NamedTuple):
    """A mini-batch."""

    item_first: int
    item_count: int
    recipe_offset: int
    recipe_length: int
    recipe_crc32: int
    generation: int
    rank: int | None
    state: int = MiniBatchState.QUEUED
    items_counted: int = 0
    ok_count: int = 0
    lease_id: int = 0
    row_count: int = 0
    range: RowRange | None = None
    tries_since: int = 0


@dataclass
class Tables:
    """What survives a master."""

    masters: list[int] = field(default_factory=list)
    """The lease prefix of each incarnation."""
    jobs: dict[int, JobRow] = field(default_factory=dict)
    steps: dict[int, StepRow] = field(default_factory=dict)
    mini_batches: dict[int, dict[int, MiniBatch]] = field(default_factory=dict)
    """By step and index."""
    attempts: dict[int, AttemptRow] = field(default_factory=dict)
    item_outcomes: list[ItemOutcomeRow] = field(default_factory=list)
    nodes: dict[str, NodeRow] = field(default_factory=dict)
    queues: dict[str, QueueRow] = field(default_factory=dict)
    fleets: dict[str, FleetRow] = field(default_factory=dict)
    allocations: dict[str, AllocationRow] = field(default_factory=dict)
    ledger: dict[tuple[int, int, str, str], LedgerRow] = field(default_factory=dict)
    events: dict[int, EventRow] = field(default_factory=dict)
    segments: dict[int, SegmentRow] = field(default_factory=dict)
    outputs: list[OutputRow] = field(default_factory=list)
    assets: list[AssetRow] = field(default_factory=list)
    tokens: dict[str, TokenRow] = field(default_factory=dict)
    job_key_last: int = 0
    step_id_last: int = 0
    event_last: int = 0

    def copy(self) -> Tables:
        """One whose changes do not show here."""
        copied = Tables(**{one.name: _copied(getattr(self, one.name)) for one in fields(self)})
        copied.mini_batches = {step_id: dict(rows) for step_id, rows in self.mini_batches.items()}
        return copied

    def replace(self, other: Tables) -> None:
        """Become another."""
        for one in fields(self):
            setattr(self, one.name, getattr(other, one.name))

    def apply(self, dirty: Dirty, ranges: list[RowRange], segments: list[SegmentRow]) -> None:
        """Write a group. Raises StoreBroken where it makes no sense; then these tables are of no use."""
        for job in dirty.jobs:
            self.jobs[job.job_key] = job
            self.job_key_last = max(self.job_key_last, job.job_key)
        for step in dirty.steps:
            self.steps[step.step_id] = step
            self.step_id_last = max(self.step_id_last, step.step_id)
        for planned in dirty.planned:
            self._plan(planned)
        for segment in segments:
            self.segments[segment.segment_id] = segment
        self._put_outcomes(dirty, ranges)
        for step_id in dirty.cancelled_steps:
            for index, row in self.mini_batches.get(step_id, {}).items():
                if row.state == MiniBatchState.QUEUED:
                    self.mini_batches[step_id][index] = row._replace(state=MiniBatchState.CANCELLED)
        for attempt in sorted(dirty.attempts, key=lambda attempt: bool(attempt.node_id)):
            self._put_attempt(attempt)
        cleared = set(dirty.item_outcomes_cleared)
        self.item_outcomes = [row for row in self.item_outcomes if (row.step_id, row.mini_batch) not in cleared]
        self.item_outcomes += [storable(row) for row in dirty.item_outcomes]
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
        self.allocations.update({row.name: storable(row) for row in dirty.allocations})
        self.ledger.update({row[:4]: storable(row) for row in dirty.ledger})
        for event in dirty.events:
            self.event_last += 1
            self.events[self.event_last] = storable(event)

    def _plan(self, planned: PlannedRows) -> None:
        rows = self.mini_batches.setdefault(planned.step_id, {})
        ranks = [rank for (rank,) in RANK.iter_unpack(planned.ranks)]
        for at, record in enumerate(PLAN_RECORD.iter_unpack(planned.records)):
            rank = ranks[at] if ranks else None
            rows[planned.first_index + at] = MiniBatch(*record, planned.generation, rank)

    def _put_outcomes(self, dirty: Dirty, ranges: list[RowRange]) -> None:
        last = {(row.step_id, row.mini_batch): row for row in dirty.outcomes}
        known = sum(index in self.mini_batches.get(step_id, ()) for step_id, index in last)
        if known < len(last):
            raise StoreBroken(f"{len(last)} mini-batches have an outcome, but only {known} of them were ever planned")
        for (step_id, index), row in last.items():
            self.mini_batches[step_id][index] = self.mini_batches[step_id][index]._replace(
                state=row.state,
                generation=row.generation,
                items_counted=row.item_count,
                ok_count=row.ok_count,
                lease_id=row.lease_id,
                row_count=row.row_count,
                range=ranges[row.rows] if row.rows >= 0 else None,
            )

    def _put_attempt(self, attempt: AttemptRow) -> None:
        known = self.attempts.get(attempt.lease_id)
        if not attempt.node_id:
            # The master's later verdict on an attempt that is stored already.
            if known is not None:
                changed = known._replace(state=attempt.state, cause=attempt.cause, message=attempt.message)
                self.attempts[attempt.lease_id] = changed
            return
        if attempt.state == AttemptState.SUCCEEDED and any(
            other.state == AttemptState.SUCCEEDED and other.lease_id != attempt.lease_id
            for other in self.attempts_of(attempt.step_id, attempt.mini_batch)
        ):
            raise StoreBroken(f"mini-batch {attempt.mini_batch} of step {attempt.step_id} would succeed twice")
        self.attempts[attempt.lease_id] = storable(attempt)

    def attempts_of(self, step_id: StepId, mini_batch: int) -> list[AttemptRow]:
        """The attempts of a mini-batch, in no order."""
        return [row for row in self.attempts.values() if (row.step_id, row.mini_batch) == (step_id, mini_batch)]

    def begun(self, attempt: AttemptRow) -> tuple[int, int]:
        """In this order attempts began: lease ids are ordered within an incarnation only."""
        return self.incarnation_of(attempt.lease_id), attempt.lease_id

    def incarnation_of(self, lease_id: int) -> int:
        """Which master gave a lease; 0: none that is known."""
        prefix = lease_id >> 32
        return self.masters.index(prefix) + 1 if prefix in self.masters else 0


def storable(row: Any) -> Any:
    """A row whose texts are valid Unicode, and whose numbers have 63 bits at most."""
    return row._make(_storable(value) for value in row)


def _storable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    return min(INT_MAX, value) if isinstance(value, int) else value


def _copied(value: Any) -> Any:
    return value.copy() if isinstance(value, dict | list) else value
