"""What the shell knows of jobs that have not ended: their documents, and where their files are."""

from __future__ import annotations

from pathlib import Path

from windrow.spec.effective.job import EffectiveJob, EffectiveStep, with_values

from windrow_master.core.admission import planner_place
from windrow_master.core.core import Core
from windrow_master.core.ids import JobKey, NodeId
from windrow_master.core.plans import RESUMES_AT, must_wait
from windrow_master.core.state import Job, Step
from windrow_master.core.states import ENDED_JOBS
from windrow_master.datastores import Datastores
from windrow_master.files.state_files import StateFiles, StepFiles
from windrow_master.roots import Roots
from windrow_master.shell.preparation import resolved
from windrow_master.shell.project_turns import Place
from windrow_master.step_paths import StepPaths


class OpenJobs:
    """Parses the document of each open job once, and names its places."""

    def __init__(self, core: Core, files: StateFiles, places: Datastores, readable: Roots | None) -> None:
        """`places`: resolves addresses of datastores. `readable`: the roots that planners may read below; if
        None, they may read anything, because the master and the agent belong to one user."""
        self._core = core
        self._files = files
        self.places = places
        self.readable = readable
        self._documents: dict[JobKey, EffectiveJob] = {}

    def job_of(self, step: Step) -> Job:
        return self._core.state.jobs[step.job_key]

    def document(self, step: Step) -> EffectiveJob:
        """The parsed document of the job that a step belongs to."""
        document = self._documents.get(step.job_key)
        if document is None:
            document = self._documents[step.job_key] = EffectiveJob.from_json(self.job_of(step).document)
        return document

    def effective(self, step: Step) -> EffectiveStep:
        """The effective step with its datastore addresses resolved, and, once it has begun, with the values that it
        gets from other steps. Raises UnknownDatastore."""
        # Unknown datastores were reported to the submitter. Since then the master may have lost one.
        effective = resolved(self.document(step).steps[step.ordinal], self.places, lenient=self.readable is None)
        return with_values(effective, StepPaths.from_json(step.paths).inputs)

    def planner_place(self, step: Step) -> Place:
        """Where a step stands among those that wait for a planner."""
        return Place(*planner_place(self._core.state, self.job_of(step)))

    def has_room(self, step: Step, paused: bool) -> bool:
        """Whether the input of a step may be divided further now. `paused`: whether it waits already."""
        return not must_wait(self._core.state, step, RESUMES_AT if paused else 1.0)

    def files(self, step: Step) -> StepFiles:
        return self._files.step(self.job_of(step).job_id, step.step_id)

    def logs(self, step: Step) -> Path:
        """The folder `logs/<step>` of the job."""
        return self._files.logs(self.job_of(step).job_id) / step.settings.name

    def is_code_for(self, node_id: str, digest: str) -> bool:
        """Whether an artifact is the code of a step that a node was offered, and that has not ended."""
        state = self._core.state
        node = state.nodes.get(NodeId(node_id))
        steps = [] if node is None else [state.steps[step_id] for step_id in node.told_steps if step_id in state.steps]
        return any(
            self.document(step).steps[step.ordinal].code_digest == digest
            for step in steps
            if self.job_of(step).state not in ENDED_JOBS
        )

    def forget(self, job_key: JobKey) -> None:
        """Drop the document of a job that has ended: a retry may have another one."""
        self._documents.pop(job_key, None)
