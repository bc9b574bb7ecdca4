"""Deletes the rows of an ended job, in pieces so small that commits can come in between."""

from __future__ import annotations

import sqlite3

from windrow_master.core.ids import MINI_BATCH_SHIFT, JobKey
from windrow_master.core.states import JobState

OF_STEPS = (
    "DELETE FROM mini_batch WHERE key IN (SELECT key FROM mini_batch WHERE key >= :first AND key < :stop LIMIT :left)",
    "DELETE FROM attempt WHERE lease_id IN (SELECT lease_id FROM attempt WHERE step_id = :step_id LIMIT :left)",
    "DELETE FROM item_outcome WHERE id IN (SELECT id FROM item_outcome WHERE step_id = :step_id LIMIT :left)",
    "DELETE FROM segment WHERE segment_id IN (SELECT segment_id FROM segment WHERE step_id = :step_id LIMIT :left)",
)
EVENTS = "DELETE FROM event WHERE id IN (SELECT id FROM event WHERE job_key = :job_key LIMIT :left)"
OF_JOB = (
    "DELETE FROM step_document WHERE step_id IN (SELECT step_id FROM step WHERE job_key = :job_key)",
    "DELETE FROM step WHERE job_key = :job_key",
    "DELETE FROM job_document WHERE job_key = :job_key",
    "DELETE FROM job WHERE job_key = :job_key",
)


def delete_some(connection: sqlite3.Connection, job_key: JobKey, rows_max: int) -> int:
    """Delete about `rows_max` rows; return how many (fewer than `rows_max`: all are gone). The job's own row goes last.

    Records of written outputs stay, so that a later job may replace those files. Raises ValueError.
    """
    state = connection.execute("SELECT state, job_id FROM job WHERE job_key = ?", (job_key,)).fetchone()
    if state is None:
        return 0
    if state[0] < JobState.COMPLETED:
        raise ValueError(f"job {state[1]} has not ended; cancel it before it is pruned")
    deleted = 0
    steps = connection.execute("SELECT step_id FROM step WHERE job_key = ? ORDER BY step_id", (job_key,)).fetchall()
    for (step_id,) in steps:
        values = {
            "step_id": step_id,
            "first": step_id << MINI_BATCH_SHIFT,
            "stop": (step_id + 1) << MINI_BATCH_SHIFT,
        }
        for statement in OF_STEPS:
            if deleted >= rows_max:
                return deleted
            deleted += connection.execute(statement, {**values, "left": rows_max - deleted}).rowcount
    if deleted < rows_max:
        deleted += connection.execute(EVENTS, {"job_key": job_key, "left": rows_max - deleted}).rowcount
    if deleted < rows_max:
        # Together: a job without its documents would look damaged.
        for statement in OF_JOB:
            deleted += connection.execute(statement, {"job_key": job_key}).rowcount
        deleted = min(deleted, rows_max - 1)  # all are gone
    return deleted
