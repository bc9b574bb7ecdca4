"""How users name a job: its whole name, an unambiguous beginning of it, `last`, and `JOB:STEP` for one of its steps.

Commands and `windrow.Client.find` resolve names here and nowhere else. All other calls of a client take whole names: a
program that asks for a job that is gone must not get another one whose name begins the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from windrow.common.quantities import first_few
from windrow.errors import NotFound, UsageError

if TYPE_CHECKING:
    from windrow.sdk.job import Job

LAST = "last"
"""The newest job of the master or state folder, unless a job has this very name."""
CANDIDATES_SHOWN = 5


class JobCalls(Protocol):
    """The part of a client that finds jobs."""

    def get(self, job_id: str) -> Job:
        """The current state of the job of exactly this name. Raises NotFound."""

    def list_jobs(self) -> Iterator[Job]:
        """All jobs, newest first."""


def only_job(name: str) -> str:
    """The name of a job, where a step makes no sense. Raises UsageError if it names a step, too."""
    job, step = _split(name)
    if step:
        raise UsageError(f"{name} names the step {step}, but this command is about a whole job. Write {job} alone.")
    return job


def with_step(name: str, step: str | None) -> tuple[str, str | None]:
    """A name as (job, step); None if neither it nor `step`, which was given apart from it, names one.

    Raises UsageError if both name one, and not the same.
    """
    job, named = _split(name)
    if named and step and named != step:
        raise UsageError(f"{name} names the step {named}, but the step {step} is given as well. Leave one of them out.")
    return job, named or step


def find(calls: JobCalls, name: str) -> Job:
    """The job that a name means: the one of exactly this name, else for `last` the newest, else the only one whose name
    begins so.

    Raises NotFound, and UsageError if several begin so.
    """
    try:
        return calls.get(name)
    except NotFound as error:
        missing = error
    if name == LAST:
        newest = next(calls.list_jobs(), None)
        if newest is None:
            raise NotFound(
                "There is no job yet, so none is the last one. Submit one first: windrow run FILE, or windrow job "
                "create FILE.",
                reason=missing.reason,
            )
        return newest
    found = [job for job in calls.list_jobs() if name and job.job_id.startswith(name)]
    if not found:
        raise missing
    if len(found) > 1:
        shown = first_few([job.job_id for job in found], CANDIDATES_SHOWN)
        raise UsageError(f"The names of {len(found):,} jobs begin with {name}: {shown}. Write more of the name.")
    return found[0]


def _split(name: str) -> tuple[str, str]:
    """A name as (job, step). Neither name can hold a colon. Raises UsageError if one of them is empty beside one."""
    job, colon, step = name.partition(":")
    if colon and not (job and step):
        raise UsageError(f"{name!r} names no job and step. Write JOB, or JOB:STEP for one of its steps.")
    return job, step
