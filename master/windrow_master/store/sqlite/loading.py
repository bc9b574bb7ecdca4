"""Reads what a new master starts from: jobs that have not ended, their steps, and nodes."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

from windrow_master.core.ids import MINI_BATCH_SHIFT, JobKey, LeaseId, StepId
from windrow_master.core.records import (
    AllocationRow,
    AttemptRow,
    EarlierAttempt,
    FleetRow,
    JobRow,
    LedgerRow,
    NodeRow,
    OpenSums,
    QueueRow,
    Snapshot,
    StepRow,
    StepSnapshot,
)
from windrow_master.core.states import AttemptState, JobState, MiniBatchState, StepState
from windrow_master.files.errors import StateDamaged
from windrow_master.store.sqlite.check_values import (
    ALLOCATION,
    ATTEMPTS,
    CHECK,
    COUNTED,
    DATABASE,
    FLEET,
    JOB,
    LEDGER,
    MINI_BATCHES,
    NODE,
    QUEUE,
    checked,
    damaged_row,
    job_values,
    step_values,
    text_crc,
    texts_crc,
    wrong_row_count,
)
from windrow_master.store.sqlite.mini_batch_columns import Reader, add_columns, first_damaged

JOB_COLUMNS = (
    "job.job_key, job_id, request_id, state, generation, seq, queue, priority, weight, run_digest, "
    "document, message, warnings, create_time, end_time, submitter, deadline, job.check_value, job_document.check_value"
)
JOB_FROM = "job LEFT JOIN job_document ON job_document.job_key = job.job_key"
STEP_COLUMNS = (
    "step.step_id, job_key, ordinal, name, state, message, paths, reader, checkpoint, counters, header, start_time, "
    "end_time, error_category, step.check_value, step_document.check_value"
)
STEP_FROM = "step LEFT JOIN step_document ON step_document.step_id = step.step_id"
STEPS_OF_JOB = f"SELECT {STEP_COLUMNS} FROM {STEP_FROM} WHERE job_key = ? ORDER BY ordinal"
ATTEMPT_COLUMNS = (
    "lease_id, step_id, mini_batch, generation, node_id, node_incarnation, process_number, state, cause, "
    "start_unix_us, elapsed_us, run_us, cpu_us, item_count, result_count, peak_rss_kib, message, detail, phase"
)
NODE_COLUMNS = f"{NODE}, {CHECK}"


def load_snapshot(connection: sqlite3.Connection, reader: Reader, job_key: JobKey | None = None) -> Snapshot:
    """The snapshot, read in one transaction. `reader`: borrows further connections; nobody may write meanwhile.
    `job_key`: only that job, and no nodes, queues or fleets.

    Raises sqlite3.Error, StateDamaged.
    """
    connection.execute("BEGIN")
    try:
        counted: dict[str, int] = dict(counted_rows(connection))
        open_keys = [row[0] for row in _all_jobs(connection, job_key) if row[3] < JobState.COMPLETED]
        jobs = [
            job_of(row)
            for row in connection.execute(
                f"SELECT {JOB_COLUMNS} FROM {JOB_FROM} WHERE job.job_key IN (SELECT value FROM json_each(?)) "
                "ORDER BY job.job_key",
                (json.dumps(open_keys),),
            )
        ]
        steps = []
        for job in jobs:
            of_job = steps_of_job(connection.execute(STEPS_OF_JOB, (job.job_key,)).fetchall())
            check_steps(job.job_id, job.document, len(of_job))
            if job.state == JobState.CANCELLING:
                steps += [_load_sums(connection, row) for row in of_job]
            else:
                steps += [_load_step(connection, row, reader) for row in of_job]
        ledger = ledger_rows(connection, open_keys)
        nodes, queues, fleets, allocations = [], [], [], []
        if job_key is None:
            queues = queue_rows(connection)
            fleets, allocations = fleet_rows(connection), allocation_rows(connection)
            nodes = [node_of(row) for row in connection.execute(f"SELECT {NODE_COLUMNS} FROM node ORDER BY node_id")]
        return Snapshot(
            job_key_last=JobKey(counted["job_key"]),
            step_id_last=StepId(counted["step_id"]),
            jobs=jobs,
            steps=steps,
            nodes=nodes,
            lease_prefixes=frozenset(prefix for (prefix,) in connection.execute("SELECT lease_prefix FROM master")),
            queues=queues,
            fleets=fleets,
            allocations=allocations,
            ledger=ledger,
        )
    finally:
        connection.execute("ROLLBACK")


def counted_rows(connection: sqlite3.Connection) -> list[tuple[str, int]]:
    """The highest numbers given so far. Raises sqlite3.Error, StateDamaged."""
    rows = [checked("counted", row) for row in connection.execute(f"SELECT {COUNTED}, {CHECK} FROM counted")]
    if len(rows) != 2:
        raise wrong_row_count("counted", "all of it", 2, len(rows))
    return [(name, value) for name, value in rows]


def queue_rows(connection: sqlite3.Connection) -> list[QueueRow]:
    """The settings of all queues. Raises sqlite3.Error, StateDamaged."""
    rows = connection.execute(f"SELECT {QUEUE}, {CHECK} FROM queue NOT INDEXED ORDER BY name")
    return [QueueRow._make(checked("queue", row)) for row in rows]


def fleet_rows(connection: sqlite3.Connection) -> list[FleetRow]:
    """All fleets. Raises sqlite3.Error, StateDamaged."""
    rows = connection.execute(f"SELECT {FLEET}, {CHECK} FROM fleet NOT INDEXED ORDER BY name")
    return [FleetRow._make(checked("fleet", row)) for row in rows]


def allocation_rows(connection: sqlite3.Connection) -> list[AllocationRow]:
    """All allocations. Raises sqlite3.Error, StateDamaged."""
    rows = connection.execute(f"SELECT {ALLOCATION}, {CHECK} FROM allocation NOT INDEXED ORDER BY name")
    return [AllocationRow._make(checked("allocation", row)) for row in rows]


def ledger_rows(connection: sqlite3.Connection, job_keys: Sequence[int]) -> list[LedgerRow]:
    """What jobs have spent. Raises sqlite3.Error, StateDamaged."""
    rows = connection.execute(
        f"SELECT {LEDGER}, {CHECK} FROM ledger WHERE job_key IN (SELECT value FROM json_each(?)) "
        "ORDER BY job_key, day, project, pool",
        (json.dumps(job_keys),),
    )
    return [LedgerRow._make(checked("ledger", row)) for row in rows]


def _all_jobs(connection: sqlite3.Connection, job_key: JobKey | None) -> list[Sequence[Any]]:
    """All rows of `job`, or that of one job. They include ended jobs, and no index is used: otherwise a job whose state
    is damaged would be left out silently."""
    which = "" if job_key is None else f" WHERE job_key = {int(job_key)}"
    rows = connection.execute(f"SELECT {JOB}, {CHECK} FROM job NOT INDEXED{which} ORDER BY job_key").fetchall()
    return [checked("job", row) for row in rows]


def job_of(row: Sequence[Any]) -> JobRow:
    """A row of JOB_COLUMNS. Raises StateDamaged."""
    *values, check, document_check = row
    found = JobRow._make(values)
    checked("job", (*job_values(found), check))
    checked("job_document", (found.job_key, found.document, document_check))
    return found


def step_of(row: Sequence[Any]) -> StepRow:
    """A row of STEP_COLUMNS. Raises StateDamaged."""
    *values, check, document_check = row
    found = StepRow._make(values)
    checked("step", (*step_values(found), check))
    checked("step_document", (found.step_id, found.paths, found.reader, found.header, document_check))
    return found


def steps_of_job(rows: Sequence[Sequence[Any]]) -> list[StepRow]:
    """All rows of STEPS_OF_JOB. Raises StateDamaged."""
    steps = [step_of(row) for row in rows]
    if steps and steps[-1].ordinal - steps[0].ordinal + 1 != len(steps):
        raise wrong_row_count(
            "step", f"job_key {steps[0].job_key}", steps[-1].ordinal - steps[0].ordinal + 1, len(steps)
        )
    return steps


def check_steps(job_id: str, job_document: bytes, found: int) -> None:
    """Raise StateDamaged unless a job has the steps that its document names."""
    try:
        document = json.loads(job_document)
    except ValueError:
        return  # it is as it was written: whoever needs it says what is wrong with it
    named = document.get("steps") if isinstance(document, dict) else None
    if named and len(named) != found:
        raise wrong_row_count("step", f"job {job_id}", len(named), found)


def node_of(row: Sequence[Any]) -> NodeRow:
    """A row of NODE_COLUMNS. Raises StateDamaged."""
    return NodeRow._make(checked("node", row))


def number_in(counters: bytes | None, name: str) -> int | None:
    """One of a step's stored counters; None if it is not among them. Raises StateDamaged."""
    if not counters:
        return None
    try:
        kept = json.loads(counters)
    except ValueError as error:
        raise StateDamaged(f"{DATABASE}, table step", f"counters are not JSON ({error})") from error
    return kept.get(name) if isinstance(kept, dict) else None


def _load_sums(connection: sqlite3.Connection, row: StepRow) -> StepSnapshot:
    """What is needed of a step whose job is CANCELLING. Its mini-batches are counted, and not read."""
    step = StepSnapshot(row)
    if row.state >= StepState.COMPLETED:
        return step
    first, stop = row.step_id << MINI_BATCH_SHIFT, (row.step_id + 1) << MINI_BATCH_SHIFT
    count, items, held = connection.execute(
        f"SELECT count(*), coalesce(sum(item_count) FILTER (WHERE state = {int(MiniBatchState.QUEUED)}), 0), "
        f"coalesce(min({MINI_BATCHES.holds()}), 1) FROM mini_batch WHERE key >= ? AND key < ?",
        (first, stop),
    ).fetchone()
    if not held:
        raise first_damaged(connection, first, stop)
    check_number(row.step_id, number_in(row.counters, "planned"), count)
    attempts = _attempts_of_queued(connection, row.step_id)
    running = {attempt.mini_batch for attempt in attempts if attempt.state == AttemptState.RUNNING}
    failed = {attempt.mini_batch for attempt in attempts if attempt.state == AttemptState.FAILED}
    step.sums = OpenSums(items, len(failed - running))
    return step


def _load_step(connection: sqlite3.Connection, row: StepRow, reader: Reader) -> StepSnapshot:
    step = StepSnapshot(row)
    if row.state >= StepState.COMPLETED:
        return step
    check_number(row.step_id, add_columns(connection, step, reader), len(step.states))
    check_number(row.step_id, number_in(row.counters, "planned"), len(step.states))
    step.attempts = _attempts_of_queued(connection, row.step_id)
    return step


def _attempts_of_queued(connection: sqlite3.Connection, step_id: StepId) -> list[EarlierAttempt]:
    """The attempts of a step's QUEUED mini-batches, oldest first. Raises StateDamaged."""
    # Only within one incarnation, and only by their counted part, are lease ids ordered. Tries before the last retry of
    # a mini-batch no longer count: it was queued again with all of its tries.
    attempts = connection.execute(
        "SELECT attempt.mini_batch, attempt.lease_id, attempt.state, attempt.cause, attempt.node_id, "
        f"attempt.node_incarnation, attempt.detail, attempt.texts_crc32, {ATTEMPTS.holds('attempt')} AS held "
        "FROM attempt INDEXED BY attempt_other LEFT JOIN mini_batch ON mini_batch.key = ? + attempt.mini_batch "
        "LEFT JOIN master ON master.lease_prefix = attempt.lease_id >> 32 "
        f"WHERE attempt.step_id = ? AND attempt.state <> {int(AttemptState.SUCCEEDED)} "
        f"AND (NOT held OR (mini_batch.state = {int(MiniBatchState.QUEUED)} "
        "AND attempt.generation >= mini_batch.tries_since)) "
        "ORDER BY master.incarnation, attempt.lease_id",
        (step_id << MINI_BATCH_SHIFT, step_id),
    ).fetchall()
    found = []
    for index, lease_id, state, cause, node_id, incarnation, detail, crc32, held in attempts:
        if not held or texts_crc(node_id, incarnation, detail) != crc32:
            raise damaged_attempt((lease_id,))
        found.append(EarlierAttempt(index, LeaseId(lease_id), state, cause, node_id))
    return found


def check_number(step_id: int, planned: int | None, found: int) -> None:
    """Raise StateDamaged unless a step has as many mini-batches as were planned."""
    if planned is not None and planned != found:
        raise wrong_row_count("mini_batch", f"step {step_id}", planned, found)


def damaged_attempt(row: Sequence[Any]) -> StateDamaged:
    """The error for a damaged row of attempt, which begins with its lease id."""
    return damaged_row("attempt", f"lease_id {row[0]}")


def attempt_of(row: Sequence[Any]) -> AttemptRow:
    """An attempt from ATTEMPT_COLUMNS and the two crcs of its texts. Raises StateDamaged."""
    *values, message_crc32, crc32 = row
    found = AttemptRow._make(values)
    if (
        text_crc(found.message) != message_crc32
        or texts_crc(found.node_id, found.node_incarnation, found.detail) != crc32
    ):
        raise damaged_attempt(row)
    return found


def attempt_without_detail(row: Sequence[Any]) -> AttemptRow:
    """An attempt without its detail, so that the detail's crc is not verified. Raises StateDamaged."""
    *values, message_crc32 = row
    found = AttemptRow._make(values)
    if text_crc(found.message) != message_crc32:
        raise damaged_attempt(row)
    return found
