"""Which jobs begin: a job that is submitted is QUEUED, and nothing of it is unpacked, divided or built, until it is
admitted.

A job is admitted as soon as one of these holds:
1. Of the jobs of its project that go before it, fewer run than its project's queue admits
   (`QueueSettings.admitted_jobs`).
2. It would get a worker now: by the fair shares of all that runs, one of the steps with which it begins would be
   entitled to a whole one.

In a project, the order is that of the line: priority, then deadline, then age. Jobs that were let in by the second rule
although others go before them do not count against those, so that nobody is overtaken for ever.

A step that was admitted and has no mini-batch yet counts as one that could use a worker, for `EXPECTED_S`: else all
jobs would be let in while the first one is divided.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from windrow.common.queue_settings import PRIORITY_MAX, QueueSettings

from windrow_master.core.commands import Moment, SubmitJob
from windrow_master.core.ids import JobKey, StepId
from windrow_master.core.refused import Refused
from windrow_master.core.shares import entitled_workers, rank_of, slots_held, steps_in_line
from windrow_master.core.state import CoreState, Job, Step
from windrow_master.core.states import JobState, StepState
from windrow_master.core.steps import begin_steps, settle_job, too_many_jobs, warn

EXPECTED_S = 30.0
"""How long a step that has begun, and has no mini-batch yet, counts as one that is about to have some."""

LOOKS_MAX = 8
"""Jobs for which it is computed in one round whether they would get a worker; the next round goes on."""

LOOK_S = 0.5
"""The least time between two such rounds: each computes what all steps are entitled to, several times."""


class Admission(NamedTuple):
    """Where a queued job stands. `running`, `queued`: jobs of its project that go before it; `number`: with fewer
    of them than this, it is admitted. `priority`: that with which it would be admitted at once; None if there is none.
    """

    project: str
    running: int
    queued: int
    number: int
    priority: int | None


def on_submit_job(state: CoreState, command: SubmitJob, now: Moment) -> JobKey | Refused:
    """Accept a job; it begins if it is admitted at once."""
    for known in state.jobs.values():
        if known.request_id == command.request_id:
            return known.job_key
    if command.job_id in state.job_keys:
        return Refused("JOB_EXISTS", f"The name {command.job_id!r} is taken. Choose another name.")
    if refused := too_many_jobs(state, command.project, command.document):
        return refused
    state.job_key_last += 1
    job = Job(
        JobKey(state.job_key_last),
        command.job_id,
        command.request_id,
        command.run_digest,
        command.document,
        [],
        priority=command.priority,
        weight=command.weight,
        continue_on_step_failure=command.continue_on_step_failure,
        create_time=now.wall_s,
        queue=command.project,
        submitter=command.submitter,
        deadline=command.deadline,
    )
    for warning in command.warnings:
        warn(job, warning)
    for ordinal, settings in enumerate(command.steps):
        state.step_id_last += 1
        step = Step(StepId(state.step_id_last), job.job_key, ordinal, settings)
        job.steps.append(step)
        state.steps[step.step_id] = step
        state.dirty_steps.add(step.step_id)
    state.jobs[job.job_key] = job
    state.job_keys[job.job_id] = job.job_key
    state.touch_job(job)
    state.add_event(now, job.job_key, "submitted", "")
    enter(state, job, now, asked=True)
    return job.job_key


def enter(state: CoreState, job: Job, now: Moment, *, asked: bool = False) -> None:
    """Take in a job that is QUEUED; it is admitted at once if nothing has to be weighed. `asked`: as of `begin_steps`.

    A held master (embedded mode) has the jobs of one command, which waits for them.
    """
    before = _running_before(_running(state, job.queue), job)
    if state.held or before < number_of(state, job.queue):
        _begin(state, job, now, asked=asked)
    else:
        state.queued.add(job.job_key)
        state.admission_wanted = True


def admit(state: CoreState, now: Moment) -> None:
    """Admit the jobs whose turn it is, if anything has changed since the last round."""
    if not state.queued:
        return
    if not state.admission_wanted and state.shares.decided_s <= state.admitted_s:
        return
    state.admission_wanted, state.admitted_s, state.admission_due_s = False, now.monotonic_s, math.inf
    waiting = queued_jobs(state)
    state.queued = {job.job_key for job in waiting}
    by_project: dict[str, list[Job]] = {}
    for job in waiting:
        by_project.setdefault(job.queue, []).append(job)
    for project, jobs in by_project.items():
        running, number = _running(state, project), number_of(state, project)
        for job in jobs:
            if _running_before(running, job) >= number:
                break  # nor do those that go after it come in
            running.insert(bisect_left(running, _order(job)), _order(job))
            _admit(state, job, now)
    if state.queued and now.monotonic_s < state.admission_looked_s + LOOK_S:
        state.admission_due_s = state.admission_looked_s + LOOK_S
    elif state.queued:
        state.admission_looked_s = now.monotonic_s
        _admit_to_free_places(state, now)


def _admit_to_free_places(state: CoreState, now: Moment) -> None:
    """Admit those that would get a worker now, in the order of the line."""
    heads = _heads(state)
    demands = _demands(state, now)
    line = steps_in_line(state, demands | {step.step_id: 1 for job in heads for step in first_steps(job)})
    places = {step_id: place for place, step_id in enumerate(line)}
    # What would get a worker at once stands in no line.
    order = [
        job.job_key
        for job in sorted(
            heads, key=lambda job: min((places.get(one.step_id, -1) for one in first_steps(job)), default=-1)
        )
    ]
    # Those that were not looked at in the last round go first in this one.
    start = order.index(state.admission_next) if state.admission_next in order else 0
    looked = deque([*order[start:], *order[:start]])
    state.admission_next = None
    for _ in range(LOOKS_MAX):
        if not looked:
            return
        job = state.jobs[looked.popleft()]
        steps = first_steps(job)
        wanted = {step.step_id: step.settings.min_nodes for step in steps}
        workers = entitled_workers(state, {**demands, **wanted})
        if any(workers.get(step_id, 0) >= count for step_id, count in wanted.items()):
            kind = _kind(job)
            _admit(state, job, now)
            demands.update(dict.fromkeys(wanted, 1))
            following = next((one for one in queued_jobs(state) if _kind(one) == kind), None)
            if following is not None:
                looked.appendleft(following.job_key)
    if looked:
        state.admission_next = looked[0]
        state.admission_due_s = min(state.admission_due_s, now.monotonic_s + LOOK_S)


def _heads(state: CoreState) -> list[Job]:
    """The next queued job of each project, of those that ask for the same."""
    found: dict[object, Job] = {}
    for job in queued_jobs(state):
        found.setdefault(_kind(job), job)
    return list(found.values())


def _kind(job: Job) -> object:
    """Queued jobs of one project that ask for the same."""
    return (job.queue, *map(_asks_for, first_steps(job)))


def _asks_for(step: Step) -> object:
    settings = step.settings
    needs = (settings.cpus_per_worker, settings.memory_per_worker, settings.gpus_per_worker)
    return (settings.compute, settings.max_concurrency_per_instance, settings.min_nodes, *needs)


def _demands(state: CoreState, now: Moment) -> dict[StepId, int]:
    """How many workers all that runs could use. Notes when that changes with time alone."""
    found: dict[StepId, int] = {}
    for step in state.steps.values():
        if step.state != StepState.RUNNING or state.jobs[step.job_key].state != JobState.RUNNING:
            continue
        demand = step.demand(now.monotonic_s)
        if not demand and not step.plan.is_done:
            until_s = step.progress.started_s + EXPECTED_S
            if now.monotonic_s < until_s:
                demand = 1
                state.admission_due_s = min(state.admission_due_s, until_s)
        found[step.step_id] = demand
    return found


def queued_jobs(state: CoreState) -> list[Job]:
    """Those that wait to be admitted, each project's in its order."""
    found = (state.jobs[job_key] for job_key in state.queued if job_key in state.jobs)
    return sorted((job for job in found if job.state == JobState.QUEUED), key=_order)


def first_steps(job: Job) -> list[Step]:
    """The steps with which a queued job begins."""
    return [step for step in job.steps if step.state == StepState.WAITING and not step.settings.depends_on]


def number_of(state: CoreState, project: str) -> int:
    """How many jobs of a project are admitted, whatever there is for them."""
    queue = state.queues.get(project)
    return (QueueSettings() if queue is None else queue.settings).admitted_jobs


def _order(job: Job) -> tuple[float | JobKey, ...]:
    """Where a job stands in its project: a lower one goes first."""
    return (*(-at for at in rank_of(job)), job.job_key)


def _running(state: CoreState, project: str) -> list[tuple[float | JobKey, ...]]:
    """The places of the jobs of a project that run, in order."""
    return sorted(_order(job) for job in state.jobs.values() if job.queue == project and job.state == JobState.RUNNING)


def _running_before(running: list[tuple[float | JobKey, ...]], job: Job) -> int:
    return bisect_left(running, _order(job))


def _admit(state: CoreState, job: Job, now: Moment) -> None:
    state.queued.discard(job.job_key)
    state.add_event(now, job.job_key, "admitted", "")
    with state.contained(job.steps[0]):
        _begin(state, job, now)


def _begin(state: CoreState, job: Job, now: Moment, *, asked: bool = False) -> None:
    job.become(JobState.RUNNING)
    state.touch_job(job)
    begin_steps(state, job, now, asked=asked)
    settle_job(state, job, now)  # all of its steps may be skipped


def standing_of(state: CoreState, job: Job) -> Admission:
    """Why a queued job is not admitted."""
    number = number_of(state, job.queue)
    running = _running_before(_running(state, job.queue), job)
    ahead = [other for other in _of_project(state.jobs.values(), job.queue) if _order(other) < _order(job)]
    queued = sum(other.state == JobState.QUEUED for other in ahead)
    priority = None
    if len(ahead) >= number:
        priority = sorted(ahead, key=_order)[number - 1].priority + 1
    return Admission(
        job.queue, running, queued, number, None if priority is None or priority > PRIORITY_MAX else priority
    )


def _of_project(jobs: Iterable[Job], project: str) -> Iterator[Job]:
    open_ = (JobState.QUEUED, JobState.RUNNING)
    return (job for job in jobs if job.queue == project and job.state in open_)


class PlannerPlace(NamedTuple):
    """Where a job stands among those that wait for a planner; lower ones go first. `tier`: of its project; `place`: in
    its project.
    """

    tier: float
    place: tuple[float, ...]


def planner_place(state: CoreState, job: Job) -> PlannerPlace:
    """By the order in which workers are given out: projects that have less than they are guaranteed, then by the
    priority of projects; in a project, as in the line.
    """
    queue = state.queues.get(job.queue)
    place = tuple(map(float, _order(job)))
    if queue is None:
        return PlannerPlace(0.0, place)
    quota = queue.settings.cluster.quota
    if quota and slots_held(state).get(job.queue, 0.0) < quota:
        return PlannerPlace(-math.inf, place)
    return PlannerPlace(-float(queue.settings.priority), place)
