"""Jobs that have not ended, as the shell has to know them: their documents, and where things of theirs are."""

from __future__ import annotations

from pathlib import Path

from windrow.spec.effective.job import EffectiveJob, EffectiveStep

from windrow_master.core.core import Core
from windrow_master.core.ids import JobKey
from windrow_master.core.state import Job, Step
from windrow_master.datastores import Datastores
from windrow_master.files.state_files import StateFiles, StepFiles
from windrow_master.roots import Roots
from windrow_master.shell.preparation import resolved


class OpenJobs:
    """Reads the document of each job once."""

    def __init__(self, core: Core, files: StateFiles, places: Datastores, readable: Roots | None) -> None:
        """`places`: what addresses of datastores mean; `readable`: where everything must lie that planners read; None:
        anywhere, since master and agent are one user's.
        """
        self._core = core
        self._files = files
        self.places = places
        self.readable = readable
        self._documents: dict[JobKey, EffectiveJob] = {}

    def job_of(self, step: Step) -> Job:
        """The job of a step."""
        return self._core.state.jobs[step.job_key]

    def document(self, step: Step) -> EffectiveJob:
        """The document of a step's job."""
        document = self._documents.get(step.job_key)
        if document is None:
            document = self._documents[step.job_key] = EffectiveJob.from_json(self.job_of(step).document)
        return document

    def effective(self, step: Step) -> EffectiveStep:
        """A step without addresses of datastores. Raises UnknownDatastore."""
        # Whoever submitted it heard of datastores that are not there; since then the master may have lost one.
        return resolved(self.document(step).steps[step.ordinal], self.places, lenient=self.readable is None)

    def files(self, step: Step) -> StepFiles:
        """The step's own files."""
        return self._files.step(self.job_of(step).job_id, step.step_id)

    def logs(self, step: Step) -> Path:
        """`logs/<step>` of its job."""
        return self._files.logs(self.job_of(step).job_id) / step.settings.name

    def forget(self, job_key: JobKey) -> None:
        """A job has ended. When it is retried, its document may be another."""
        self._documents.pop(job_key, None)
