"""The rules of admission, 36 to 38 of `sim_checkers`, and planted faults that they find.

As in `sim_shares`, here is no code of the core's own arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from unittest.mock import patch

from sim_planting import Broken, fault
from sim_shares import NEAR, Shares, Wish, fair_shares
from windrow.common.queue_settings import QueueSettings
from windrow_master.core import admission
from windrow_master.core.commands import Moment
from windrow_master.core.core import Core
from windrow_master.core.ids import JobKey, StepId
from windrow_master.core.state import CoreState, Job, Step
from windrow_master.core.states import JobState, StepState
from windrow_master.core.steps import prepare_step

if TYPE_CHECKING:
    from sim_run import Simulation


LATE_S = 1.5
"""So much time may pass until a job is admitted that may be."""


class Admissions:
    """Knows which jobs were queued, and for how long they should not have been."""

    def __init__(self, sim: Simulation, shares: Shares) -> None:
        self._sim, self._shares = sim, shares
        self._queued: set[tuple[int, JobKey]] = set()
        """(master incarnation, job) of those that were queued after the last group of commands."""
        self._since_s: dict[tuple[int, str, str], float] = {}
        """Who should have been admitted, and why -> since when."""

    def on_effects(self, core: Core) -> None:
        """After each group of commands."""
        state = core.state
        for job in state.jobs.values():
            if job.state == JobState.QUEUED:
                for step in job.steps:
                    if step.state != StepState.WAITING or step.plan.checkpoint is not None:
                        raise Broken(36, f"step {step.step_id} of a job that is queued is {step.state.name}")
            elif job.state == JobState.RUNNING and (state.incarnation, job.job_key) in self._queued:
                self._check_admitted(state, job)
        queued = self._jobs(state, JobState.QUEUED)
        self._queued = {(state.incarnation, job.job_key) for job in queued}
        self._check_late(state, queued)

    def _check_late(self, state: CoreState, queued: list[Job]) -> None:
        """Rule 37."""
        short = [(state.incarnation, job.job_id, why) for job in queued if (why := self._why_late(state, job))]
        now_s = self._sim.world.now_s
        self._since_s = {key: self._since_s.get(key, now_s) for key in short}
        for key, since_s in self._since_s.items():
            if self._sim.awake_s(since_s) > LATE_S:
                raise Broken(37, f"{key} for {now_s - since_s:.1f} s")

    def _jobs(self, state: CoreState, wanted: JobState) -> list[Job]:
        return [job for job in state.jobs.values() if job.state == wanted]

    def _settings(self, state: CoreState, project: str) -> QueueSettings:
        return state.queues[project].settings if project in state.queues else QueueSettings()

    def _slots(self, state: CoreState) -> int:
        return sum(self._sim.slots_of(node.node_id) for node in self._shares.serving(state))

    def _running(self, state: CoreState, but: Job | None = None) -> list[Step]:
        """Steps that run. `but`: not those of this job."""
        running = (step for job in self._jobs(state, JobState.RUNNING) if job is not but for step in job.steps)
        return [step for step in running if step.state == StepState.RUNNING]

    def _are_plain(self, state: CoreState, steps: list[Step]) -> bool:
        """Whether steps may have any number of workers on each node."""
        serving = self._shares.serving(state)
        return not state.settle_until_s and all(self._shares.is_plain(step, serving) for step in steps)

    def _demands(self, state: CoreState) -> dict[str, float]:
        """What projects could use."""
        found: dict[str, float] = {}
        for step in self._shares.steps(state):
            project = state.jobs[step.job_key].queue
            found[project] = found.get(project, 0.0) + self._shares.demand(step)
        return found

    def _why_late(self, state: CoreState, job: Job) -> str:
        settings, running = self._settings(state, job.queue), self._jobs(state, JobState.RUNNING)
        if sum(other.queue == job.queue for other in running) < settings.admitted_jobs:
            return "few are admitted"
        if any(step.settings.max_concurrency_per_instance or step.settings.compute for step in job.steps):
            return ""
        demands = self._demands(state)
        free = sum(demands.values()) + 1 <= self._slots(state)
        allowed = demands.get(job.queue, 0.0) + 1 <= settings.cluster.limit
        steps = self._running(state)
        is_plain = self._are_plain(state, steps) and all(step.plan.is_done for step in steps)
        return "a worker is free" if free and allowed and is_plain else ""

    def _check_admitted(self, state: CoreState, job: Job) -> None:
        """Rule 38: a project cannot have more workers than the next whole one above its fair share."""
        before = [
            other
            for other in self._jobs(state, JobState.RUNNING)
            if other.queue == job.queue and other.job_key < job.job_key
        ]
        # What is not divided yet can only lower the share of a project that has more jobs with work than that.
        is_plain = self._are_plain(state, self._running(state, but=job))
        if len(before) < self._settings(state, job.queue).admitted_jobs or not is_plain:
            return
        demands = self._demands(state)
        demands.setdefault(job.queue, 0.0)
        wishes = {
            name: Wish(demand + (name == job.queue), self._settings(state, name)) for name, demand in demands.items()
        }
        fair = fair_shares(wishes, self._slots(state))[job.queue]
        at_work = sum(any(self._shares.demand(step) for step in other.steps) for other in before)
        if at_work >= fair + 1 - NEAR and sum(wish.demand for wish in wishes.values()) >= self._slots(state) + 1:
            raise Broken(38, f"{job.job_id} is admitted: {at_work} jobs of {job.queue} have work for {fair} slots")


@fault(36, storm=True)
def queued_jobs_begin() -> Iterator[None]:
    """The first step of a job is begun as soon as it is submitted."""
    original = admission.enter

    def enter(state: CoreState, job: Job, now: Moment, *, asked: bool = False) -> None:
        original(state, job, now, asked=asked)
        if job.state == JobState.QUEUED:
            job.steps[0].become(StepState.RUNNING)
            prepare_step(state, job.steps[0])

    with patch.object(admission, "enter", enter):
        yield


@fault(37, storm=True)
def free_places_admit_nobody() -> Iterator[None]:
    """Jobs beyond the number wait for the ends of others, whatever is free."""
    with patch.object(admission, "_admit_to_free_places", lambda state, now: None):
        yield


@fault(37, storm=True)
def the_ends_of_jobs_admit_nobody() -> Iterator[None]:
    """Jobs that are paused for ever, or have ended, count as if they ran."""
    with patch.object(admission, "_running_before", lambda running, job: 1_000):
        yield


@fault(38, storm=True)
def everybody_would_get_a_worker() -> Iterator[None]:
    """The number of a project is not looked at."""

    def entitled_workers(state: CoreState, demands: Mapping[StepId, int]) -> dict[StepId, int]:
        return dict(demands)

    with patch.object(admission, "entitled_workers", entitled_workers):
        yield
