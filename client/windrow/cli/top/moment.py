"""What the screen shows at one moment: jobs with their rates, nodes, and what each worker does. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from windrow.sdk.figures import Figures, age_s
from windrow.sdk.job import Job
from windrow.sdk.node import Node, Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import datetime

UNENDED = ("queued", "running", "paused", "cancelling")


class JobFigures(NamedTuple):
    """The age of a job since it was submitted, as in `windrow job list`, and its pace; no pace if it has ended."""

    age_s: float | None
    items_per_s: float | None
    remaining_s: float | None


class Served(NamedTuple):
    """A worker with its node, and the job and step that it serves; "" where that is not shown, or has ended."""

    node: Node
    worker: Worker
    job_id: str
    step: str


class Moment(NamedTuple):
    """Everything at one moment. `jobs`: those that have not ended come first."""

    title: str
    jobs: Sequence[Job]
    figures: Mapping[str, JobFigures]
    nodes: Sequence[Node]
    workers: Sequence[Served]
    trouble: str = ""
    """Why what is shown is old; "" if it is not."""
    runs_nothing: bool = False
    """No process runs the jobs that have not ended, and their nodes are gone."""


class Watcher:
    """Turns states of jobs and nodes into moments; remembers the paces of jobs."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._paces: dict[str, Figures] = {}

    def moment(self, jobs: Sequence[Job], nodes: Sequence[Node], now_s: float, wall_now: datetime) -> Moment:
        """Take in the state at `now_s` (monotonic). `jobs`: newest first."""
        shown = [job for job in jobs if job.state in UNENDED] + [job for job in jobs if job.state not in UNENDED]
        figures = {}
        for job in shown:
            created = job.create_time
            age = None if created is None else max(0.0, (wall_now - created).total_seconds())
            figures[job.job_id] = JobFigures(age, None, None)
            if job.state in UNENDED:
                pace = self._paces.get(job.job_id)
                if pace is None:
                    pace = self._paces[job.job_id] = Figures()
                    if running_s := age_s(job, wall_now):
                        pace.begin(running_s, now_s)
                pace.add(job, now_s)
                figures[job.job_id] = JobFigures(age, pace.items_per_s(), pace.remaining_s(job))
        steps = {step.step_id: (job.job_id, step.name) for job in shown for step in job.steps}
        workers = [
            Served(node, worker, *steps.get(worker.step_id, ("", "")))
            for node in nodes
            for worker in sorted(node.processes, key=lambda one: (one.step_id, one.process_number))
        ]
        return Moment(self._title, shown, figures, nodes, workers)
