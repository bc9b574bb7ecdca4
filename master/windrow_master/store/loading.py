"""Reads what a new master starts from: jobs that have not ended, their steps, and nodes."""

from __future__ import annotations

import sqlite3
from array import array

from windrow_master.core.ids import MINI_BATCH_SHIFT, JobKey, LeaseId, StepId
from windrow_master.core.records import JobRow, NodeRow, Snapshot, StepRow, StepSnapshot
from windrow_master.core.states import AttemptState, JobState, MiniBatchState, StepState
from windrow_master.store.errors import StoreBroken

FETCH_ROWS = 20_000

JOB_COLUMNS = (
    "job.job_key, job_id, request_id, state, generation, seq, queue, priority, weight, parent_key, run_digest, "
    "document, message, warnings, create_time, end_time"
)
JOB_FROM = "job JOIN job_document USING (job_key)"
STEP_COLUMNS = (
    "step.step_id, job_key, ordinal, name, state, message, paths, reader, checkpoint, counters, header, start_time, "
    "end_time, error_category"
)
STEP_FROM = "step JOIN step_document USING (step_id)"
NODE_COLUMNS = "node_id, node_incarnation, state, message, resources, labels, register_time, cordoned"


def load_snapshot(connection: sqlite3.Connection, job_key: JobKey | None = None) -> Snapshot:
    """The snapshot, read in one transaction; `job_key`: of that job alone, and no node.

    Raises sqlite3.Error, StoreBroken.
    """
    which = "job.state < ?" + ("" if job_key is None else f" AND job.job_key = {int(job_key)}")
    connection.execute("BEGIN")
    try:
        counted: dict[str, int] = dict(connection.execute("SELECT name, value FROM counted"))
        jobs = connection.execute(
            f"SELECT {JOB_COLUMNS} FROM {JOB_FROM} WHERE {which} ORDER BY job.job_key", (JobState.COMPLETED,)
        ).fetchall()
        steps = connection.execute(
            f"SELECT {STEP_COLUMNS} FROM {STEP_FROM} WHERE job_key IN (SELECT job_key FROM job WHERE {which}) "
            f"ORDER BY job_key, ordinal",
            (JobState.COMPLETED,),
        ).fetchall()
        nodes = []
        if job_key is None:
            nodes = connection.execute(f"SELECT {NODE_COLUMNS} FROM node ORDER BY node_id").fetchall()
        return Snapshot(
            job_key_last=JobKey(counted["job_key"]),
            step_id_last=StepId(counted["step_id"]),
            jobs=[JobRow._make(row) for row in jobs],
            steps=[_load_step(connection, StepRow._make(row)) for row in steps],
            nodes=[NodeRow._make(row) for row in nodes],
        )
    finally:
        connection.execute("ROLLBACK")


def _load_step(connection: sqlite3.Connection, row: StepRow) -> StepSnapshot:
    step = StepSnapshot(row, bytearray(), array("Q"), array("I"), array("Q"), array("I"), array("Q"))
    if row.state >= StepState.COMPLETED:
        return step
    first, stop = row.step_id << MINI_BATCH_SHIFT, (row.step_id + 1) << MINI_BATCH_SHIFT
    cursor = connection.execute(
        "SELECT key, state, item_first, item_count, recipe_offset, recipe_length, lease_id, queue_rank FROM mini_batch "
        "WHERE key >= ? AND key < ? ORDER BY key",
        (first, stop),
    )
    cursor.arraysize = FETCH_ROWS
    key_last = first - 1
    while rows := cursor.fetchmany():
        keys, states, item_firsts, item_counts, offsets, lengths, lease_ids, ranks = zip(*rows, strict=True)
        key_last = keys[-1]
        step.states.extend(states)
        step.item_firsts.extend(item_firsts)
        step.item_counts.extend(item_counts)
        step.recipe_offsets.extend(offsets)
        step.recipe_lengths.extend(lengths)
        step.lease_ids.extend(lease_ids)
        if ranks[0] is not None:  # a step's mini-batches have ranks all, or none has
            step.ranks.extend(ranks)
    if key_last - first + 1 != len(step.states):
        raise StoreBroken(
            f"step {row.step_id}: {len(step.states)} mini-batches are stored, but the last one has index "
            f"{key_last - first}. The database is damaged: bring it back from a backup, or begin the job anew."
        )
    # Lease ids are ordered within an incarnation only, by their counted part. Tries before the last retry of the
    # mini-batch count no more: it was queued anew, with all of its tries.
    attempts = connection.execute(
        "SELECT attempt.mini_batch, attempt.lease_id, attempt.state, attempt.cause, attempt.node_id "
        "FROM attempt INDEXED BY attempt_other JOIN mini_batch ON mini_batch.key = ? + attempt.mini_batch "
        "LEFT JOIN master ON master.lease_prefix = attempt.lease_id >> 32 "
        f"WHERE attempt.step_id = ? AND attempt.state <> {int(AttemptState.SUCCEEDED)} "
        f"AND mini_batch.state = {int(MiniBatchState.QUEUED)} AND attempt.generation >= mini_batch.tries_since "
        "ORDER BY master.incarnation, attempt.lease_id",
        (first, row.step_id),
    ).fetchall()
    step.attempts = [(index, LeaseId(lease_id), *rest) for index, lease_id, *rest in attempts]
    return step
