"""Cancels a job in a state folder that no master uses, without loading its mini-batches: `windrow master --cancel`.

That the job is CANCELLING is durable first. A master that starts after that, or this command again, ends it, whatever
happened in between.
"""

from __future__ import annotations

import time
from pathlib import Path

from windrow_master.core.commands import Moment
from windrow_master.core.core import Core
from windrow_master.core.records import Dirty, EventRow, JobRow
from windrow_master.core.states import ENDED_JOBS, JobState
from windrow_master.core.transitions import JOB
from windrow_master.files.errors import StateFolderInUse
from windrow_master.files.state_files import StateFiles
from windrow_master.shell.submission import settings_of
from windrow_master.state_folder.opening import StateFolder
from windrow_master.store.protocol import Store

NAMED_MAX = 10


class NotCancelled(Exception):
    """The job was not cancelled, and nothing has changed. The text says why, and what to do."""


def cancel(state: Path, job_id: str) -> str:
    """Cancel a job; return what to tell. Raises NotCancelled, StateError, OSError."""
    if not StateFiles(state).database.exists():
        raise NotCancelled(f"{state} is no state folder: it holds no jobs. Name another with --state DIR.")
    try:
        folder = StateFolder.open(state)
    except StateFolderInUse as error:
        raise NotCancelled(
            f"A master is using the state folder {state}, so job {job_id} is cancelled there: windrow job cancel "
            f"{job_id}. If that master does not answer, end it first, and repeat this command."
        ) from error
    try:
        return _cancel(folder.store, job_id)
    finally:
        folder.close()


def _cancel(store: Store, job_id: str) -> str:
    row = store.reader().job_by_id(job_id)
    if row is None:
        raise NotCancelled(f"There is no job named {job_id!r} in this state folder. {_open_jobs(store)}")
    if row.state in ENDED_JOBS:
        return f"{job_id} has already ended: it is {JobState(row.state).name.lower().replace('_', ' ')}."
    now = Moment(time.monotonic(), time.time())
    if row.state != JobState.CANCELLING:
        JOB.check(row.state, JobState.CANCELLING)
        cancelling = row._replace(state=JobState.CANCELLING, message="Cancelled on request.", seq=row.seq + 1)
        store.commit(Dirty(jobs=[cancelling], events=[EventRow(now.wall_s, row.job_key, "cancelled", "")]), [], [])
    core = Core(store.incarnation, store.lease_prefix)
    # No nodes are in this snapshot, so nothing waits for their answers: they ask the next master about their steps.
    core.load(store.load(row.job_key), settings_of, now)
    store.commit(core.take_dirty(), [], [])
    return f"{job_id} is cancelled."


def _open_jobs(store: Store) -> str:
    """The names of open jobs, for a message."""
    found: list[JobRow] = []
    before: int | None = None
    while len(found) <= NAMED_MAX and (page := store.reader().jobs_newest_first(200, before)):
        found += [row for row in page if row.state not in ENDED_JOBS]
        before = page[-1].job_key
    if not found:
        return "All of its jobs have ended."
    more = " …" if len(found) > NAMED_MAX else ""
    return f"Open: {', '.join(row.job_id for row in found[:NAMED_MAX])}{more}."
