"""Builds groups of dirty rows as the core would."""

from __future__ import annotations

import struct

from windrow_master.core.ids import JobKey, LeaseId, StepId
from windrow_master.core.records import AttemptRow, Dirty, JobRow, OutcomeRow, PlannedRows, RowBlock, StepRow
from windrow_master.core.states import AttemptState, JobState, MiniBatchState, StepState
from windrow_master.store.protocol import Store
from windrow_master.store.records import RowRange

RESERVE_BYTES = 1 << 20


def job_row(key: int = 1, state: JobState = JobState.RUNNING, **changes: object) -> JobRow:
    row = JobRow(
        JobKey(key), f"job-{key}", f"request-{key}", state, 1, 1, "default", 0, 1, "digest", b'{"steps": []}', "",
        b"[]", 1.5, None,
    )  # fmt: skip
    return row._replace(**changes)  # type: ignore[arg-type]


def step_row(step_id: int = 1, job_key: int = 1, state: StepState = StepState.RUNNING, **changes: object) -> StepRow:
    row = StepRow(
        StepId(step_id), JobKey(job_key), step_id, f"step-{step_id}", state, "", b"{}", None, None, b"{}", None, None,
        None,
    )  # fmt: skip
    return row._replace(**changes)  # type: ignore[arg-type]


def planned(step_id: int, first: int, count: int, ranks: bytes = b"") -> PlannedRows:
    """Mini-batches of 10 items with recipes of 100 bytes."""
    records = b"".join(struct.pack("<QIQII", at * 10, 10, at * 100, 100, at * 7) for at in range(first, first + count))
    return PlannedRows(StepId(step_id), first, 1, records, ranks)


def lease(store: Store, number: int) -> LeaseId:
    return LeaseId(store.lease_prefix << 32 | number)


def outcome_row(mini_batch: int, lease_id: int, *, step_id: int = 1, rows: int = -1, **changes: object) -> OutcomeRow:
    row = OutcomeRow(
        StepId(step_id), mini_batch, MiniBatchState.SUCCEEDED, 1, 10, 10, LeaseId(lease_id), rows, 10 * (rows >= 0)
    )
    return row._replace(**changes)  # type: ignore[arg-type]


def attempt_row(
    mini_batch: int,
    lease_id: int,
    state: AttemptState = AttemptState.SUCCEEDED,
    *,
    step_id: int = 1,
    **changes: object,
) -> AttemptRow:
    row = AttemptRow(
        LeaseId(lease_id), StepId(step_id), mini_batch, 1, "node-1", "inc-1", 3, state, 0, 1_700_000_000_000_000,
        400, 300, 200, 10, 10, 50_000, "", "",
    )  # fmt: skip
    return row._replace(**changes)  # type: ignore[arg-type]


def begun(count: int = 10) -> Dirty:
    """The first group of a job: its rows, one step, `count` mini-batches."""
    return Dirty(jobs=[job_row()], steps=[step_row()], planned=[planned(1, 0, count)])


def completed(store: Store, mini_batches: range | list[int], rows_length: int = 50) -> tuple[Dirty, list[RowRange]]:
    """A group in which mini-batches of step 1 succeed, with rows."""
    dirty, ranges = Dirty(), []
    for number, mini_batch in enumerate(mini_batches):
        lease_id = lease(store, mini_batch + 1)
        dirty.outcomes.append(outcome_row(mini_batch, lease_id, rows=number))
        dirty.attempts.append(attempt_row(mini_batch, lease_id))
        dirty.row_blocks.append(RowBlock("job", StepId(1), b"", "", rows_length, mini_batch))
        ranges.append(RowRange(store.incarnation << 32 | 1, mini_batch * rows_length, rows_length, mini_batch))
    return dirty, ranges
