"""Runs of v1 pipelines."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from windrow.errors import JobFailed, NotFound

if TYPE_CHECKING:
    from windrow.job import Job, Step
    from windrow.ml.v1.workspace import Workspace

_STATUS = {
    "queued": "NotStarted",
    "running": "Running",
    "paused": "Paused",
    "cancelling": "CancelRequested",
    "completed": "Finished",
    "completed_with_failures": "Finished",
    "failed": "Failed",
    "cancelled": "Canceled",
}


class PipelineRun:
    """A submitted pipeline."""

    def __init__(self, workspace: Workspace, run_id: str) -> None:
        """`run_id`: of the job."""
        self.workspace = workspace
        self.id = run_id

    def get_status(self) -> str:
        """NotStarted, Running, Finished, Failed, Canceled, …"""
        return _STATUS.get(self._job().state.value, "Unknown")

    status = property(get_status)

    def wait_for_completion(self, show_output: bool = True, raise_on_error: bool = True, **more: Any) -> str:
        """Follow the run to its end; return its status. Raises JobFailed where it does not end well."""
        try:
            if show_output:
                self.workspace.ml_client.jobs.stream(self.id)
            else:
                job = self.workspace.ml_client.windrow.wait(self.id)
                if not job.state.succeeded:
                    raise JobFailed(f"Job {self.id} is {job.state.value}: {job.message or 'see its logs'}")
        except JobFailed:
            if raise_on_error:
                raise
        return self.get_status()

    def get_steps(self) -> list[StepRun]:
        """The steps."""
        return [StepRun(self, step.name) for step in self._job().steps]

    def find_step_run(self, name: str) -> list[StepRun]:
        """The step of that name, as a list."""
        return [step for step in self.get_steps() if step.name == name]

    def cancel(self) -> None:
        """Ask for its end."""
        self.workspace.ml_client.jobs.cancel(self.id)

    def get_pipeline_output(self, pipeline_output_name: str) -> StepOutputData:
        """An output by its name, of whichever step. Raises NotFound."""
        for step in self.get_steps():
            if any(out.name == pipeline_output_name for out in step.state().outputs):
                return step.get_output_data(pipeline_output_name)
        raise NotFound(f"Run {self.id} has no output {pipeline_output_name!r}.")

    def get_details(self) -> dict[str, Any]:
        """What is known of it."""
        return {"runId": self.id, "status": self.get_status(), **self._job().to_dict()}

    def get_portal_url(self) -> str:
        """There is none: `windrow job show` is where to look."""
        return ""

    def _job(self) -> Job:
        return self.workspace.ml_client.windrow.get(self.id)

    def __repr__(self) -> str:
        """Its id and state."""
        return f"PipelineRun(id={self.id!r}, status={self.get_status()!r})"


class StepRun:
    """A step of a run."""

    def __init__(self, run: PipelineRun, name: str) -> None:
        """`name`: of the step."""
        self.run = run
        self.name = name
        self.id = f"{run.id}/{name}"

    def state(self) -> Step:
        """As `windrow.job` has it."""
        return next(step for step in self.run._job().steps if step.name == self.name)

    def get_status(self) -> str:
        """NotStarted, Running, Finished, Failed, Canceled."""
        state = self.state().state
        return {"waiting": "NotStarted", "concatenating": "Running"}.get(state, _STATUS.get(state, "Unknown"))

    def wait_for_completion(self, show_output: bool = True, raise_on_error: bool = True, **more: Any) -> str:
        """Follow the whole run to its end."""
        self.run.wait_for_completion(show_output, raise_on_error)
        return self.get_status()

    def get_output_data(self, name: str) -> StepOutputData:
        """An output. Raises NotFound."""
        known = [out.name for out in self.state().outputs]
        if name not in known:
            raise NotFound(f"Step {self.name} has no output {name!r}. Its outputs: {', '.join(known) or 'none'}.")
        return StepOutputData(self, name)

    get_output = get_output_data


class StepOutputData:
    """An output of a step that has run."""

    def __init__(self, step: StepRun, name: str) -> None:
        """`name`: of the output."""
        self.step = step
        self.name = name
        self.path_on_datastore = f"azureml/{step.run.id}/{name}"
        """Where `download` puts it, below the folder that it is told."""

    def download(self, local_path: str, overwrite: bool | None = None, show_progress: bool | None = None) -> int:
        """Bring the output into `local_path`/`path_on_datastore`; return the number of files. Raises JobFailed."""
        client = self.step.run.workspace.ml_client.windrow
        target = os.path.join(local_path, os.path.dirname(self.path_on_datastore))
        names = self.step.run.workspace.ml_client.jobs._outputs(self.step.run.id, f"{self.step.name}.{self.name}")
        received = client.download(self.step.run.id, target, outputs=names)
        there = os.path.join(target, names[0])
        if os.path.isdir(there) and names[0] != self.name:
            os.replace(there, os.path.join(target, self.name))
        return len(received)

    def get_path_on_datastore(self) -> str:
        """`path_on_datastore`."""
        return self.path_on_datastore
