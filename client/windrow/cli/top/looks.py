"""Asks a master for all that `windrow top` shows, at one moment."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from windrow.sdk.figures import Figures
from windrow.sdk.job import Job, StepReason
from windrow.sdk.node import Node

if TYPE_CHECKING:
    from windrow.sdk.client import Client

JOBS_MAX = 200
EXPLAINED_MAX = 10
"""At most so many jobs at work are asked what they wait for, the oldest first."""


class ShownJob(NamedTuple):
    """A job, with what the master's messages do not say of it."""

    job: Job
    elapsed_s: float
    left_s: float | None
    """None if that is not known."""
    items_per_s: float | None
    reasons: Sequence[StepReason]


class Look(NamedTuple):
    """All that is shown, at one moment."""

    place: str
    """The master's address, or the state folder."""
    at: datetime
    jobs: Sequence[ShownJob]
    """Those at work first, each group newest first."""
    nodes: Sequence[Node]
    only: str = ""
    """The one job that is shown; empty for all."""
    runs_nothing: bool = False
    """Nothing runs the unfinished jobs."""
    note: str = ""
    """What is wrong at the master, such as a full disk."""


class Looks:
    """Looks at a master again and again. Rates of jobs are of the last looks."""

    def __init__(self, client: Client, only: str | None = None) -> None:
        """`only`: the whole name of the one job to look at; None for all."""
        self._client = client
        self._only = only
        self._figures: dict[str, Figures] = {}

    def look(self) -> Look:
        """Ask the master. Raises WindrowError."""
        client = self._client
        found = [client.get(self._only)] if self._only else list(islice(client.list_jobs(), JOBS_MAX))
        found.sort(key=lambda job: job.state.ended)
        at_work = [job.job_id for job in found if not job.state.ended]
        runs_nothing = client.runs_nothing
        reasons = {} if runs_nothing else {job_id: client.explain(job_id) for job_id in at_work[-EXPLAINED_MAX:]}
        self._figures = {job_id: figures for job_id, figures in self._figures.items() if job_id in at_work}
        master = client.master()
        return Look(
            place=str(client.state_folder or client.address),
            at=datetime.now(UTC),
            jobs=[self._shown(job, reasons) for job in found],
            nodes=list(client.list_nodes()),
            only=self._only or "",
            runs_nothing=runs_nothing,
            note=f"The master accepts no changes: {master.read_only_reason}" if master.read_only_reason else "",
        )

    def _shown(self, job: Job, reasons: Mapping[str, Sequence[StepReason]]) -> ShownJob:
        wall = datetime.now(UTC)
        end = job.end_time or wall
        elapsed_s = max(0.0, (end - job.create_time).total_seconds()) if job.create_time is not None else 0.0
        if job.state.ended:
            return ShownJob(job, elapsed_s, None, None, ())
        now = time.monotonic()
        figures = self._figures.get(job.job_id)
        if figures is None:
            figures = self._figures[job.job_id] = Figures()
            figures.begin(job, now, wall)
        figures.add(job, now)
        return ShownJob(job, elapsed_s, figures.remaining_s(job), figures.items_per_s(), reasons.get(job.job_id, ()))
