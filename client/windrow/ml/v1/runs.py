"""Runs of v1 pipelines."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from windrow.common.removal import remove_tree
from windrow.common.trees import walk
from windrow.errors import DeadlinePassed, JobFailed, NotFound, UsageError
from windrow.ml.v1.absent import Refusing
from windrow.ml.v1.run_files import LOGS, RunFiles
from windrow.ml.v1.steps import step_key
from windrow.sdk.ending import job_failed

if TYPE_CHECKING:
    from windrow.ml.client import MLClient
    from windrow.sdk.client import Client
    from windrow.sdk.job import Job, Step
    from windrow.sdk.metrics import Logged

OUTPUTS, ARTIFACTS = "outputs", "artifacts"
"""The folder that a command's script writes into, and the output that keeps what is in it."""
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


class RunWorkspace(Protocol):
    """What a run needs from its workspace; a `windrow.ml.v1.workspace.Workspace` provides it."""

    ml_client: MLClient


class PipelineRun(RunFiles, Refusing):
    """A submitted pipeline."""

    def __init__(self, experiment: Any, run_id: str) -> None:
        """`experiment`: the run's experiment, or the workspace; `run_id`: the id of the job."""
        self.workspace: RunWorkspace = getattr(experiment, "workspace", experiment)
        self.id = run_id
        self.pipeline: Any = None
        """The pipeline, if this notebook has submitted it."""

    @staticmethod
    def get_context(allow_offline: bool = True, **more: Any) -> NoReturn:
        """Raises UsageError: it is for scripts."""
        raise UsageError(
            "Run.get_context() is for the scripts of a step, which import it from azureml.core. A notebook has a run "
            "of its own after run = experiment.start_logging()."
        )

    @staticmethod
    def get(workspace: RunWorkspace, run_id: str) -> PipelineRun:
        """Return a run by its id. Raises NotFound."""
        run = PipelineRun(workspace, run_id)
        run._job()
        return run

    def get_status(self) -> str:
        """Return NotStarted, Running, Finished, Failed, Canceled, …"""
        return _STATUS.get(self._job().state.value, "Unknown")

    status = property(get_status)

    def wait_for_completion(
        self, show_output: bool = True, timeout_seconds: float | None = None, raise_on_error: bool = True
    ) -> str:
        """Follow the run to its end, or for `timeout_seconds`; return its status.

        Raises JobFailed if it does not end well.
        """
        try:
            if show_output:
                self.workspace.ml_client.jobs.stream(self.id, timeout_s=timeout_seconds)
            else:
                job = self.workspace.ml_client.windrow.wait(
                    self.id, timeout_s=timeout_seconds, check=False, progress=False
                )
                if not job.state.succeeded:
                    raise job_failed(job, self.workspace.ml_client.connection.place_options())
        except JobFailed:
            if raise_on_error:
                raise
        except DeadlinePassed:
            print(f"Run {self.id} has not ended after {timeout_seconds} seconds; it continues.")
        return self.get_status()

    def get_steps(self) -> list[StepRun]:
        """Return the steps."""
        return [StepRun(self, step.name) for step in self._job().steps]

    def get_children(self) -> Iterator[StepRun]:
        """Iterate over the steps."""
        yield from self.get_steps()

    def find_step_run(self, name: str) -> list[StepRun]:
        """Return a list with the step of that name. A second step named `prep` is called `prep_2`."""
        return [step for step in self.get_steps() if step.name in (name, step_key(name))]

    def cancel(self) -> None:
        """Cancel the run."""
        self.workspace.ml_client.jobs.cancel(self.id)

    def get_pipeline_output(self, pipeline_output_name: str) -> StepOutputData:
        """Return an output of any step, by name. Raises NotFound."""
        for step in self.get_steps():
            if any(out.name == pipeline_output_name for out in step.state().outputs):
                return step.get_output_data(pipeline_output_name)
        raise NotFound(f"Run {self.id} has no output {pipeline_output_name!r}.")

    def get_details(self) -> dict[str, Any]:
        """Return everything known about the run."""
        return {"runId": self.id, "status": self.get_status(), **self._job().to_dict()}

    def _submitted_tags(self) -> Mapping[str, str]:
        return self.workspace.ml_client.windrow.document(self.id).get("tags") or {}

    def _workspace(self) -> Any:
        return self.workspace

    def _fetched_output(self, path: str, folder: str) -> str | None:
        """Of the only step that has it."""
        steps = [step for step in self.get_steps() if step._has(path)]
        if len(steps) > 1:
            names = ", ".join(step.name for step in steps)
            raise NotFound(
                f"Several steps of run {self.id} have {path!r}: {names}. Register it from one: "
                "run.find_step_run(NAME)[0].register_model(...)."
            )
        return steps[0]._fetched(path, folder) if steps else None

    def publish_pipeline(self, name: str, description: str, version: str | None = None, **more: Any) -> Any:
        """Publish the pipeline of the run, as `Pipeline.publish` does. Raises UsageError for a run that another process
        has submitted.
        """
        if self.pipeline is None:
            raise UsageError(
                f"The pipeline of the run {self.id} is known to the notebook that submitted it. Make it again there, "
                "and call pipeline.publish(name=...)."
            )
        return self.pipeline.publish(name, description, version, **more)

    def _owner(self) -> tuple[Client, str, str]:
        return self.workspace.ml_client.windrow, self.id, ""

    def _is_own(self, one: Logged) -> bool:
        return one.of_job

    def get_portal_url(self) -> str:
        """Return an empty text, since there is no portal. `windrow job show` shows the run."""
        return ""

    def _job(self) -> Job:
        return self.workspace.ml_client.windrow.get(self.id)

    def __repr__(self) -> str:
        """Show id and state."""
        return f"PipelineRun(id={self.id!r}, status={self.get_status()!r})"


class StepRun(RunFiles):
    """A step of a run."""

    def __init__(self, run: PipelineRun, name: str) -> None:
        """`name`: the name of the step."""
        self.run = run
        self.name = name
        self.id = f"{run.id}/{name}"

    @property
    def parent(self) -> PipelineRun:
        """The run of the pipeline."""
        return self.run

    def get_details(self) -> dict[str, Any]:
        """Return everything known about the run."""
        state = self.state()
        (plain,) = (step for step in self.run._job().to_dict()["steps"] if step["name"] == state.name)
        return {"runId": self.id, "status": self.get_status(), **plain}

    def cancel(self) -> NoReturn:
        """Raises UsageError: a step cannot be cancelled alone."""
        raise UsageError(
            f"The step {self.name} cannot be cancelled alone: cancel the run, step_run.parent.cancel(); steps that "
            "have ended keep their outputs, and a later run takes over what allow_reuse=True lets it."
        )

    def _owner(self) -> tuple[Client, str, str]:
        client, job_id, _ = self.run._owner()
        return client, job_id, f"{self.name}/"

    def _is_own(self, one: Logged) -> bool:
        return one.step == self.name and not one.of_job

    def _workspace(self) -> Any:
        return self.run.workspace

    def _has(self, path: str) -> bool:
        """Whether scripts have uploaded a file or folder of this name, or an output has it as the beginning."""
        uploaded = (name for name in self._files() if not name.startswith(LOGS))
        return any(f"{name}/".startswith(f"{path}/") for name in uploaded) or self._output_of(path) is not None

    def _output_of(self, path: str) -> tuple[str, str] | None:
        """The output that a path is in, and the path below it."""
        first, _, rest = path.partition("/")
        known = {out.name for out in self.state().outputs}
        name = first if first in known else ARTIFACTS if first == OUTPUTS and ARTIFACTS in known else ""
        return (name, rest) if name else None

    def _fetched_output(self, path: str, folder: str) -> str | None:
        found = self._output_of(path)
        if found is None:
            return None
        data = self.get_output_data(found[0])
        data.download(folder)
        place = os.path.join(folder, data.path_on_datastore, found[1]).rstrip("/")
        return place if os.path.lexists(place) else None

    def __repr__(self) -> str:
        """Show the id."""
        return f"StepRun(id={self.id!r})"

    def state(self) -> Step:
        """Return the step as it is now, from `windrow.sdk.job`."""
        return next(step for step in self.run._job().steps if step.name == self.name)

    def get_status(self) -> str:
        """Return NotStarted, Running, Finished, Failed, Canceled or Unknown."""
        state = self.state().state
        return {"waiting": "NotStarted", "concatenating": "Running"}.get(state, _STATUS.get(state, "Unknown"))

    def wait_for_completion(
        self, show_output: bool = True, timeout_seconds: float | None = None, raise_on_error: bool = True
    ) -> str:
        """Follow the whole run to its end, or for `timeout_seconds`; return the status of the step."""
        self.run.wait_for_completion(show_output, timeout_seconds, raise_on_error)
        return self.get_status()

    def get_output_data(self, name: str) -> StepOutputData:
        """Return an output. Raises NotFound."""
        known = [out.name for out in self.state().outputs]
        if name not in known:
            raise NotFound(f"Step {self.name} has no output {name!r}. Its outputs: {', '.join(known) or 'none'}.")
        return StepOutputData(self, name)

    def get_output(self, name: str) -> StepRunOutput:
        """Return one of the outputs of `get_outputs`. Raises NotFound."""
        return StepRunOutput(self, self.get_output_data(name).name)

    def get_outputs(self) -> dict[str, StepRunOutput]:
        """Return the outputs by name."""
        return {out.name: StepRunOutput(self, out.name) for out in self.state().outputs}


class StepRunOutput:
    """An output of a step's run."""

    def __init__(self, step: StepRun, name: str) -> None:
        """`name`: the name of the output."""
        self.step_run = step
        self.name = name

    def get_port_data_reference(self) -> StepOutputData:
        """Return the output's data."""
        return StepOutputData(self.step_run, self.name)

    def download(self, local_path: str, overwrite: bool | None = None, show_progress: bool | None = None) -> int:
        """The same as `StepOutputData.download`."""
        return self.get_port_data_reference().download(local_path, overwrite, show_progress)

    @property
    def path_on_datastore(self) -> str:
        """The same as `StepOutputData.path_on_datastore`."""
        return self.get_port_data_reference().path_on_datastore


class StepOutputData:
    """An output of a step that has run."""

    def __init__(self, step: StepRun, name: str) -> None:
        """`name`: the name of the output."""
        self.step = step
        self.name = name
        self.path_on_datastore = f"azureml/{step.id}/{name}"
        """Where `download` puts the output, below its folder."""

    def download(self, local_path: str, overwrite: bool | None = None, show_progress: bool | None = None) -> int:
        """Download the output into `local_path`/`path_on_datastore`; return the number of files that were put there.

        `overwrite`: replace files that exist; by default they stay. Raises JobFailed, TransferFailed.
        """
        client = self.step.run.workspace.ml_client.windrow
        target = os.path.join(local_path, self.path_on_datastore)
        (name,) = self.step.run.workspace.ml_client.jobs._outputs(self.step.run.id, f"{self.step.name}.{self.name}")
        # Always the same folder, so that an interrupted download continues.
        received = os.path.join(os.path.dirname(target), f".{name}.partial")
        client.download(self.step.run.id, received, outputs=[name])
        count = _move_files(self._received(os.path.join(received, name)), target, overwrite=bool(overwrite))
        remove_tree(received)
        return count

    def _received(self, folder: str) -> str:
        """What was downloaded into a folder: the folder, or the one file that a script has written in place of it."""
        place = next(out.path for out in self.step.state().outputs if out.name == self.name)
        file = os.path.join(folder, os.path.basename(place))
        document = self.step.run.workspace.ml_client.windrow.document(self.step.run.id)
        (entry,) = (step for step in document["steps"] if step["name"] == self.step.name)
        is_file = not entry["outputs"][self.name].get("make_folder", True) and os.path.isfile(file)
        return file if is_file and os.listdir(folder) == [os.path.basename(file)] else folder

    def get_path_on_datastore(self) -> str:
        """Return `path_on_datastore`."""
        return self.path_on_datastore


def _move_files(source: str, target: str, *, overwrite: bool) -> int:
    """Move all files below a folder to the same places below another one, or one file to a place; return how many were
    moved.
    """
    if os.path.isfile(source):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if os.path.lexists(target) and not overwrite:
            return 0
        os.replace(source, target)
        return 1
    count = 0
    for folder, _, names in walk(source):
        there = os.path.normpath(os.path.join(target, os.path.relpath(folder, source)))
        os.makedirs(there, exist_ok=True)
        for name in names:
            place = os.path.join(there, name)
            if overwrite or not os.path.lexists(place):
                os.replace(os.path.join(folder, name), place)
                count += 1
    return count


class RunDetails:
    """Prints the states of a run."""

    def __init__(self, run_instance: PipelineRun) -> None:
        """`run_instance`: the run of a pipeline."""
        self._run = run_instance

    def show(self, *arguments: object, **more: object) -> None:
        """Print the states of the run and of its steps, as they are now."""
        print(f"{self._run.id}: {self._run.get_status()}")
        for step in self._run.get_steps():
            print(f"  {step.name}: {step.get_status()}")
