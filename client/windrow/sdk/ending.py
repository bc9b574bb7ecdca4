"""What to say of a job that ended without its outputs: the cause that cost most, and what to do next."""

from __future__ import annotations

import os
import shlex

from windrow.common.failure_kinds import FailureKind, cause_line
from windrow.embedded import state_folder
from windrow.errors import JobFailed
from windrow.sdk.job import Job, JobState, Step

NO_LOGS = frozenset(("node_fault", "node_lost", "node_killer", "preempted", "cancelled", "load_failed"))
"""Causes that leave nothing that the script printed."""


def need_good_end(job: Job, options: str = "", again: str = "") -> None:
    """Raise JobFailed if the job has failed or was cancelled. `options`, `again`: as of `job_failed`."""
    if job.state in (JobState.FAILED, JobState.CANCELLED):
        raise job_failed(job, options, again)


def job_failed(job: Job, options: str = "", again: str = "") -> JobFailed:
    """The error for a job that has failed or was cancelled, or is paused.

    `options`: what commands about the job need, such as ` --state folder`. `again`: how to run the rest, if not by
    `windrow job retry`.
    """
    if not job.state.ended:
        return JobFailed(f"Job {job.job_id} is {job.state.value}: {job.message or 'see its logs'}", job=job)
    again = again or f"windrow job retry {job.job_id}{options}"
    if job.state is JobState.CANCELLED:
        why = f": {job.message}" if job.message else "."
        return JobFailed(f"Job {job.job_id} was cancelled{why}\nTo run the rest: {again}", job=job)
    why = job.message or next((f"step {step.name}: {step.message}" for step in job.steps if step.message), "")
    lines = [f"Job {job.job_id} failed: {why or 'the master gave no reason.'}"]
    cause = main_cause(job)
    look = f"windrow job explain {job.job_id}{options}"
    if cause is not None:
        lines.append(f"{cause_line(*cause)}: {cause[1].message}")
        if cause[1].cause not in NO_LOGS:
            look = f"windrow job logs {job.job_id} --failed{options}"
    lines += [f"To see more: {look}", f"When the cause is fixed, run the rest with: {again}"]
    return JobFailed("\n".join(lines), job=job)


def how_to_continue(job_id: str, options: str = "") -> str:
    """How to continue a job that no process runs, whatever started it. `options`: as of `job_failed`."""
    return (
        "Continue it by what started it (the same command, or the same call in Python), or by: "
        f"windrow job retry {job_id}{options}"
    )


def stopped_waiting(job_id: str, *, own: bool) -> str:
    """What an interrupt of `Client.wait` leaves. `own`: the client runs the job itself."""
    goes_on = "It goes on until the client is closed, which keeps what is done" if own else "It goes on"
    return (
        f"Waiting for job {job_id} was interrupted, not the job. {goes_on}. To wait again: "
        f"client.wait({job_id!r}). To end it: client.cancel({job_id!r})."
    )


def main_cause(job: Job) -> tuple[Step, FailureKind] | None:
    """What cost most, of what failed for good; that of failed steps first. None if nothing did."""
    found = [(step, kind) for step in job.steps for kind in step.failure_kinds if kind.is_permanent]
    # Kinds come in order already; sorting is stable.
    return min(found, key=lambda pair: pair[0].state != "failed", default=None)


def state_option(state: str | os.PathLike[str]) -> str:
    """The option with which commands find a state folder from the working folder, after a space; empty if they find it
    by themselves.
    """
    from windrow.errors import WindrowError
    from windrow.rpc.contexts import find_access

    try:
        elsewhere = find_access(None, os.environ) is not None
    except WindrowError:
        elsewhere = True  # a context that cannot be read concerns no run on this machine
    # Links are kept, as users write them.
    default, found = map(os.path.abspath, (state_folder.default(), state))
    return "" if found == default and not elsewhere else f" --state {shlex.quote(found)}"
