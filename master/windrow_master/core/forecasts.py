"""When steps and jobs are likely to end, and when those that wait are likely to begin.

A forecast follows from what was measured: how long mini-batches of a step have taken, how many are left, and how many
workers it is entitled to, now and after the ends of others, by the rules of `shares`. It holds for as long as nothing
comes that nobody can know: new jobs, nodes that come or go, mini-batches that take longer than those before.

Nothing is said where nothing was measured. Where another step's end is not known, that step is taken to go on: then a
forecast is too late rather than too early.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from windrow_master.core.admission import first_steps, queued_jobs
from windrow_master.core.commands import Moment
from windrow_master.core.ids import JobKey, StepId
from windrow_master.core.needs import most_on, need_of
from windrow_master.core.pools import works_on
from windrow_master.core.shares import TURN_S, WhatIf, steps_in_line
from windrow_master.core.sharing.placing import Vector
from windrow_master.core.state import CoreState, Job, Step
from windrow_master.core.states import DONE_STEPS, ENDED_JOBS, ENDED_STEPS, JobState, StepState

MEASURED_MIN = 3
"""Nothing is forecast of a step before so many of its mini-batches have succeeded, or half of them if it has few: the
first ones to end are the short ones."""

_LOOKS_MAX = 1_000
"""Looks at a step, over all ends that are looked ahead: what comes after these ends is not forecast."""

_TOGETHER = 0.05
"""Ends that differ by less than this part of the time until then are looked at together."""

_LEAST = 0.1
"""A mini-batch that has run for longer than the mean is expected to take this part of it more."""

_IS_SOME = 1e-6


class StepForecast(NamedTuple):
    """Times are seconds from now; None: nobody knows. `begin_s`: when it gets a worker, 0 if it has one; of a step that
    waits for others, when the last of these ends. `end_s`: when
    its last mini-batch ends, and `latest_s` when it does if that one is among the slowest (95th percentile).
    `workers`: how many it is entitled to now, which need not be a whole number. `work_s`: what is left, in seconds of
    one worker.
    """

    begin_s: float | None = None
    end_s: float | None = None
    latest_s: float | None = None
    workers: float = 0.0
    work_s: float | None = None


class JobForecast(NamedTuple):
    """As a `StepForecast`, of a job. `place`: in the line of jobs that wait for their first worker, from 1 on; 0: it
    has one, or waits for something else. `late_s`: by how much it misses its deadline; below 0: how early it is. If it
    is late, `more_workers` would do if it had them from now on; None: no number would, or that is not known.
    """

    begin_s: float | None = None
    end_s: float | None = None
    latest_s: float | None = None
    workers: float = 0.0
    place: int = 0
    late_s: float | None = None
    more_workers: int | None = None


class End(NamedTuple):
    """The end of a step that makes room. `at_s`: from now; `projects`: the slots that projects are entitled to then."""

    step_id: StepId
    at_s: float
    projects: dict[str, float]


@dataclass(frozen=True, slots=True)
class Forecast:
    """What lies ahead of all open jobs. `line`: the jobs that wait for their first worker, the next one first."""

    jobs: Mapping[JobKey, JobForecast] = field(default_factory=dict)
    steps: Mapping[StepId, StepForecast] = field(default_factory=dict)
    line: tuple[JobKey, ...] = ()
    ends: tuple[End, ...] = ()


def forecast(state: CoreState, now: Moment) -> Forecast:
    """Look ahead. Nothing lies ahead while a master only answers questions."""
    if state.held:
        return Forecast()
    ahead = _Ahead(state, now)
    ahead.look()
    waiting = _waiting_jobs(state, ahead.room)
    demands = demands_now(state, now)
    for job in queued_jobs(state):
        demands.update((step.step_id, 1) for step in first_steps(job))
    order = {step_id: at for at, step_id in enumerate(steps_in_line(state, demands))}

    def rank(job: Job) -> tuple[float, int, JobKey]:
        running = [step.step_id for step in _steps_at_work(job)]
        # What would get a worker at once stands in no line.
        unplaced = -1 if job.state == JobState.QUEUED else len(order)
        begins = [ahead.begins[step_id] for step_id in running if step_id in ahead.begins]
        return (
            min(begins, default=math.inf),
            min((order.get(step_id, unplaced) for step_id in running), default=unplaced),
            job.job_key,
        )

    line = tuple(job.job_key for job in sorted(waiting, key=rank))
    places = {job_key: place for place, job_key in enumerate(line, 1)}
    steps = {step_id: ahead.step(run) for step_id, run in ahead.runs.items()}
    steps.update(_begins_after(state, steps))
    jobs = {
        job.job_key: _of_job(job, steps, places.get(job.job_key, 0), now)
        for job in state.jobs.values()
        if job.state not in ENDED_JOBS
    }
    return Forecast(jobs, steps, line, tuple(ahead.ends))


def _begins_after(state: CoreState, steps: Mapping[StepId, StepForecast]) -> Iterator[tuple[StepId, StepForecast]]:
    """When steps begin that wait for others of their job, where it is known when all of these end. Nothing is said of
    those that begin only if an output says so.
    """
    for job in state.jobs.values():
        if job.state != JobState.RUNNING or len(job.steps) == 1:
            continue
        ends = {one.settings.name: steps[one.step_id].end_s for one in job.steps if one.step_id in steps}
        done = {one.settings.name for one in job.steps if one.state in DONE_STEPS}
        for step in job.steps:
            waits = [ends.get(name) for name in step.settings.depends_on if name not in done]
            if step.state == StepState.WAITING and not step.settings.run_if and waits:
                known = [end_s for end_s in waits if end_s is not None]
                if len(known) == len(waits):
                    yield step.step_id, StepForecast(max(known))


def _waiting_jobs(state: CoreState, room: Room) -> list[Job]:
    """The jobs that have no worker, and could have one on a node that is there."""
    return [
        job
        for job in state.jobs.values()
        if job.state in (JobState.QUEUED, JobState.RUNNING)
        and not any(_has_workers(state, step) for step in job.steps)
        and any(
            (job.state == JobState.QUEUED or step.counters.queued) and room.of(step) for step in _steps_at_work(job)
        )
    ]


def _steps_at_work(job: Job) -> list[Step]:
    """The steps that run; of a queued job, those with which it begins."""
    if job.state == JobState.QUEUED:
        return first_steps(job)
    return [step for step in job.steps if step.state == StepState.RUNNING]


def _has_workers(state: CoreState, step: Step) -> bool:
    return bool(step.lease_ids) or _workers_now(state, step) > 0


def _workers_now(state: CoreState, step: Step) -> int:
    """The workers that it should have on all nodes, by the last decision."""
    crews = (group.layout.crews.get(step.step_id) for group in state.shares.groups.values())
    return sum(crew.held for crew in crews if crew is not None)


def demands_now(state: CoreState, now: Moment) -> dict[StepId, int]:
    """How many workers running steps could use now."""
    return {step.step_id: step.demand(now.monotonic_s) for step in state.steps.values() if _is_at_work(state, step)}


def _is_at_work(state: CoreState, step: Step) -> bool:
    return step.state == StepState.RUNNING and state.jobs[step.job_key].state == JobState.RUNNING


class Room:
    """How many workers steps may have on the nodes that serve now."""

    def __init__(self, state: CoreState) -> None:
        self._nodes = [node for node in state.nodes.values() if node.serves]
        self._known: dict[tuple[str, int | None, Vector], int] = {}

    def of(self, step: Step) -> int:
        """The most workers that a step may have."""
        settings = step.settings
        key = (settings.compute, settings.max_concurrency_per_instance, need_of(step, is_wide=True))
        if settings.instance_count is not None:
            return sum(sorted(self._places(step), reverse=True)[: settings.instance_count])
        if key not in self._known:
            self._known[key] = sum(self._places(step))
        return self._known[key]

    def _places(self, step: Step) -> list[int]:
        settings, there = step.settings, (node for node in self._nodes if works_on(node, step))
        counts = (most_on(node, step) if settings.has_needs else node.slots for node in there)
        bound = settings.max_concurrency_per_instance
        return [count if bound is None else min(bound, count) for count in counts]


@dataclass(slots=True)
class _Run:
    """A step that runs. `demand`: how many workers it could use; `work_s`: what is left, in seconds of one worker; None
    if that is not known. `goes_on`: it, or what follows it, needs workers beyond that.
    """

    step: Step
    demand: int
    work_s: float | None
    goes_on: bool
    longest_s: float = 0.0
    """How long the last one of those that run is likely to run on."""
    left_s: float = 0.0
    workers: float = 0.0
    """What it is entitled to now."""
    end_s: float | None = None


class _Ahead:
    """Looks from one end of a step to the next, with the shares that follow from each."""

    def __init__(self, state: CoreState, now: Moment) -> None:
        self._state = state
        self.runs: dict[StepId, _Run] = {}
        self.begins: dict[StepId, float] = {}
        self.ends: list[End] = []
        self.room = Room(state)
        for step in state.steps.values():
            if _is_at_work(state, step) and (run := _run_of(state, step, self.room.of(step), now)) is not None:
                self.runs[step.step_id] = run

    def look(self) -> None:
        """Look as far as ends are known."""
        at_s, looks = 0.0, 0
        demands = {step_id: run.demand for step_id, run in self.runs.items()}
        yield_s = self._yield_s()
        what_if = WhatIf(self._state, demands)
        fair = what_if.fair(demands)
        while demands and looks < _LOOKS_MAX:
            looks += len(demands)
            for step_id, workers in fair.steps.items():
                run = self.runs[step_id]
                if at_s == 0.0:
                    run.workers = workers
                if workers > _IS_SOME and step_id not in self.begins:
                    self.begins[step_id] = self._begin_s(run, workers, at_s, yield_s)
            ends = {
                step_id: run.left_s / fair.steps[step_id]
                for step_id, run in self.runs.items()
                if run.end_s is None and run.work_s is not None and fair.steps.get(step_id, 0.0) > _IS_SOME
            }
            if not ends:
                return
            until_s = min(ends.values()) + _TOGETHER * at_s
            passed_s = max(end_s for end_s in ends.values() if end_s <= until_s)
            freed: list[StepId] = []
            for step_id, end_s in ends.items():
                run = self.runs[step_id]
                run.left_s -= passed_s * fair.steps[step_id]
                if end_s <= passed_s:
                    run.end_s = at_s + end_s
                    if not run.goes_on:
                        del demands[step_id]
                        freed.append(step_id)
            at_s += passed_s
            if freed:
                fair = what_if.fair(demands)
                self.ends += [
                    End(step_id, self.step(self.runs[step_id]).end_s or 0.0, fair.projects) for step_id in freed
                ]

    def _begin_s(self, run: _Run, workers: float, at_s: float, yield_s: float) -> float:
        """When a step gets its first worker, if it is entitled to some from `at_s` on."""
        if _has_workers(self._state, run.step):
            return 0.0
        turn_s = TURN_S * (1 / workers - 1) if workers < 1 else 0.0
        return at_s + turn_s + (yield_s if at_s == 0.0 else 0.0)

    def _yield_s(self) -> float:
        """How long it takes, about, until a worker that has to yield has done so."""
        most_s = self._state.timing.reclaim_after_s
        means = [
            run.step.counters.mean_s() / 2 if run.step.counters.measured else most_s
            for run in self.runs.values()
            if run.step.lease_ids
        ]
        return min(max(means, default=0.0), most_s)

    def step(self, run: _Run) -> StepForecast:
        """What is forecast of a step."""
        begin_s = self.begins.get(run.step.step_id)
        if run.end_s is None:
            return StepForecast(begin_s, workers=run.workers, work_s=run.work_s)
        counters = run.step.counters
        slow_s = counters.duration_s(0.95) or counters.mean_s()
        end_s = max(run.end_s, run.longest_s)
        if counters.queued:
            # When the first worker finds nothing more, the others are halfway through their last ones.
            end_s += counters.mean_s() / 2 * (1 - 1 / max(1.0, run.workers))
        return StepForecast(begin_s, end_s, max(end_s, run.end_s + slow_s), run.workers, run.work_s)


def _run_of(state: CoreState, step: Step, most: int, now: Moment) -> _Run | None:
    """What is left of a running step; None if it has nothing that could run. `most`: the most workers it may have."""
    counters, job = step.counters, state.jobs[step.job_key]
    unended = counters.planned - counters.ended
    if not unended:
        return None
    follows = any(one.state not in ENDED_STEPS and one.state != StepState.RUNNING for one in job.steps)
    demand = min(unended, most)
    if not step.plan.is_done or counters.measured < min(MEASURED_MIN, max(1, counters.planned // 2)):
        return _Run(step, demand, None, goes_on=True)
    # What fails takes time as well, and runs again.
    mean_s = counters.mean_s() * (1 + counters.retries / max(1, counters.ran))
    demand = min(demand, rate_bound(step, mean_s))
    leased = heapq.nsmallest(max(1, _workers_now(state, step)), (state.leases[one].granted_s for one in step.lease_ids))
    running = [max(mean_s - (now.monotonic_s - at_s), mean_s * _LEAST) for at_s in leased]
    work_s = max(0, unended - len(running)) * mean_s + sum(running)
    return _Run(step, demand, work_s, follows, max(running, default=0.0), work_s)


def rate_bound(step: Step, mean_s: float) -> int:
    """How many workers are enough for its rate limit."""
    rate_per_s = step.settings.rate_per_s
    if math.isinf(rate_per_s):
        return step.counters.planned
    if step.settings.rate_counts_items:
        rate_per_s /= max(1.0, step.counters.items_total / max(1, step.counters.planned))
    return max(1, math.ceil(rate_per_s * mean_s))


def _of_job(job: Job, steps: Mapping[StepId, StepForecast], place: int, now: Moment) -> JobForecast:
    open_ = [step for step in job.steps if step.state not in DONE_STEPS]
    ahead = [steps[step.step_id] for step in open_ if step.step_id in steps]
    begins = [one.begin_s for one in ahead if one.begin_s is not None]
    found = JobForecast(min(begins, default=None), workers=sum(one.workers for one in ahead), place=place)
    ends = [one.end_s for one in ahead if one.end_s is not None]
    latest = [one.latest_s for one in ahead if one.latest_s is not None]
    if not open_ or len(ends) < len(open_):  # those that have not begun have no end yet
        return found
    found = found._replace(end_s=max(ends), latest_s=max(latest))
    if job.deadline is None:
        return found
    left_s = job.deadline - now.wall_s
    found = found._replace(late_s=max(ends) - left_s)
    if max(ends) <= left_s:
        return found
    return found._replace(more_workers=_more_workers(open_, ahead, left_s))


def _more_workers(open_: list[Step], ahead: list[StepForecast], left_s: float) -> int | None:
    """How many more workers, from now on, would do to have the steps done in time; None: no number would."""
    more = 0
    for step, one in zip(open_, ahead, strict=True):
        # The last mini-batches end after the workers have nothing more to begin.
        usable_s = left_s - step.counters.mean_s() / 2
        unended = step.counters.planned - step.counters.ended
        if usable_s <= 0 or one.work_s is None:
            return None
        needed = math.ceil(one.work_s / usable_s)
        if needed > unended:
            return None
        more += max(0, needed - math.floor(one.workers + _IS_SOME))
    return max(1, more)
