"""Which run a job file means over a state folder: continue an unfinished one, refuse, or begin a new one.

Runs of one job file are found by its absolute path, and compared by `run_digest`: settings, inputs (with the MLTable
files of divided ones) and code. An unfinished equal run continues. An unfinished run that differs is refused, unless
the user says what to do with it. If there is none, a new run begins; but if an equal run has ended and the command that
followed it was killed before it could report that, the end is reported instead.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from windrow.common.quantities import counted
from windrow.embedded import unreported_run
from windrow.errors import NotFound, RequestRefused, RunChanged, UsageError, WindrowError
from windrow.rpc.errors import JOB_EXISTS
from windrow.sdk.code_change import ASK, RERUN, Ask, submit_as_chosen, without_results
from windrow.sdk.earlier_jobs import with_job_files
from windrow.sdk.job import Job, JobState
from windrow.sdk.results import rows_files
from windrow.storage.urls import is_remote

if TYPE_CHECKING:
    from windrow.sdk.client import Client
    from windrow.spec import EffectiveJob, LoadedJob

CANCEL_TIMEOUT_S = 60.0
NAME_MAX = 64


class Begun(NamedTuple):
    """The chosen run. `continued`: whether the run began earlier; it may even have ended unreported. `others`:
    unfinished runs that continue beside it. `is_first`: the results of the last job were asked for, and there is none.

    Not the master's `Begun`, which is a step.
    """

    job: Job
    continued: bool
    others: tuple[Job, ...] = ()
    is_first: bool = False


def begin(
    client: Client,
    loaded: LoadedJob,
    folder: str,
    *,
    restart: bool = False,
    keep_rows: bool = False,
    since: str = "",
    code_change: str = ASK,
    ask: Ask = lambda told: ASK,
) -> Begun:
    """Continue the unfinished run of this job file in a state folder, or submit a new one.

    Until `unreported_run.forget`, its end counts as unreported. `restart`: cancel the unfinished run and begin a new
    one. `keep_rows`: continue the unfinished run as it was started, although the job file or its code has changed.
    `since`: see `windrow.spec.earlier_results`. `code_change`, `ask`: see `windrow.sdk.code_change`. Raises RunChanged,
    and what `Client.submit` raises.
    """
    choice = _Choice(since, code_change, ask)
    begun = _choose(client, loaded, folder, choice, restart=restart, keep_rows=keep_rows)
    unreported_run.remember(folder, begun.job.job_id)
    return begun


def retry(client: Client, job_id: str, loaded: LoadedJob | None, folder: str) -> Begun:
    """Run the failed and cancelled parts of an ended run again. An unfinished run continues as it is.

    `loaded`: the repaired job file. Raises what `Client.retry` raises.
    """
    job = client.get(job_id)
    if job.state.ended:
        job = client.retry(job_id, loaded)
    others = [other for other in client.list_jobs() if not other.state.ended and other.job_id != job_id]
    unreported_run.remember(folder, job_id)
    return Begun(job, True, tuple(others))


class _Choice(NamedTuple):
    """Whose results are taken over, and what happens if what made them has changed."""

    since: str
    code_change: str
    ask: Ask


def _choose(
    client: Client, loaded: LoadedJob, folder: str, choice: _Choice, *, restart: bool, keep_rows: bool
) -> Begun:
    jobs = list(client.list_jobs())
    # Results of other runs beside the code must not make another run of an unfinished one.
    written = [out.path for job in jobs for step in job.steps for out in step.outputs]
    effective = client.upload_code(loaded, written=written)
    is_first = False
    if choice.since:
        from windrow.sdk.earlier_jobs import taking_over

        alone, effective = effective, taking_over(client, effective, choice.since)
        is_first = effective is alone
    # What was refused once, and runs again as a whole, takes over nothing.
    digests = {effective.run_digest}
    if choice.code_change == RERUN:
        digests.add(without_results(effective).run_digest)
    unfinished = [job for job in jobs if not job.state.ended]
    same_file, others = _split(client, unfinished, effective.job_file)
    going = [job for job in same_file if job.state is not JobState.CANCELLING]
    if restart:
        for job in going:
            client.cancel(job.job_id)
            client.end_of(job.job_id, timeout_s=CANCEL_TIMEOUT_S)
    else:
        equal = [job for job in going if job.run_digest in digests]
        if equal or (going and keep_rows):
            chosen = (equal or going)[0]
            return Begun(chosen, True, tuple(job for job in unfinished if job.job_id != chosen.job_id))
        if going:
            raise _changed(client, going[0], effective)
        ended = _ended_unreported(client, effective, folder)
        if ended is not None:
            return Begun(ended, True, tuple(others))
        if keep_rows:
            raise UsageError(
                f"--keep-rows: {effective.job_file} has no unfinished run to continue. Leave out --keep-rows to start "
                "a new one."
            )
    submit = partial(_submit_new, client)
    begun = submit_as_chosen(submit, effective, choice.code_change, choice.ask)
    return Begun(begun, False, tuple(others), is_first)


def _ended_unreported(client: Client, effective: EffectiveJob, folder: str) -> Job | None:
    """The equal run, if there is one, that succeeded while nobody followed it, and whose outputs still exist."""
    job_id = unreported_run.remembered(folder)
    if not job_id:
        return None
    try:
        job, document = client.get(job_id), client.document(job_id)
    except NotFound:
        return None
    if not job.state.succeeded or job.run_digest != effective.run_digest:
        return None
    if document.get("job_file") != effective.job_file:
        return None
    places = [file.place for file in rows_files(job, document)]
    places += [out.path for step in job.steps for out in step.outputs]
    # Only the master can check whether an output in a store still exists; it did when the run ended.
    return job if all(is_remote(place) or os.path.exists(place) for place in places) else None


def _split(client: Client, unfinished: Iterable[Job], job_file: str) -> tuple[list[Job], list[Job]]:
    same: list[Job] = []
    others: list[Job] = []
    for job, written in with_job_files(client, unfinished):
        (same if written == job_file else others).append(job)
    return same, others


def _submit_new(client: Client, effective: EffectiveJob) -> Job:
    """Submit under the job file's name, with the next free number appended if an earlier run has that name."""
    name, number = effective.name, 1
    while True:
        try:
            return client.submit_effective(effective)
        except RequestRefused as error:
            if error.reason != JOB_EXISTS or name is None:
                raise
        number += 1
        suffix = f"-{number}"
        effective = effective._replace(name=f"{name[: NAME_MAX - len(suffix)]}{suffix}")


def _changed(client: Client, job: Job, effective: EffectiveJob) -> RunChanged:
    items = job.items
    done = f"{items.done:,} of {counted(items.total, 'item')} done" if items.total else "nothing done yet"
    return RunChanged(
        f"The unfinished run {job.job_id} of {effective.job_file} ({done}) was started with "
        f"{_what_differs(client, job, effective)}. Choose:\n"
        f"  --restart    cancel that run and start a new one with what is there now\n"
        f"  --keep-rows  finish that run as it was started, with its own settings and code\n"
        f"or undo the change, and the same command continues it."
    )


def _what_differs(client: Client, job: Job, effective: EffectiveJob) -> str:
    """What makes it another run than the unfinished one, in words."""
    import tempfile

    from windrow.spec import EffectiveJob
    from windrow.spec.effective.changes import differences
    from windrow.spec.effective.document import DocumentError

    with tempfile.TemporaryDirectory() as folder:

        def archive_of(digest: str) -> Path | None:
            try:
                client.download_code(digest, archive := Path(folder, digest))
            except (WindrowError, OSError):
                return None
            return archive

        try:
            before = EffectiveJob.from_json(json.dumps(client.document(job.job_id)))
            told = differences(before, effective, archive_of)
        except (DocumentError, OSError):
            told = []
    if told:
        return f"something else: {'; '.join(told)}"
    # A job of an earlier version may differ in what this one does not know.
    return "other settings, inputs (or MLTable files), code or --since"
