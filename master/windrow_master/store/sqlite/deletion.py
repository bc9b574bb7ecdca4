"""Deletes ended jobs, and rows that nobody asks for, in pieces so small that commits can come in between."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from windrow_master.core.ids import MINI_BATCH_SHIFT, JobKey, StepId
from windrow_master.core.records import CLOCK_SET_BACK, EVENTS_OF_NO_JOB_KEPT
from windrow_master.core.states import JobState
from windrow_master.store.errors import JobNotEnded
from windrow_master.store.sqlite.reader import OUTPUTS_LOOKED_AT

_JOB = (
    "DELETE FROM step_document WHERE step_id IN (SELECT step_id FROM step WHERE job_key = :job_key)",
    "DELETE FROM step WHERE job_key = :job_key",
    "DELETE FROM job_document WHERE job_key = :job_key",
    "DELETE FROM job WHERE job_key = :job_key",
)
_OF_STEPS = (
    "DELETE FROM mini_batch WHERE key IN (SELECT key FROM mini_batch WHERE key >= :first AND key < :stop LIMIT :left)",
    "DELETE FROM attempt WHERE lease_id IN (SELECT lease_id FROM attempt WHERE step_id = :step_id LIMIT :left)",
    "DELETE FROM item_outcome WHERE id IN (SELECT id FROM item_outcome WHERE step_id = :step_id LIMIT :left)",
    "DELETE FROM segment WHERE segment_id IN (SELECT segment_id FROM segment WHERE step_id = :step_id LIMIT :left)",
)
_EVENTS = "DELETE FROM event WHERE id IN (SELECT id FROM event WHERE job_key = :job_key LIMIT :left)"
_OLD_EVENTS = (
    "DELETE FROM event WHERE id IN "
    f"(SELECT id FROM event WHERE job_key IS NULL AND kind <> '{CLOCK_SET_BACK}' AND (time < :before OR id < "
    f"(SELECT id FROM event WHERE job_key IS NULL AND kind <> '{CLOCK_SET_BACK}' "
    "ORDER BY id DESC LIMIT 1 OFFSET :newest - 1)) LIMIT :left)"
)
_OLD_OUTPUTS = (
    "DELETE FROM output WHERE id IN (SELECT id FROM (SELECT id, job_key, "
    "row_number() OVER (PARTITION BY path ORDER BY id DESC) AS age FROM output) "
    "WHERE age > :kept AND job_key NOT IN (SELECT job_key FROM job) LIMIT :left)"
)
_OLD_LEDGER = "DELETE FROM ledger WHERE rowid IN (SELECT rowid FROM ledger WHERE day < :day LIMIT :left)"


def delete_job(connection: sqlite3.Connection, job_key: JobKey) -> None:
    """Delete a job with its documents and steps: together, because a job without them would look damaged.

    Raises JobNotEnded, sqlite3.Error.
    """
    found = connection.execute("SELECT state, job_id FROM job WHERE job_key = ?", (job_key,)).fetchone()
    if found is None:
        return
    if found[0] < JobState.COMPLETED:
        raise JobNotEnded(f"Job {found[1]} has not ended. Cancel it before you delete it.")
    for statement in _JOB:
        connection.execute(statement, {"job_key": job_key})


def delete_rows(connection: sqlite3.Connection, job_key: JobKey, steps: Sequence[StepId], rows_max: int) -> int:
    """Delete at most `rows_max` rows of a job that was deleted; return how many. Raises ValueError, sqlite3.Error."""
    if connection.execute("SELECT 1 FROM job WHERE job_key = ?", (job_key,)).fetchone():
        raise ValueError(f"job {job_key} was not deleted, so its rows stay")
    deleted = 0
    for step_id in steps:
        values = {
            "step_id": step_id,
            "first": step_id << MINI_BATCH_SHIFT,
            "stop": (step_id + 1) << MINI_BATCH_SHIFT,
        }
        for statement in _OF_STEPS:
            if deleted < rows_max:
                deleted += connection.execute(statement, {**values, "left": rows_max - deleted}).rowcount
    if deleted < rows_max:
        deleted += connection.execute(_EVENTS, {"job_key": job_key, "left": rows_max - deleted}).rowcount
    return deleted


def delete_old(connection: sqlite3.Connection, events_before: float, ledger_before: int, rows_max: int) -> int:
    """Delete at most `rows_max` rows that nobody asks for; return how many. Raises sqlite3.Error."""
    values = {"before": events_before, "newest": EVENTS_OF_NO_JOB_KEPT, "left": rows_max}
    deleted = connection.execute(_OLD_EVENTS, values).rowcount
    if deleted < rows_max:
        kept = {"kept": OUTPUTS_LOOKED_AT, "left": rows_max - deleted}
        deleted += connection.execute(_OLD_OUTPUTS, kept).rowcount
    if deleted < rows_max:
        deleted += connection.execute(_OLD_LEDGER, {"day": ledger_before, "left": rows_max - deleted}).rowcount
    return deleted
