"""Opens an ended job again, as its next generation: what is done stays, the rest is queued.

It is one transaction. The job is then like an unfinished job that a killed master has left.
"""

from __future__ import annotations

import json
import sqlite3

from windrow_master.core.counters import Counters
from windrow_master.core.ids import MINI_BATCH_SHIFT
from windrow_master.core.records import StepRow
from windrow_master.core.states import AttemptState, JobState, MiniBatchState, StepState
from windrow_master.store.errors import NotReopened
from windrow_master.store.records import ReopenedJob, Reopening
from windrow_master.store.sqlite import statements as sql
from windrow_master.store.sqlite.check_values import (
    ATTEMPTS,
    MINI_BATCHES,
    damaged_mini_batch,
    job_values,
    step_values,
    with_crc,
)
from windrow_master.store.sqlite.loading import (
    JOB_COLUMNS,
    JOB_FROM,
    STEPS_OF_JOB,
    check_number,
    job_of,
    number_in,
    steps_of_job,
)

_OPEN = f"(state <> {int(MiniBatchState.SUCCEEDED)} OR ok_count < items_counted)"
_OF_STEP = "key >= :first AND key < :stop"
_QUEUED_ANEW = {
    "state": str(int(MiniBatchState.QUEUED)),
    "generation": ":generation",
    "tries_since": ":generation",
    **dict.fromkeys(("items_counted", "ok_count", "lease_id", "row_count"), "0"),
    **dict.fromkeys(("segment_id", "segment_offset", "rows_length", "rows_crc32"), "NULL"),
}
_RESUMED = (
    # A result that is given up makes room for the next success of its mini-batch.
    f"UPDATE attempt SET {ATTEMPTS.set_to({'state': str(int(AttemptState.ABANDONED))})} WHERE step_id = :step_id "
    f"AND state = {int(AttemptState.SUCCEEDED)} AND mini_batch IN "
    f"(SELECT key & {(1 << MINI_BATCH_SHIFT) - 1} FROM mini_batch WHERE {_OF_STEP} AND {_OPEN})",
    f"UPDATE mini_batch SET {MINI_BATCHES.set_to(_QUEUED_ANEW)} WHERE {_OF_STEP} AND {_OPEN}",
    # These were items of mini-batches that are queued now.
    "DELETE FROM item_outcome WHERE step_id = :step_id",
)
_ANEW = (
    f"DELETE FROM mini_batch WHERE {_OF_STEP}",
    "DELETE FROM attempt WHERE step_id = :step_id",
    "DELETE FROM item_outcome WHERE step_id = :step_id",
    "DELETE FROM segment WHERE step_id = :step_id",
)
_TAKEN_OVER = f"(state = {int(MiniBatchState.SUCCEEDED)} AND lease_id = 0)"
_KEPT_SUMS = (
    f"SELECT count(*), coalesce(sum(state = {int(MiniBatchState.SUCCEEDED)}), 0), "
    "coalesce(sum(CASE WHEN item_count > 0 THEN item_count ELSE items_counted END), 0), coalesce(sum(ok_count), 0), "
    f"coalesce(sum(row_count), 0), coalesce(sum(rows_length), 0), coalesce(sum({_TAKEN_OVER}), 0), "
    f"coalesce(sum({_TAKEN_OVER} * ok_count), 0), "
    f"min(CASE WHEN {MINI_BATCHES.holds()} THEN NULL ELSE key END) FROM mini_batch WHERE {_OF_STEP}"
)


def reopen(connection: sqlite3.Connection, job: ReopenedJob) -> None:
    """Open a job again. Raises NotReopened, StateDamaged, sqlite3.Error."""
    rows = connection.execute(f"SELECT {JOB_COLUMNS} FROM {JOB_FROM} WHERE job.job_key = ?", (job.job_key,)).fetchall()
    found = job_of(rows[0]) if rows else None
    if found is None or found.state < JobState.COMPLETED or found.generation != job.generation:
        raise NotReopened(f"job {job.job_key}: {None if found is None else (found.state, found.generation)}")
    generation = job.generation + 1
    warnings = dict.fromkeys([*json.loads(found.warnings or b"[]"), *job.warnings])
    opened = found._replace(
        state=JobState.RUNNING, generation=generation, seq=found.seq + 1, message="", end_time=None,
        run_digest=job.run_digest, document=job.document, warnings=json.dumps(list(warnings)).encode(),
    )  # fmt: skip
    sql.JOBS.execute(connection, [with_crc(job_values(opened))])
    sql.JOB_DOCUMENTS.execute(connection, [with_crc((opened.job_key, opened.document))])
    steps = {row.step_id: row for row in steps_of_job(connection.execute(STEPS_OF_JOB, (job.job_key,)).fetchall())}
    for step_id, how in job.steps.items():
        if how != Reopening.KEPT:
            _reopen_step(connection, steps[step_id], how, generation)


def _reopen_step(connection: sqlite3.Connection, step: StepRow, how: Reopening, generation: int) -> None:
    values = {
        "step_id": step.step_id,
        "generation": generation,
        "first": step.step_id << MINI_BATCH_SHIFT,
        "stop": (step.step_id + 1) << MINI_BATCH_SHIFT,
    }
    before, *_, broken = connection.execute(_KEPT_SUMS, values).fetchone()
    if broken is not None:
        raise damaged_mini_batch(broken)
    check_number(step.step_id, number_in(step.counters, "planned"), before)
    for statement in _RESUMED if how == Reopening.RESUMED else _ANEW:
        connection.execute(statement, values)
    planned, succeeded, items, ok, rows, length, taken_over, items_taken_over, _ = connection.execute(
        _KEPT_SUMS, values
    ).fetchone()
    counters = Counters(
        planned=planned, succeeded=succeeded, items_total=items, items_ok=ok, rows=rows, output_bytes=length,
        taken_over=taken_over, items_taken_over=items_taken_over,
        notes=Counters.from_json(step.counters).notes if how == Reopening.RESUMED else [],
    )  # fmt: skip
    # A step that begins from nothing waits for its dependencies. One that is resumed has all of them.
    state = StepState.RUNNING if how == Reopening.RESUMED else StepState.WAITING
    step = step._replace(
        state=state, message="", end_time=None, error_category="", counters=counters.to_json(),
        header=step.header if rows else None,
    )  # fmt: skip
    if how == Reopening.ANEW:
        step = step._replace(paths=b"{}", reader=None, header=None, checkpoint=None, start_time=None)
    sql.STEPS.execute(connection, [with_crc(step_values(step))])
    sql.STEP_DOCUMENTS.execute(connection, [with_crc((step.step_id, step.paths, step.reader, step.header))])
