"""Submitted jobs and their steps, in the form that notebooks expect."""

from __future__ import annotations

import html
from collections.abc import Mapping
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from windrow.ml.assets.data import Input, Output
from windrow.ml.jobs.pipeline_job import Job as JobEntity
from windrow.ml.jobs.ports import Ports
from windrow.ml.jobs.settings import JobService, PipelineJobSettings
from windrow.sdk.job import Job, JobState

if TYPE_CHECKING:
    from windrow.ml.connection import MasterConnection
    from windrow.sdk.job import Step

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
"""States by Azure ML's names; a job whose thresholds allow its failures is also completed there."""


def status_of(job: Job) -> str:
    """The state of a job by Azure ML's names; `NotResponding` for a state that only a newer master knows."""
    return STATUS.get(job.state, "NotResponding")


class CreationContext(NamedTuple):
    """When a job was submitted. Windrow does not record who submitted it, and jobs are never changed, so all else is
    None.
    """

    created_at: datetime | None
    created_by: None = None
    created_by_type: None = None
    last_modified_at: None = None
    last_modified_by: None = None
    last_modified_by_type: None = None


class _Submitted(JobEntity):
    """What submitted jobs and their steps have in common. Facts that the job does not hold are fetched once, when first
    read.
    """

    def __init__(self, job: Job, connection: MasterConnection) -> None:
        self._job = job
        self._connection = connection

    @property
    def creation_context(self) -> CreationContext:
        """When the job was submitted: `creation_context.created_at`."""
        return CreationContext(self._job.create_time)

    @property
    def properties(self) -> dict[str, str]:
        """Empty: Windrow does not keep properties, as the job's warnings say."""
        return {}

    @property
    def studio_url(self) -> str:
        """The command that shows the job: there is no web page."""
        return f"windrow job show {self._job.job_id}{self._connection.place_options()}"

    @property
    def services(self) -> dict[str, JobService]:
        """`Studio`, with the command that shows the job as its endpoint. Scripts offer no services."""
        return {"Studio": JobService(type="Studio", endpoint=self.studio_url)}

    @cached_property
    def _document(self) -> Mapping[str, Any]:
        """The effective job. Raises NotFound, MasterUnreachable."""
        return self._connection.client().document(self._job.job_id)

    def _entry(self, step: str) -> Mapping[str, Any]:
        """The entry of a step in the effective job."""
        return next((entry for entry in self._document["steps"] if entry["name"] == step), {})

    def _outputs_of(self, step: Step) -> dict[str, Output]:
        """The step's outputs. If the job file does not name a place, the master chooses one when the step begins."""
        places = {out.name: out.path for out in step.outputs}
        declared = self._entry(step.name).get("outputs", {})
        return {name: _output(entry, places.get(name)) for name, entry in declared.items()}


class SubmittedJob(_Submitted):
    """A submitted job, as it was when it was fetched. `windrow_job` has everything that is known about it."""

    type = "pipeline"

    def __init__(self, job: Job, connection: MasterConnection) -> None:
        """`job`: as `windrow.Client` gives it; `connection`: to its master."""
        super().__init__(job, connection)
        self.windrow_job = job

    @property
    def name(self) -> str:
        """The job's id."""
        return self.windrow_job.job_id

    @property
    def id(self) -> str:
        """The job's id."""
        return self.windrow_job.job_id

    @property
    def display_name(self) -> str:
        """The name for people."""
        return self.windrow_job.display_name

    @property
    def experiment_name(self) -> str:
        """The experiment: the group that the job belongs to."""
        return self.windrow_job.experiment_name

    @property
    def status(self) -> str:
        """The state, by Azure ML's names."""
        return status_of(self.windrow_job)

    @property
    def error(self) -> str:
        """Why the job failed, or why it makes no progress."""
        return self.windrow_job.message

    @property
    def description(self) -> str:
        """The description in the job file, else empty."""
        return str(self._document["description"])

    @property
    def tags(self) -> dict[str, str]:
        """The tags by name."""
        return dict(self._document["tags"])

    @property
    def settings(self) -> PipelineJobSettings:
        """`continue_on_step_failure`, and `default_compute` if all steps have the same."""
        carries_on = self._document.get("continue_on_step_failure", False)
        return PipelineJobSettings(default_compute=self.compute, continue_on_step_failure=carries_on)

    @property
    def compute(self) -> str | None:
        """The pool of all steps; None if they have none or several: see each step's `compute`."""
        pools = {step.get("compute", "") for step in self._document["steps"]}
        return str(pools.pop()) or None if len(pools) == 1 else None

    @property
    def inputs(self) -> Ports:
        """Empty: the master keeps the inputs of each step (`jobs[step].inputs`), with the pipeline's inputs
        filled in.
        """
        return _ports("input", f"job {self.name}", {})

    @property
    def outputs(self) -> Ports:
        """The outputs, by the names that `jobs.download` takes: the pipeline's own, otherwise `step.output`. Each has a
        `path` on the master's machine once its step has begun.
        """
        named = {(bound["step"], bound["output"]): name for name, bound in self._document["outputs"].items()}
        made = {
            named.get((step.name, name), f"{step.name}.{name}"): out
            for step in self.windrow_job.steps
            for name, out in self._outputs_of(step).items()
        }
        return _ports("output", f"job {self.name}", made)

    @property
    def jobs(self) -> dict[str, SubmittedStep]:
        """The steps by name."""
        return {
            step.name: SubmittedStep(self.windrow_job, index, self._connection, self._document)
            for index, step in enumerate(self.windrow_job.steps)
        }

    def __repr__(self) -> str:
        """Show name and state."""
        return f"SubmittedJob(name={self.name!r}, status={self.status!r})"

    def _repr_html_(self) -> str:
        """The job as HTML, for a notebook's cell."""
        rows = (self.experiment_name, self.name, self.status)
        cells = "".join(f"<td>{html.escape(value)}</td>" for value in rows)
        return f"<table><tr><th>Experiment</th><th>Name</th><th>Status</th></tr><tr>{cells}</tr></table>"


class SubmittedStep(_Submitted):
    """A step of a submitted job."""

    def __init__(
        self, job: Job, index: int, connection: MasterConnection, document: Mapping[str, Any] | None = None
    ) -> None:
        """`index`: the step's place in the job; `document`: the effective job, if it is known."""
        super().__init__(job, connection)
        if document is not None:
            self._document = document
        step = job.steps[index]
        self.windrow_step = step
        self.name = f"{job.job_id}/{step.name}"
        self.display_name = step.name
        self.type = "command" if step.is_command else "parallel"
        self.experiment_name = job.experiment_name
        self.error = step.message if step.state == "failed" else ""
        self.status = {"waiting": "NotStarted", "concatenating": "Finalizing", "cancelled": "Canceled"}.get(
            step.state, step.state.title()
        )

    @property
    def description(self) -> str:
        """Empty: descriptions of steps are not kept."""
        return ""

    @property
    def tags(self) -> dict[str, str]:
        """Empty: tags of steps are not kept, as the job's warnings say."""
        return {}

    @property
    def compute(self) -> str | None:
        """The pool that the step runs in, if it names one."""
        return self._entry(self.windrow_step.name).get("compute") or None

    @property
    def inputs(self) -> Ports:
        """The inputs by name: literals as the script gets them, data with a `path`."""
        entries = self._entry(self.windrow_step.name).get("inputs", {})
        return _ports("input", f"step {self.name}", {name: _input(entry) for name, entry in entries.items()})

    @property
    def outputs(self) -> Ports:
        """The outputs by name. Each has a `path` on the master's machine once the step has begun."""
        return _ports("output", f"step {self.name}", self._outputs_of(self.windrow_step))

    def __repr__(self) -> str:
        """Show name and state."""
        return f"SubmittedStep(name={self.name!r}, status={self.status!r})"


def _ports(what: str, owner: str, members: Mapping[str, Any]) -> Ports:
    def refuse(name: str, value: Any) -> NoReturn:
        raise AttributeError(
            f"{owner} was submitted: its {what} {name!r} can no longer be set. Set it in the pipeline job, and "
            "submit that one."
        )

    return Ports(what, owner, dict(members), make=refuse)


def _input(entry: Mapping[str, Any]) -> Any:
    if entry["kind"] == "literal":
        return entry["value"]
    if entry["kind"] == "output":
        path = f"${{{{parent.jobs.{entry['step']}.outputs.{entry['output']}}}}}"
    else:
        path = entry["path"]
    return Input(type=entry["type"], mode=entry["mode"], path=path)


def _output(entry: Mapping[str, Any], path: str | None) -> Output:
    return Output(
        type=entry["type"],
        mode=entry["mode"],
        path=path or entry.get("path"),
        name=entry.get("asset_name"),
        version=entry.get("asset_version"),
    )
