"""QueueService: what each project may have of the cluster."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import grpc
from windrow.common.queue_settings import Bounds, QueueSettings
from windrow.rpc import errors
from windrow.rpc.v1 import queue_service_pb2 as pb
from windrow.rpc.v1 import queue_service_pb2_grpc

from windrow_master.core.commands import SetQueues
from windrow_master.core.queues import QueueUse, uses
from windrow_master.core.state import Queue
from windrow_master.identity.principals import caller
from windrow_master.rpc.names import NAME
from windrow_master.rpc.refusals import Context, accepted
from windrow_master.shell.changes import Changes

PRIORITY_MAX = 1_000
WEIGHT_MAX = 1_000.0
WEIGHT_MIN = 0.001
SLOTS_MAX = 1e9


class QueueService(queue_service_pb2_grpc.QueueServiceServicer):
    """Turns calls into commands, and queues into messages."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes

    async def ListQueues(self, request: pb.ListQueuesRequest, context: Context) -> pb.ListQueuesResponse:
        """The queues that the caller sees."""
        state, by = self._changes.state, caller()
        found = uses(state)
        if by.project:
            found = {by.project: found.get(by.project, QueueUse())}
        queues = [_message(name, state.queues.get(name), use) for name, use in sorted(found.items())]
        return pb.ListQueuesResponse(queues=queues, revision=state.queue_revision)

    async def SetQueues(self, request: pb.SetQueuesRequest, context: Context) -> pb.SetQueuesResponse:
        """Change settings; answered when they are durable."""
        if why := next(filter(None, map(_why_invalid, request.queues, request.queues.values())), ""):
            await errors.abort(context, grpc.StatusCode.INVALID_ARGUMENT, errors.QUEUE_INVALID, why)
        changed = await self._changes.set_queues(
            SetQueues(
                {name: _settings(message) for name, message in request.queues.items()},
                only=request.only,
                revision=request.revision if request.HasField("revision") else None,
                overcommit=request.overcommit,
                by=caller().name,
            )
        )
        changed = await accepted(context, changed)
        state = self._changes.state
        found = uses(state)
        return pb.SetQueuesResponse(
            queues=[_message(queue.name, queue, found.get(queue.name, QueueUse())) for queue in changed],
            revision=state.queue_revision,
        )


def _why_invalid(name: str, settings: pb.QueueSettings) -> str:
    """Why settings cannot be those of a queue; empty if they can."""
    of = f"Queue {name[:80]!r}"
    if not NAME.fullmatch(name):
        return f"{of} is not a valid name of a project: use at most 64 letters, digits, '_', '.' and '-'."
    if not WEIGHT_MIN <= (settings.weight if settings.HasField("weight") else 1.0) <= WEIGHT_MAX:
        return f"{of}: a weight is a number from {WEIGHT_MIN:g} to {WEIGHT_MAX:g}, not {settings.weight:g}."
    if abs(settings.priority) > PRIORITY_MAX:
        return f"{of}: a priority is a whole number from -{PRIORITY_MAX} to {PRIORITY_MAX}, not {settings.priority}."
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
    )


def _bounds(message: pb.QueueBounds) -> Bounds:
    return Bounds(message.quota, message.limit if message.HasField("limit") else math.inf)


def _bounds_message(bounds: Bounds) -> pb.QueueBounds:
    return pb.QueueBounds(quota=bounds.quota, limit=None if math.isinf(bounds.limit) else bounds.limit)


def _message(name: str, queue: Queue | None, use: QueueUse) -> pb.Queue:
    settings = QueueSettings() if queue is None else queue.settings
    message = pb.Queue(
        name=name,
        settings=pb.QueueSettings(
            weight=settings.weight,
            priority=settings.priority,
            cluster=_bounds_message(settings.cluster),
            pools={pool: _bounds_message(bounds) for pool, bounds in settings.pools.items()},
        ),
        use=pb.QueueUse(
            open_jobs=use.open_jobs,
            fair_slots=use.fair,
            workers=use.workers,
            ready=use.ready,
            leased=use.leased,
        ),
    )
    if queue is not None:
        message.revision, message.changed_by = queue.revision, queue.changed_by
        message.change_time.FromNanoseconds(int(queue.change_time * 1e9))
    return message
