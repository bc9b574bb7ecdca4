"""A job that a master has, as notebooks look at it."""

from __future__ import annotations

import html
from typing import Any

from windrow.job import Job, JobState

STATUS = {
    JobState.QUEUED: "Queued",
    JobState.RUNNING: "Running",
    JobState.PAUSED: "Paused",
    JobState.CANCELLING: "CancelRequested",
    JobState.COMPLETED: "Completed",
    JobState.COMPLETED_WITH_FAILURES: "Completed",
    JobState.FAILED: "Failed",
    JobState.CANCELLED: "Canceled",
}
"""States by Azure's names; failures that the thresholds let pass do not make a job fail there either."""


class SubmittedJob:
    """A job at the moment when it was asked for. `windrow_job` is all that is known of it."""

    def __init__(self, job: Job) -> None:
        """`job`: as `windrow.Client` gives it."""
        self.windrow_job = job
        self.type = "pipeline"
        self.studio_url = ""
        """There is none: `windrow job show` is where to look."""
        self.services: dict[str, Any] = {}

    @property
    def name(self) -> str:
        """Its id."""
        return self.windrow_job.job_id

    @property
    def id(self) -> str:
        """Its id."""
        return self.windrow_job.job_id

    @property
    def display_name(self) -> str:
        """For people."""
        return self.windrow_job.display_name

    @property
    def experiment_name(self) -> str:
        """Its group."""
        return self.windrow_job.experiment_name

    @property
    def status(self) -> str:
        """By Azure's names."""
        return STATUS.get(self.windrow_job.state, "NotResponding")

    @property
    def error(self) -> str:
        """Why it failed, or stands still."""
        return self.windrow_job.message

    @property
    def outputs(self) -> dict[str, str]:
        """Where the outputs of its steps are on the master's machine, as `step.output`."""
        return {f"{step.name}.{out.name}": out.path for step in self.windrow_job.steps for out in step.outputs}

    def __repr__(self) -> str:
        """Its name and state."""
        return f"SubmittedJob(name={self.name!r}, status={self.status!r})"

    def _repr_html_(self) -> str:
        """For a notebook's cell."""
        rows = (self.experiment_name, self.name, self.status)
        cells = "".join(f"<td>{html.escape(value)}</td>" for value in rows)
        return f"<table><tr><th>Experiment</th><th>Name</th><th>Status</th></tr><tr>{cells}</tr></table>"


class SubmittedStep:
    """A step of a submitted job."""

    def __init__(self, job: Job, index: int) -> None:
        """`index`: of the step."""
        step = job.steps[index]
        self.windrow_step = step
        self.name = f"{job.job_id}/{step.name}"
        self.display_name = step.name
        self.status = {"waiting": "NotStarted", "concatenating": "Finalizing", "cancelled": "Canceled"}.get(
            step.state, step.state.title()
        )
        self.outputs = {out.name: out.path for out in step.outputs}

    def __repr__(self) -> str:
        """Its name and state."""
        return f"SubmittedStep(name={self.name!r}, status={self.status!r})"
