"""Opens a job that has ended again, as its next generation: what of it is done stays, the rest is queued.

One transaction. What it leaves is a job that has not ended, as a master that was killed leaves one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from windrow_master.core.counters import Counters
from windrow_master.core.ids import MINI_BATCH_SHIFT, JobKey, StepId
from windrow_master.core.states import AttemptState, JobState, MiniBatchState, StepState


class Reopening(IntEnum):
    """What becomes of a step."""

    KEPT = 1
    """It is done, and stays as it is."""
    RESUMED = 2
    """Mini-batches with a result for each of their items keep it; the others are queued, with all of their tries."""
    ANEW = 3
    """It begins from nothing."""


class ReopenedJob(NamedTuple):
    """A job to be opened again. `generation`: that under which it ended. `document` and `run_digest`: what it is from
    now on."""

    job_key: JobKey
    generation: int
    document: bytes
    run_digest: str
    steps: Mapping[StepId, Reopening]


class NotReopened(Exception):
    """The job has not ended, or is of another generation by now: nothing was changed."""


_OPEN = f"(state <> {int(MiniBatchState.SUCCEEDED)} OR ok_count < items_counted)"
_OF_STEP = "key >= :first AND key < :stop"
_RESUMED = (
    # Results that are given up make room for the next success of their mini-batch.
    f"UPDATE attempt SET state = {int(AttemptState.ABANDONED)} WHERE step_id = :step_id "
    f"AND state = {int(AttemptState.SUCCEEDED)} AND mini_batch IN "
    f"(SELECT key & {(1 << MINI_BATCH_SHIFT) - 1} FROM mini_batch WHERE {_OF_STEP} AND {_OPEN})",
    f"UPDATE mini_batch SET state = {int(MiniBatchState.QUEUED)}, generation = :generation, "
    "tries_since = :generation, items_counted = 0, "
    "ok_count = 0, lease_id = 0, segment_id = NULL, segment_offset = NULL, rows_length = NULL, rows_crc32 = NULL, "
    f"row_count = 0, not_before = 0 WHERE {_OF_STEP} AND {_OPEN}",
    # Those that are left were of mini-batches that are queued now.
    "DELETE FROM item_outcome WHERE step_id = :step_id",
    f"UPDATE step_document SET header = NULL WHERE step_id = :step_id "
    f"AND NOT EXISTS (SELECT 1 FROM mini_batch WHERE {_OF_STEP} AND row_count > 0)",
)
_ANEW = (
    f"DELETE FROM mini_batch WHERE {_OF_STEP}",
    "DELETE FROM attempt WHERE step_id = :step_id",
    "DELETE FROM item_outcome WHERE step_id = :step_id",
    "DELETE FROM segment WHERE step_id = :step_id",
    "UPDATE step_document SET paths = x'7b7d', reader = NULL, header = NULL WHERE step_id = :step_id",
    "UPDATE step SET checkpoint = NULL, start_time = NULL WHERE step_id = :step_id",
)
_TAKEN_OVER = f"(state = {int(MiniBatchState.SUCCEEDED)} AND lease_id = 0)"
_KEPT_SUMS = (
    f"SELECT count(*), coalesce(sum(state = {int(MiniBatchState.SUCCEEDED)}), 0), "
    "coalesce(sum(CASE WHEN item_count > 0 THEN item_count ELSE items_counted END), 0), coalesce(sum(ok_count), 0), "
    f"coalesce(sum(row_count), 0), coalesce(sum(rows_length), 0), coalesce(sum({_TAKEN_OVER}), 0), "
    f"coalesce(sum({_TAKEN_OVER} * ok_count), 0) FROM mini_batch WHERE {_OF_STEP}"
)


def reopen(connection: sqlite3.Connection, job: ReopenedJob) -> None:
    """Raises NotReopened, sqlite3.Error."""
    found = connection.execute("SELECT state, generation FROM job WHERE job_key = ?", (job.job_key,)).fetchone()
    if found is None or found[0] < JobState.COMPLETED or found[1] != job.generation:
        raise NotReopened(f"job {job.job_key}: {found}")
    generation = job.generation + 1
    connection.execute(
        "UPDATE job SET state = ?, generation = ?, seq = seq + 1, message = '', end_time = NULL, run_digest = ? "
        "WHERE job_key = ?",
        (JobState.RUNNING, generation, job.run_digest, job.job_key),
    )
    connection.execute("UPDATE job_document SET document = ? WHERE job_key = ?", (job.document, job.job_key))
    for step_id, how in job.steps.items():
        if how == Reopening.KEPT:
            continue
        values = {
            "step_id": step_id,
            "generation": generation,
            "first": step_id << MINI_BATCH_SHIFT,
            "stop": (step_id + 1) << MINI_BATCH_SHIFT,
        }
        for statement in _RESUMED if how == Reopening.RESUMED else _ANEW:
            connection.execute(statement, values)
        planned, succeeded, items, ok, rows, length, taken_over, items_taken_over = connection.execute(
            _KEPT_SUMS, values
        ).fetchone()
        counters = Counters(
            planned=planned, succeeded=succeeded, items_total=items, items_ok=ok, rows=rows, output_bytes=length,
            taken_over=taken_over, items_taken_over=items_taken_over,
        )  # fmt: skip
        # One that begins from nothing waits for those that it depends on; one that goes on has all of them.
        state = StepState.RUNNING if how == Reopening.RESUMED else StepState.WAITING
        connection.execute(
            "UPDATE step SET state = ?, message = '', end_time = NULL, error_category = '', counters = ? "
            "WHERE step_id = ?",
            (state, counters.to_json(), step_id),
        )
