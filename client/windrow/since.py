"""`--since`: a job that takes over the results of an earlier one, of all items that have not changed since."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from windrow.errors import UsageError
from windrow.job_files import JobCalls, with_job_files
from windrow.spec.effective.job import DataInput, EffectiveStep

if TYPE_CHECKING:
    from windrow.spec import EffectiveJob

NO_LAST = "--since last: no job of this job file has ended with a result yet, so all of it would run."
LAST = "last"
"""The newest job of the same job file that has ended, and has a result to take over."""


def taking_over(client: JobCalls, job: EffectiveJob, wanted: str) -> EffectiveJob:
    """The job as it takes over results; as it is, where `wanted` is `last` and there is no earlier one.

    Raises NotFound, UsageError.
    """
    refuse_nothing_divided(job, wanted)
    earlier = last_of(client, job.job_file) if wanted == LAST else client.get(wanted).job_id
    return job if earlier is None else with_results_of(job, earlier)


def refuse_nothing_divided(job: EffectiveJob, wanted: str) -> None:
    """Raises UsageError where no step could take over results."""
    if not any(map(_reads_data, job.steps)):
        raise UsageError(
            f"--since {wanted}: no step of {job.job_file} divides data that lies there before the job, so there are no "
            "results to take over. Run it without --since."
        )


def with_results_of(job: EffectiveJob, earlier: str) -> EffectiveJob:
    """The job as it takes over the results of that earlier one.

    Steps that divide what another step of the job makes are left as they are: that is made anew.
    """
    return job._replace(
        steps=tuple(step._replace(resume_from=earlier) if _reads_data(step) else step for step in job.steps)
    )


def as_before(job: EffectiveJob, document: Mapping[str, Any]) -> EffectiveJob:
    """The repaired job file of a job with that document: it takes over what the job does, where it names no earlier
    job itself. `--since` stands in no file."""
    before = {step["name"]: step.get("resume_from") for step in document["steps"]}
    return job._replace(
        steps=tuple(
            step._replace(resume_from=step.resume_from or before.get(step.name)) if _reads_data(step) else step
            for step in job.steps
        )
    )


def last_of(client: JobCalls, job_file: str) -> str | None:
    """What `last` means; None: there is none."""
    # One that failed before it had any result would hide those of the job before it.
    ended = (job for job in client.list_jobs() if job.state.ended and job.parallel.mini_batches.succeeded)
    return next((job.job_id for job, written in with_job_files(client, ended) if written == job_file), None)


def _reads_data(step: EffectiveStep) -> bool:
    return bool(step.input_data) and all(isinstance(step.inputs[name], DataInput) for name in step.input_data)
