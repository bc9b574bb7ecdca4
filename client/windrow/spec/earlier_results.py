"""Taking over the results of an earlier job (`--since`, `resume_from`), of all items that have not changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windrow.errors import UsageError
from windrow.spec.effective.job import DataInput, EffectiveJob, EffectiveStep

NO_LAST = (
    "--since last: no job of this job file has ended with a result yet (of a script: none into this output), so all of "
    "it runs."
)
LAST = "last"
"""The newest job of the same job file that has ended, and has a result to take over."""


def refuse_nothing_divided(job: EffectiveJob, wanted: str) -> None:
    """Raises UsageError if no step could take over results."""
    if not any(map(_reads_data, job.steps)):
        raise UsageError(
            f"--since {wanted}: no step of {job.job_file} divides data that exists before the job starts, so there are "
            "no results to take over. Run it without --since."
        )


def with_results_of(job: EffectiveJob, earlier: str) -> EffectiveJob:
    """The job, set to take over the results of an earlier one. Steps that divide the output of another step stay as
    they are: that output is made again.
    """
    return job._replace(
        steps=tuple(step._replace(resume_from=earlier) if _reads_data(step) else step for step in job.steps)
    )


def as_before(job: EffectiveJob, document: Mapping[str, Any]) -> EffectiveJob:
    """The job of a repaired job file, set to take over the same results as the job with this `document`: no file holds
    what `--since` said. Steps whose `resume_from` is in the file keep that.
    """
    before = {step["name"]: step.get("resume_from") for step in document["steps"]}
    return job._replace(
        steps=tuple(
            step._replace(resume_from=step.resume_from or before.get(step.name)) if _reads_data(step) else step
            for step in job.steps
        )
    )


def _reads_data(step: EffectiveStep) -> bool:
    return bool(step.input_data) and all(isinstance(step.inputs[name], DataInput) for name in step.input_data)
