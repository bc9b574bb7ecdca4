"""How users name a job: its whole name, an unambiguous beginning of it, `last`, and `job:step` for one of its steps.

Commands and `windrow.Client` resolve names here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from windrow.errors import NotFound, UsageError

if TYPE_CHECKING:
    from windrow.sdk.job import Job

LAST = "last"
"""The newest job of the master, unless a job has this very name."""
SHOWN = 5
"""So many candidates are listed when a name is ambiguous."""


class JobCalls(Protocol):
    """The part of a client that finds jobs."""

    def get(self, job_id: str) -> Job:
        """The current state of the job of exactly this name. Raises NotFound."""

    def list_jobs(self) -> Iterator[Job]:
        """All jobs, newest first."""


def split(name: str) -> tuple[str, str]:
    """A name as (job, step); the step is empty if the name is of a job alone. Names hold no colon of their own."""
    job, _, step = name.partition(":")
    return job, step


def only_job(name: str) -> str:
    """The name of a job, where a step makes no sense. Raises UsageError if it names a step, too."""
    job, step = split(name)
    if step:
        raise UsageError(f"{name} names the step {step}, but this concerns a whole job. Name the job alone: {job}")
    return job


def with_step(name: str, step: str | None) -> tuple[str, str | None]:
    """A name as (job, step), beside a step that was given by itself. Raises UsageError if the two differ."""
    job, named = split(name)
    if named and step and named != step:
        raise UsageError(f"{name} names the step {named}, and the step {step} is given as well. Give one of them.")
    return job, named or step


def resolve(calls: JobCalls, name: str) -> str:
    """The whole name of the job that `name` means: exactly that one, else the newest for `last`, else the only one
    whose name begins so.

    Raises NotFound, UsageError if several begin so.
    """
    try:
        return calls.get(name).job_id
    except NotFound as error:
        missing = error
    if name == LAST:
        newest = next(calls.list_jobs(), None)
        if newest is None:
            raise NotFound("This master has no jobs yet, so there is no last one.", reason=missing.reason)
        return newest.job_id
    found = [job.job_id for job in calls.list_jobs() if name and job.job_id.startswith(name)]
    if not found:
        raise missing
    if len(found) > 1:
        shown = ", ".join(found[:SHOWN]) + (f" and {len(found) - SHOWN:,} more" if len(found) > SHOWN else "")
        raise UsageError(f"{len(found):,} jobs begin with {name!r}: {shown}. Write more of the name.")
    return found[0]
