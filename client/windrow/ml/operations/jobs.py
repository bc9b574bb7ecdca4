"""`MLClient.jobs`: submit jobs, follow them, fetch their outputs and logs."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from windrow.errors import UsageError
from windrow.ml.exceptions import JobWarning
from windrow.ml.jobs.pipeline_job import PipelineJob
from windrow.ml.jobs.step import Step
from windrow.ml.operations.logs import fetch_log
from windrow.ml.operations.submitted import SubmittedJob, SubmittedStep, status_of
from windrow.ml.operations.validation import Validation
from windrow.sdk.ending import job_failed
from windrow.transfer.fetch_places import shown_places

if TYPE_CHECKING:
    from windrow.ml.connection import MasterConnection
    from windrow.sdk.job import Job
    from windrow.spec import LoadedJob
    from windrow.spec.naming.assets import OpenLookup
    from windrow.spec.reading.context import ListPools


class Loadable(Protocol):
    """A job that can be submitted: a `PipelineJob`, or a pipeline of v1."""

    def load(
        self,
        *,
        embedded: bool,
        datastores: Collection[str],
        assets: OpenLookup | None,
        pools: ListPools | None,
    ) -> LoadedJob:
        """Read and check the job. Raises windrow.spec.JobFileError."""


class JobOperations:
    """`MLClient.jobs`."""

    def __init__(self, connection: MasterConnection) -> None:
        """`connection`: to the master."""
        self._connection = connection

    def create_or_update(
        self,
        job: Any,
        *,
        experiment_name: str | None = None,
        description: str | None = None,
        tags: dict[str, str] | None = None,
        compute: str | None = None,
        skip_validation: bool = False,
        **more: Any,
    ) -> SubmittedJob:
        """Submit a pipeline job (from a pipeline function or `load_job`), or a single step; return the accepted job.

        Warnings about the job are Python warnings (JobWarning). Raises windrow.spec.JobFileError with all problems of
        the job, RequestRefused.
        """
        job = _pipeline_of(job, "create_or_update")
        given = {"experiment_name": experiment_name, "description": description, "tags": tags, "compute": compute}
        for key, value in given.items():
            if value is not None:
                job[key] = value
        return SubmittedJob(self.submit(job), self._connection)

    def validate(self, job: Any, *, raise_on_failure: bool = False, **more: Any) -> Validation:
        """Check a job without submitting it; the result holds all problems.

        With `raise_on_failure`, raises windrow.spec.JobFileError with all of them.
        """
        from windrow.spec import JobFileError

        try:
            return Validation(self.load(_pipeline_of(job, "validate")))
        except JobFileError as error:
            if raise_on_failure:
                raise
            return Validation(None, error.problems)

    def load(self, job: Loadable) -> LoadedJob:
        """Read and check a job as for its submission. Raises windrow.spec.JobFileError."""
        return job.load(
            embedded=self._connection.would_be_embedded,
            datastores=self._connection.known_datastores(),
            assets=self._connection.asset_lookup,
            pools=self._connection.pools,
        )

    def submit(self, job: Loadable) -> Job:
        """The same as `create_or_update`, but returns a `windrow.Job`."""
        client = self._connection.client()
        loaded = self.load(job)
        for warning in loaded.warnings:
            warnings.warn(str(warning), JobWarning, stacklevel=3)
        session = self._connection.session
        if session is not None and session.interpreter:
            from windrow.embedded.job_interpreter import check_job_interpreter

            check_job_interpreter(session.interpreter, loaded, builds=session.builds_environments)
        submitted = client.submit(loaded)
        client.warnings.skip(submitted.job_id, loaded.warnings)
        return submitted

    def get(self, name: str) -> SubmittedJob:
        """Return a job as it is now. Raises windrow.errors.NotFound."""
        return SubmittedJob(self._connection.client().get(name), self._connection)

    def list(
        self, *, max_results: int | None = None, parent_job_name: str | None = None, **more: Any
    ) -> Iterator[SubmittedJob | SubmittedStep]:
        """All jobs, newest first; with `parent_job_name`, the steps of that job."""
        client = self._connection.client()
        if parent_job_name is not None:
            job = client.get(parent_job_name)
            yield from (SubmittedStep(job, index, self._connection) for index in range(len(job.steps)))
            return
        for number, job in enumerate(client.list_jobs()):
            if max_results is not None and number >= max_results:
                return
            yield SubmittedJob(job, self._connection)

    def stream(self, name: str, *, timeout_s: float | None = None) -> None:
        """Follow a job to its end, with a line for each change. What it warns of are Python warnings (JobWarning).
        Raises JobFailed if it does not end well, and DeadlinePassed.
        """
        client = self._connection.client()
        print(f"RunId: {name}")
        if waits := client.why_no_work(name):
            print(waits)
        shown = ""
        job = None
        for job in client.progress(name, timeout_s=timeout_s):
            line = _progress(job)
            if line != shown:
                shown = line
                print(line)
                sys.stdout.flush()
        job = client.get(name)
        print(f"\nExecution Summary\n=================\nRunId: {name}\nStatus: {status_of(job)}")
        for step in job.steps:
            for out in step.outputs:
                if out.ready or job.state.succeeded:
                    print(f"Output {step.name}.{out.name}: {out.path}")
        for path in shown_places(client.document(name), name) if job.state.succeeded else ():
            print(f"{path} is filled by: windrow job download {name}")
        sys.stdout.flush()
        client.warnings.tell(job)
        if not job.state.succeeded:
            raise job_failed(job, self._connection.place_options())

    def cancel(self, name: str) -> SubmittedJob:
        """Cancel a job. Returns at once; the job ends soon after."""
        return SubmittedJob(self._connection.client().cancel(name), self._connection)

    def begin_cancel(self, name: str, **more: Any) -> Cancelling:
        """The same as `cancel`; `result()` waits for the job to end."""
        self.cancel(name)
        return Cancelling(self._connection, name)

    def download(
        self,
        name: str,
        *,
        download_path: Any = ".",
        output_name: str | None = None,
        all: bool = False,
    ) -> None:
        """Download outputs into `named-outputs` and logs into `artifacts` below a folder.

        `output_name`: that output; `all`: outputs and logs; else the logs. Raises JobFailed, NotFound.
        """
        client, folder = self._connection.client(), Path(download_path)
        if output_name is not None:
            client.download(name, folder / "named-outputs", outputs=self._outputs(name, output_name))
            return
        if all:
            client.download(name, folder / "named-outputs")
        for file in client.logs(name):
            fetch_log(client, name, file.path, folder / "artifacts" / "logs" / file.path)

    def archive(self, name: str) -> None:
        """Do nothing, and warn: Windrow has no archive, so the job stays in the list."""
        self.get(name)
        warnings.warn(f"Job {name} stays in the list: Windrow has no archive of jobs.", stacklevel=2)

    def restore(self, name: str) -> None:
        """Do nothing: the job never left the list."""
        self.get(name)

    def show_services(self, name: str, node_index: int = 0) -> dict[str, Any]:
        """Return an empty dictionary: scripts offer no services."""
        return {}

    def _outputs(self, name: str, output: str) -> Sequence[str]:
        """The names to download for an output: a pipeline's output, `step.output`, or a step's output by itself."""
        from windrow.sdk.results import output_names

        client = self._connection.client()
        known = output_names(client.get(name), client.document(name))
        fitting = [candidate for candidate in known if candidate.rpartition(".")[2] == output]
        return [output] if output in known or len(fitting) != 1 else fitting


class Cancelling:
    """A job that is being cancelled."""

    def __init__(self, connection: MasterConnection, name: str) -> None:
        """`name`: the name of the job."""
        self._connection = connection
        self._name = name

    def result(self, timeout: float | None = None) -> SubmittedJob:
        """Wait for the job to end, and return it. Raises DeadlinePassed after `timeout` seconds."""
        return SubmittedJob(self._connection.client().end_of(self._name, timeout_s=timeout), self._connection)

    def wait(self, timeout: float | None = None) -> None:
        """Wait as `result` does."""
        self.result(timeout)

    def done(self) -> bool:
        """Whether the job has ended."""
        return self._connection.client().get(self._name).state.ended

    def status(self) -> str:
        """The status of the job."""
        return status_of(self._connection.client().get(self._name))


def _pipeline_of(job: Any, method: str) -> PipelineJob:
    """The pipeline of a job; a single step becomes a pipeline of one step."""
    if isinstance(job, Step):
        return PipelineJob(jobs={job.default_key: job}, display_name=job.get("display_name") or job.default_key)
    if not isinstance(job, PipelineJob):
        raise UsageError(
            f"jobs.{method} takes a pipeline job or a step, not {type(job).__name__}: call the function under "
            "@pipeline, or load_job."
        )
    return job


def _progress(job: Job) -> str:
    batches = job.mini_batches
    done, total = batches.ran, batches.total - batches.taken_over
    steps = ", ".join(f"{step.name} {step.state}" for step in job.steps)
    failed = f", {job.items.failed:,} items failed" if job.items.failed else ""
    taken_over = f", {batches.taken_over:,} more taken over" if batches.taken_over else ""
    return f"{status_of(job)}: processed {done:,} of {total:,} mini batches{taken_over}{failed} ({steps})"
