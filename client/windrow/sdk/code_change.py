"""What happens if the code or the settings have changed since the job whose results are taken over (`--since`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from windrow.errors import RequestRefused, UsageError
from windrow.rpc.errors import CODE_CHANGED
from windrow.sdk.job import Job

if TYPE_CHECKING:
    from windrow.spec import EffectiveJob, LoadedJob

ASK, RERUN, MIX = "ask", "rerun", "mix"
CHOICES = (ASK, RERUN, MIX)
"""`ask`: who submits the job decides, or it is refused; `rerun`: all of it runs again; `mix`: the results of the
earlier job stay, beside those that the changed code makes."""

Ask: TypeAlias = Callable[[str], str]
"""Asks a user, who is told what has changed; returns RERUN or MIX, or ASK for neither."""


def allowing(job: EffectiveJob, choice: str) -> EffectiveJob:
    """The job, with leave to mix results if that is the choice."""
    return job._replace(resume_changed=True) if choice == MIX else job


def submit_as_chosen(
    submit: Callable[[EffectiveJob], Job], job: EffectiveJob, choice: str, ask: Ask = lambda told: ASK
) -> Job:
    """Submit a job. If the code has changed since the results that it takes over, do what was chosen.

    Raises what `submit` raises; RequestRefused with the reason CODE_CHANGED if nothing was chosen.
    """
    try:
        return submit(allowing(job, choice))
    except RequestRefused as error:
        if error.reason != CODE_CHANGED:
            raise
        chosen = ask(str(error)) if choice == ASK else choice
        if chosen == ASK:
            raise
    return submit(allowing(job, MIX) if chosen == MIX else without_results(job))


def refuse_without_earlier_job(loaded: LoadedJob, choice: str, since: str) -> None:
    """Raises UsageError, in the words of the command line, if a choice has no earlier job to be about."""
    if choice != ASK and not since and not any(step.resume_from for step in loaded.job.steps):
        raise UsageError(
            f"--code-change {choice}: no job is named whose results are taken over. Add --since last (or --since "
            "JOB), or leave --code-change out."
        )


def without_results(job: EffectiveJob) -> EffectiveJob:
    """The job, which takes over nothing."""
    return job._replace(steps=tuple(step._replace(resume_from=None) for step in job.steps))
