"""Why a project has what it has of the cluster, in numbers, and what would change that.

Nothing is stored for this. It asks what the decision about shares asks (`shares`), also with other settings.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from windrow.common.queue_settings import PRIORITY_MAX, WEIGHT_MAX, WHOLE_CLUSTER, QueueSettings

from windrow_master.core.commands import Moment
from windrow_master.core.forecasts import Forecast, Room, StepForecast, demands_now, forecast
from windrow_master.core.ids import StepId
from windrow_master.core.needs import need_of
from windrow_master.core.pools import is_in_pool
from windrow_master.core.shares import WhatIf, groups_in, slots_held
from windrow_master.core.sharing.placing import SLOTS
from windrow_master.core.state import CoreState, Queue

_COUNTS = 0.05
"""A change that gives a project less than this part of a slot more is none."""

ENDS_MAX = 3
STEPS_MAX = 20
"""Ends of other jobs that are named."""


class QuotaOwed(NamedTuple):
    """What is guaranteed on some nodes, and not had although it could be used, in slots. `pool`: WHOLE_CLUSTER for all
    nodes.
    """

    project: str
    pool: str
    quota: float
    held: float
    owed: float


class OtherProject(NamedTuple):
    """What another project has and is entitled to, in slots."""

    project: str
    held: float
    fair: float


class SettingChange(NamedTuple):
    """A setting by which a project would be entitled to more. `setting`: `limit`, `quota`, `weight` or `priority`;
    `value`: what it would be, infinite for no limit; `fair`: the slots that it would be entitled to.
    """

    setting: str
    pool: str
    value: float
    fair: float


class EndChange(NamedTuple):
    """The end of a step, in `at_s` seconds, by which a project is entitled to more: to `fair` slots."""

    project: str
    job_id: str
    step: str
    at_s: float
    fair: float


class InLine(NamedTuple):
    """A job of the project that waits for its first worker. `place`: among those of all projects, from 1 on.
    `begin_s`: when it is likely to get one; None: nobody knows.
    """

    job_id: str
    place: int
    begin_s: float | None


class StepAhead(NamedTuple):
    """What lies ahead of a step of a job with several steps."""

    job_id: str
    step: str
    forecast: StepForecast


class QueueReason(NamedTuple):
    """What a project has (`held`: by its live workers), is entitled to (`fair`) and could use (`wanted`), in slots;
    `total`: of all nodes that serve. `limited`: a limit of its own is what it lacks.
    """

    project: str
    settings: QueueSettings
    total: float
    held: float
    fair: float
    wanted: float
    limited: bool
    owed: tuple[QuotaOwed, ...]
    """Quotas that are owed, of any project; its own first."""
    others: tuple[OtherProject, ...]
    """Those that have something or are entitled to something; those furthest above their share first."""
    settings_changes: tuple[SettingChange, ...]
    ends: tuple[EndChange, ...]
    line: tuple[InLine, ...]
    steps: tuple[StepAhead, ...]
    """Of jobs of the project with several steps: those of which something is known, the next ones first."""


def reason_of_queue(state: CoreState, project: str, now: Moment) -> QueueReason:
    """Where a project stands now."""
    asked = _Asked(state, project, now)
    return asked.answer(forecast(state, now))


class _Asked:
    def __init__(self, state: CoreState, project: str, now: Moment) -> None:
        self._state, self._project = state, project
        room = Room(state)
        self._demands = {
            step_id: min(demand, room.of(state.steps[step_id])) for step_id, demand in demands_now(state, now).items()
        }
        self._what_if = WhatIf(state, self._demands)
        self._queues = {name: queue.settings for name, queue in state.queues.items()}
        self._settings = self._queues.get(project, QueueSettings())

    def answer(self, ahead: Forecast) -> QueueReason:
        """Put the answer together."""
        state, project = self._state, self._project
        fair, held = self._what_if.fair(self._demands).projects, slots_held(state)
        mine, total = fair.get(project, 0.0), float(sum(group.slots for group in state.shares.groups.values()))
        wanted = min(total, float(self._demand_of(project)))
        changes = tuple(self._changes(mine, wanted))
        others = sorted(
            (
                OtherProject(name, held.get(name, 0.0), fair.get(name, 0.0))
                for name in fair.keys() | held.keys()
                if name != project
            ),
            key=lambda one: (one.fair - one.held, one.project),
        )
        return QueueReason(
            project,
            self._settings,
            total,
            held.get(project, 0.0),
            mine,
            wanted,
            any(change.setting == "limit" for change in changes),
            tuple(sorted(self._owed(), key=lambda one: (one.project != project, -one.owed, one.project, one.pool))),
            tuple(others),
            changes,
            tuple(self._ends(ahead, mine)),
            tuple(self._line(ahead)),
            tuple(self._steps(ahead)),
        )

    def _demand_of(self, project: str) -> float:
        """What a project could use, in slots."""
        return sum(self._slots(step_id) for step_id in self._demands if self._project_of(step_id) == project)

    def _slots(self, step_id: StepId) -> float:
        """What the workers that a step could use take."""
        return self._demands[step_id] * need_of(self._state.steps[step_id], is_wide=False)[SLOTS]

    def _project_of(self, step_id: StepId) -> str:
        return self._state.jobs[self._state.steps[step_id].job_key].queue

    def _owed(self) -> Iterator[QuotaOwed]:
        """What quotas guarantee, and projects could use and do not have."""
        for name, queue in self._state.queues.items():
            for pool, bounds in queue.settings.bounds():
                if bounds.quota:
                    held, wanted = self._in_pool(queue, pool)
                    owed = min(bounds.quota, wanted) - held
                    if owed > _COUNTS:
                        yield QuotaOwed(name, pool, bounds.quota, held, owed)

    def _in_pool(self, queue: Queue, pool: str) -> tuple[float, float]:
        """What a project has and could use of the nodes that are in a pool, in slots."""
        groups = groups_in(self._state, pool)
        held = slots_held(self._state, pool).get(queue.name, 0.0)
        slots = float(sum(group.slots for group in groups))
        wanted = sum(
            self._slots(step_id)
            for step_id in self._demands
            if self._project_of(step_id) == queue.name
            and any(is_in_pool(group.nodes[0], self._state.steps[step_id]) for group in groups)
        )
        return held, min(slots, wanted)

    def _changes(self, fair: float, wanted: float) -> Iterator[SettingChange]:
        """Settings by which the project would be entitled to more."""
        if wanted <= fair + _COUNTS:
            return
        settings = self._settings
        for pool, bounds in settings.bounds():
            if not math.isinf(bounds.limit):
                without = settings.with_pool(pool, bounds._replace(limit=math.inf))
                yield from self._change("limit", pool, math.inf, without, fair)
        if any(bounds.limit <= fair + _COUNTS for _, bounds in settings.bounds()):
            return  # whatever else is changed, the limit holds
        top = max((self._queues.get(name, QueueSettings()).priority for name in self._rivals()), default=0)
        if top < PRIORITY_MAX:
            higher = settings._replace(priority=max(top, settings.priority) + 1)
            yield from self._change("priority", WHOLE_CLUSTER, higher.priority, higher, fair)
        heavier = settings._replace(weight=min(float(WEIGHT_MAX), 2 * settings.weight))
        yield from self._change("weight", WHOLE_CLUSTER, heavier.weight, heavier, fair)
        bounds = settings.cluster
        quota = min(float(math.floor(wanted)), bounds.limit)
        if quota > bounds.quota:
            guaranteed = settings.with_pool(WHOLE_CLUSTER, bounds._replace(quota=quota))
            yield from self._change("quota", WHOLE_CLUSTER, quota, guaranteed, fair)

    def _rivals(self) -> set[str]:
        """Other projects whose steps could use workers."""
        return {self._project_of(step_id) for step_id, demand in self._demands.items() if demand} - {self._project}

    def _change(
        self, setting: str, pool: str, value: float, settings: QueueSettings, fair: float
    ) -> Iterator[SettingChange]:
        queues: Mapping[str, QueueSettings] = {**self._queues, self._project: settings}
        after = self._what_if.fair(self._demands, queues).projects.get(self._project, 0.0)
        if after > fair + _COUNTS:
            yield SettingChange(setting, pool, value, after)

    def _ends(self, ahead: Forecast, fair: float) -> Iterator[EndChange]:
        """The next ends of others by which the project is entitled to more."""
        told = 0
        for step_id, at_s, projects in ahead.ends:
            after = projects.get(self._project, 0.0)
            if self._project_of(step_id) != self._project and after > fair + _COUNTS and told < ENDS_MAX:
                fair, told = after, told + 1
                step = self._state.steps[step_id]
                job = self._state.jobs[step.job_key]
                yield EndChange(job.queue, job.job_id, step.settings.name, at_s, after)

    def _line(self, ahead: Forecast) -> Iterator[InLine]:
        for place, job_key in enumerate(ahead.line, 1):
            job = self._state.jobs[job_key]
            if job.queue == self._project:
                yield InLine(job.job_id, place, ahead.jobs[job_key].begin_s)

    def _steps(self, ahead: Forecast) -> list[StepAhead]:
        """The first ones of those of which a start or an end is known."""
        found = []
        for step_id, one in ahead.steps.items():
            step = self._state.steps[step_id]
            job = self._state.jobs[step.job_key]
            if job.queue == self._project and len(job.steps) > 1 and (one.begin_s or one.end_s is not None):
                found.append(StepAhead(job.job_id, step.settings.name, one))

        def next_s(one: StepAhead) -> tuple[float, bool, str, str]:
            begin_s, end_s = one.forecast.begin_s, one.forecast.end_s
            return begin_s or end_s or 0.0, bool(begin_s), one.job_id, one.step

        found.sort(key=next_s)
        return found[:STEPS_MAX]
