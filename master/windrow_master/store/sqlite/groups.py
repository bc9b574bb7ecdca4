"""Turns one group of dirty rows into the statements that write it, in an order in which each finds what it needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from windrow_master.core.ids import JobKey, StepId, mini_batch_key
from windrow_master.core.records import (
    PLAN_RECORD,
    RANK,
    AttemptRow,
    Dirty,
    ItemOutcomeRow,
    JobRow,
    OutcomeRow,
    PlannedRows,
    StepRow,
)
from windrow_master.store.records import RowRange, SegmentRow
from windrow_master.store.sqlite import statements as sql
from windrow_master.store.sqlite.check_values import item_crc, job_values, step_values, text_crc, texts_crc, with_crc
from windrow_master.store.sqlite.statements import BulkStatement, PlainStatement, Row


class Write(NamedTuple):
    """One statement over rows."""

    statement: BulkStatement | PlainStatement
    rows: Sequence[Row]
    changes: int = -1
    """The number of rows that it must change; -1 for any number."""


class DocumentCache:
    """The last written values of the large columns that rarely change, so that not every group writes them."""

    def __init__(self) -> None:
        self.jobs: dict[JobKey, bytes] = {}
        self.steps: dict[StepId, tuple[Any, ...]] = {}


def writes_of(
    dirty: Dirty, ranges: Sequence[RowRange], segments: Sequence[SegmentRow], written: DocumentCache
) -> list[Write]:
    """The writes of a group. `written` is only read. Raises ValueError if `ranges` does not fit the row blocks."""
    if len(ranges) != len(dirty.row_blocks):
        raise ValueError(f"{len(dirty.row_blocks)} row blocks came with {len(ranges)} ranges")
    outcomes = _outcomes(dirty.outcomes, ranges)
    verdicts = [
        (row.lease_id, row.state, row.cause, row.message, text_crc(row.message))
        for row in dirty.attempts
        if not row.node_id
    ]
    attempts = [row for row in dirty.attempts if row.node_id] if verdicts else dirty.attempts
    writes = [
        Write(sql.JOBS, [with_crc(job_values(row)) for row in dirty.jobs]),
        Write(sql.JOB_DOCUMENTS, _job_documents(dirty.jobs, written)),
        Write(sql.STEPS, [with_crc(step_values(row)) for row in dirty.steps]),
        Write(sql.STEP_DOCUMENTS, _step_documents(dirty.steps, written)),
        *(Write(sql.PLANNED_RANKED if group.ranks else sql.PLANNED, _planned(group)) for group in dirty.planned),
        Write(sql.SEGMENTS, [with_crc(row) for row in segments]),
        Write(sql.OUTCOMES, outcomes, len(outcomes)),
        Write(sql.CANCELLED_STEPS, [_keys_of(step_id) for step_id in dirty.cancelled_steps]),
        # Attempts without a node are the master's later verdicts on finished ones (rows_lost). They come first, because
        # the next success of a mini-batch needs the place of the one taken back.
        Write(sql.VERDICTS, verdicts),
        Write(sql.ATTEMPTS, [_attempt(row) for row in attempts]),
        Write(sql.ITEM_OUTCOMES_CLEARED, dirty.item_outcomes_cleared),
        Write(sql.ITEM_OUTCOMES, [_item_outcome(row) for row in dirty.item_outcomes]),
        Write(sql.NODES_REMOVED, [(node_id,) for node_id in dirty.nodes_removed]),
        Write(sql.NODES, [with_crc(row) for row in dirty.nodes]),
        Write(sql.QUEUES, [with_crc(row) for row in dirty.queues]),
        Write(sql.FLEETS_REMOVED, [(name,) for name in dirty.fleets_removed]),
        Write(sql.FLEETS, [with_crc(row) for row in dirty.fleets]),
        Write(sql.ALLOCATIONS_REMOVED, [(name,) for name in dirty.allocations_removed]),
        Write(sql.ALLOCATIONS, [with_crc(row) for row in dirty.allocations]),
        Write(sql.LEDGER, [with_crc(row) for row in dirty.ledger]),
        Write(sql.EVENTS, dirty.events),
    ]
    return [write for write in writes if write.rows]


def _outcomes(outcomes: Sequence[OutcomeRow], ranges: Sequence[RowRange]) -> list[Row]:
    """Rows of statements.OUTCOMES, the last one of each mini-batch."""
    rows: dict[int, Row] = {}
    for step_id, mini_batch, state, generation, items, ok, lease_id, block, row_count in outcomes:
        key = mini_batch_key(step_id, mini_batch)
        place = ranges[block] if block >= 0 else (None, None, None, None)
        rows[key] = (key, state, generation, items, ok, lease_id, *place, row_count)
    return list(rows.values())


def _keys_of(step_id: StepId) -> Row:
    """First key of a step's mini-batches, and the first beyond."""
    return (mini_batch_key(step_id, 0), mini_batch_key(StepId(step_id + 1), 0))


def _planned(group: PlannedRows) -> list[Row]:
    first = mini_batch_key(group.step_id, group.first_index)
    generation = group.generation
    if group.ranks:
        both = zip(PLAN_RECORD.iter_unpack(group.records), RANK.iter_unpack(group.ranks), strict=True)
        return [(key, *record, generation, rank) for key, (record, (rank,)) in enumerate(both, first)]
    return [(key, *record, generation) for key, record in enumerate(PLAN_RECORD.iter_unpack(group.records), first)]


def _job_documents(jobs: Sequence[JobRow], written: DocumentCache) -> list[Row]:
    return [with_crc((row.job_key, row.document)) for row in jobs if written.jobs.get(row.job_key) != row.document]


def _attempt(row: AttemptRow) -> Row:
    return (*row, text_crc(row.message), texts_crc(row.node_id, row.node_incarnation, row.detail))


def _item_outcome(row: ItemOutcomeRow) -> Row:
    return (*row, item_crc(row.message, row.place))


def _step_documents(steps: Sequence[StepRow], written: DocumentCache) -> list[Row]:
    return [
        with_crc((row.step_id, row.paths, row.reader, row.header))
        for row in steps
        if written.steps.get(row.step_id) != (row.paths, row.reader, row.header)
    ]
