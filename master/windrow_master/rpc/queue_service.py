"""QueueService: what each project may have of the cluster, and has spent."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import grpc
from windrow.common.queue_settings import (
    ADMITTED_JOBS,
    ADMITTED_JOBS_MAX,
    PRIORITY_MAX,
    SLOTS_MAX,
    WEIGHT_MAX,
    WEIGHT_MIN,
    Bounds,
    QueueSettings,
)
from windrow.rpc import errors
from windrow.rpc.v1 import queue_service_pb2 as pb
from windrow.rpc.v1 import queue_service_pb2_grpc

from windrow_master.core.commands import Moment, SetQueues
from windrow_master.core.gpus import IdleGpu, idle_gpus
from windrow_master.core.queue_reasons import QueueReason, reason_of_queue
from windrow_master.core.queues import QueueUse, uses
from windrow_master.core.state import Queue
from windrow_master.identity.principals import caller
from windrow_master.reports.usage import ROWS_MAX, Key, TooManyRows, Usage, usage_of
from windrow_master.rpc.forecast_views import milliseconds, step_forecast
from windrow_master.rpc.names import NAME, not_a_project
from windrow_master.rpc.refusals import Context, accepted
from windrow_master.shell.standby import Standby
from windrow_master.store.protocol import StoreReader
from windrow_master.threads import in_thread


class QueueService(queue_service_pb2_grpc.QueueServiceServicer):
    """Turns calls into commands, and queues into messages."""

    def __init__(self, standby: Standby, reader: StoreReader) -> None:
        self._standby = standby
        self._reader = reader

    async def ListQueues(self, request: pb.ListQueuesRequest, context: Context) -> pb.ListQueuesResponse:
        """The queues that the caller sees."""
        state, by = self._standby.changes().state, caller()
        found = uses(state)
        if by.project:
            found = {by.project: found.get(by.project, QueueUse())}
        idle = idle_gpus(state, Moment(time.monotonic(), time.time()), project=by.project or None)
        queues = [_message(name, state.queues.get(name), use, idle) for name, use in sorted(found.items())]
        return pb.ListQueuesResponse(queues=queues, revision=state.queue_revision)

    async def ExplainQueue(self, request: pb.ExplainQueueRequest, context: Context) -> pb.ExplainQueueResponse:
        """Say why a project has what it has, and what would change that."""
        by = caller()
        if not NAME.fullmatch(request.name):
            why = not_a_project(request.name)
            await errors.abort(context, grpc.StatusCode.INVALID_ARGUMENT, errors.REQUEST_INVALID, why)
        if not by.sees(request.name):
            why = f"The token {by.name!r} is for the project {by.project}, and does not see {request.name}."
            await errors.abort(context, grpc.StatusCode.PERMISSION_DENIED, errors.PROJECT_MISSING, why)
        state = self._standby.changes().state
        reason = reason_of_queue(state, request.name, Moment(time.monotonic(), time.time()))
        use = uses(state).get(request.name, QueueUse())
        idle = idle_gpus(state, Moment(time.monotonic(), time.time()), project=request.name)
        queue = _message(request.name, state.queues.get(request.name), use, idle)
        return _reason_message(reason, queue, is_one_project=bool(by.project))

    async def SetQueues(self, request: pb.SetQueuesRequest, context: Context) -> pb.SetQueuesResponse:
        """Change settings; answered when they are durable."""
        if why := next(filter(None, map(_why_invalid, request.queues, request.queues.values())), ""):
            await errors.abort(context, grpc.StatusCode.INVALID_ARGUMENT, errors.QUEUE_INVALID, why)
        changed = await self._standby.changes().set_queues(
            SetQueues(
                {name: _settings(message) for name, message in request.queues.items()},
                only=request.only,
                revision=request.revision if request.HasField("revision") else None,
                overcommit=request.overcommit,
                by=caller().name,
            )
        )
        changed = await accepted(context, changed)
        state = self._standby.changes().state
        found = uses(state)
        return pb.SetQueuesResponse(
            queues=[_message(queue.name, queue, found.get(queue.name, QueueUse())) for queue in changed],
            revision=state.queue_revision,
        )

    async def GetUsage(self, request: pb.GetUsageRequest, context: Context) -> pb.GetUsageResponse:
        """What worker time was spent on, as far as the caller sees it."""
        own = caller().project
        if any(key not in _KEYS for key in request.by):
            why = "Usage is added up by project, user, job, pool and day."
            await errors.abort(context, grpc.StatusCode.INVALID_ARGUMENT, errors.USAGE_INVALID, why)
        if own and request.project not in ("", own):
            return pb.GetUsageResponse()
        by = [_KEYS[key] for key in dict.fromkeys(request.by)]
        try:
            found = await in_thread(
                usage_of, self._reader, request.first_day, request.last_day, own or request.project, by
            )
        except TooManyRows:
            why = f"The answer would have more than {ROWS_MAX:,} rows. Ask for fewer days, or by fewer keys."
            await errors.abort(context, grpc.StatusCode.FAILED_PRECONDITION, errors.USAGE_TOO_LARGE, why)
        return pb.GetUsageResponse(usage=map(_usage_message, found))


_KEYS = {
    pb.USAGE_KEY_PROJECT: Key.PROJECT,
    pb.USAGE_KEY_USER: Key.USER,
    pb.USAGE_KEY_JOB: Key.JOB,
    pb.USAGE_KEY_POOL: Key.POOL,
    pb.USAGE_KEY_DAY: Key.DAY,
}
_SUMS = ("useful_us", "retried_us", "lost_us", "preempted_us", "cancelled_us", "started_us", "lived_us")


def _usage_message(usage: Usage) -> pb.Usage:
    keys: dict[str, Any] = {("user" if key is Key.USER else str(key)): value for key, value in usage.keys.items()}
    keys.update(zip(_SUMS, usage.sums, strict=True))
    return pb.Usage(**keys)


def _reason_message(reason: QueueReason, queue: pb.Queue, *, is_one_project: bool) -> pb.ExplainQueueResponse:
    """`is_one_project`: the caller sees no other, nor names of its jobs."""
    return pb.ExplainQueueResponse(
        queue=queue,
        total_slots=reason.total,
        held_slots=reason.held,
        fair_slots=reason.fair,
        wanted_slots=reason.wanted,
        limited=reason.limited,
        owed=[pb.QuotaOwed(**one._asdict()) for one in reason.owed],
        others=[
            pb.OtherProject(project=one.project, held_slots=one.held, fair_slots=one.fair) for one in reason.others
        ],
        changes=[
            pb.SettingChange(
                setting=one.setting,
                pool=one.pool,
                value=None if math.isinf(one.value) else one.value,
                fair_slots=one.fair,
            )
            for one in reason.settings_changes
        ],
        ends=[
            pb.EndChange(
                project=one.project,
                job_id="" if is_one_project else one.job_id,
                step="" if is_one_project else one.step,
                end_ms=round(one.at_s * 1000),
                fair_slots=one.fair,
            )
            for one in reason.ends
        ],
        waiting=[
            pb.WaitingJob(job_id=one.job_id, place=one.place, begin_ms=milliseconds(one.begin_s)) for one in reason.line
        ],
        steps=[
            pb.StepAhead(job_id=one.job_id, step=one.step, forecast=step_forecast(one.forecast)) for one in reason.steps
        ],
    )


def _why_invalid(name: str, settings: pb.QueueSettings) -> str:
    """Why settings cannot be those of a queue; empty if they can."""
    of = f"Queue {name[:80]!r}"
    if not NAME.fullmatch(name):
        return not_a_project(name)
    if not WEIGHT_MIN <= (settings.weight if settings.HasField("weight") else 1.0) <= WEIGHT_MAX:
        return f"{of}: a weight is a number from {WEIGHT_MIN:g} to {WEIGHT_MAX:g}, not {settings.weight:g}."
    if abs(settings.priority) > PRIORITY_MAX:
        return f"{of}: a priority is a whole number from -{PRIORITY_MAX} to {PRIORITY_MAX}, not {settings.priority}."
    if settings.HasField("admitted_jobs") and not 1 <= settings.admitted_jobs <= ADMITTED_JOBS_MAX:
        return f"{of}: 1 to {ADMITTED_JOBS_MAX:,} jobs can be admitted, not {settings.admitted_jobs:,}."
    for pool, bounds in [("", settings.cluster), *settings.pools.items()]:
        if pool and not NAME.fullmatch(pool):
            return f"{of}: {pool[:80]!r} is not a valid name of a pool."
        for what, number in (("quota", bounds.quota), ("limit", bounds.limit)):
            if not 0 <= number <= SLOTS_MAX:
                return f"{of}: a {what} is a number of slots, 0 or more, not {number:g}."
    return ""


def _settings(message: pb.QueueSettings) -> QueueSettings:
    pools: Mapping[str, Any] = message.pools
    return QueueSettings(
        message.weight if message.HasField("weight") else 1.0,
        message.priority,
        _bounds(message.cluster),
        {pool: _bounds(bounds) for pool, bounds in sorted(pools.items())},
        message.admitted_jobs if message.HasField("admitted_jobs") else ADMITTED_JOBS,
    )


def _bounds(message: pb.QueueBounds) -> Bounds:
    return Bounds(message.quota, message.limit if message.HasField("limit") else math.inf)


def _bounds_message(bounds: Bounds) -> pb.QueueBounds:
    return pb.QueueBounds(quota=bounds.quota, limit=None if math.isinf(bounds.limit) else bounds.limit)


def _message(name: str, queue: Queue | None, use: QueueUse, idle: Sequence[IdleGpu] = ()) -> pb.Queue:
    settings = QueueSettings() if queue is None else queue.settings
    message = pb.Queue(
        name=name,
        settings=pb.QueueSettings(
            weight=settings.weight,
            priority=settings.priority,
            cluster=_bounds_message(settings.cluster),
            pools={pool: _bounds_message(bounds) for pool, bounds in settings.pools.items()},
            admitted_jobs=settings.admitted_jobs,
        ),
        use=pb.QueueUse(
            open_jobs=use.open_jobs,
            fair_slots=use.fair,
            workers=use.workers,
            ready=use.ready,
            leased=use.leased,
            queued_jobs=use.queued_jobs,
        ),
        idle_gpus=[
            pb.IdleGpu(
                node_id=one.node_id,
                job_id=one.job_id,
                step=one.step,
                process_number=one.process_number,
                gpus=one.gpus,
                idle_ms=round(one.idle_s * 1000),
                is_working=one.is_working,
                submitter=one.submitter,
            )
            for one in idle
            if one.project == name
        ],
    )
    if queue is not None:
        message.revision, message.changed_by = queue.revision, queue.changed_by
        message.change_time.FromNanoseconds(int(queue.change_time * 1e9))
    return message
