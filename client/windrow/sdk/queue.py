"""Queues: what each project may have of the cluster. A project has one queue, of its name."""

from __future__ import annotations

import builtins
import math
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.common.queue_settings import Bounds, QueueSettings
from windrow.sdk.job import moment_of

if TYPE_CHECKING:
    from windrow.rpc.connection import Connection
    from windrow.rpc.v1 import queue_service_pb2 as pb
    from windrow.sdk.usage import Usage


class Queue(NamedTuple):
    """The queue of a project, at one moment.

    Example:
        with windrow.Client("gpu1") as client:
            print([queue.name for queue in client.queues.list().queues if queue.workers < queue.settings.cluster.quota])
    """

    name: str
    settings: QueueSettings = QueueSettings()
    revision: int = 0
    """The number of the change that set this last; 0: these are the defaults."""
    change_time: datetime | None = None
    changed_by: str = ""
    """The name of the token that changed it; empty if the master asked for none."""
    open_jobs: int = 0
    fair_slots: float = 0.0
    """What it is entitled to now."""
    workers: int = 0
    """Of its steps, on all nodes."""
    ready: int = 0
    """Mini-batches that wait to run."""
    leased: int = 0
    """Mini-batches that are leased to nodes."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types, with times in ISO 8601."""
        changed = None if self.change_time is None else self.change_time.isoformat()
        return {**self._asdict(), "settings": self.settings.to_dict(), "change_time": changed}


class QueuesNow(NamedTuple):
    """Queues by name, and the number of the last change of any."""

    queues: tuple[Queue, ...]
    revision: int


class Queues:
    """The queues of one master."""

    def __init__(self, connection: Connection) -> None:
        from windrow.rpc.v1 import queue_service_pb2_grpc

        self._connection = connection
        self._stub: Any = queue_service_pb2_grpc.QueueServiceStub(connection.channel)

    def list(self) -> QueuesNow:
        """Those with settings, and those with open jobs; with a token for one project, only its own."""
        from windrow.rpc.v1 import queue_service_pb2 as pb

        answer = self._connection.call(self._stub.ListQueues, pb.ListQueuesRequest())
        return QueuesNow(tuple(map(_queue, answer.queues)), answer.revision)

    def get(self, name: str) -> Queue:
        """One queue; the defaults where nobody has set anything."""
        return next((queue for queue in self.list().queues if queue.name == name), Queue(name))

    def set(
        self,
        settings: Mapping[str, QueueSettings],
        *,
        only: bool = False,
        revision: int | None = None,
        overcommit: bool = False,
    ) -> QueuesNow:
        """Change queues: all that are named, or none. Return those that have changed. Needs the role admin.

        `only`: all others get the defaults. `revision`: the one that the change was made for. `overcommit`: more may be
        guaranteed than the nodes that the master knows now have. Raises RequestRefused (QUEUES_CHANGED, QUEUE_INVALID,
        QUOTA_TOO_LARGE).
        """
        from windrow.rpc.v1 import queue_service_pb2 as pb

        request = pb.SetQueuesRequest(only=only, revision=revision, overcommit=overcommit)
        for name, one in settings.items():
            message = request.queues[name]
            message.weight, message.priority = one.weight, one.priority
            _put(message.cluster, one.cluster)
            for pool, bounds in one.pools.items():
                _put(message.pools[pool], bounds)
        answer = self._connection.call(self._stub.SetQueues, request)
        return QueuesNow(tuple(map(_queue, answer.queues)), answer.revision)

    def usage(
        self,
        by: Iterable[str] = (),
        *,
        since: date | None = None,
        until: date | None = None,
        project: str = "",
    ) -> builtins.list[Usage]:
        """What worker time was spent on, added up by project, user, job, pool and day, as far as `by` names them; also
        of jobs that are deleted. Runs on this machine have a usage, too, though no queues.

        `since`, `until`: the first and the last day (UTC), or moments in them; by default the last week. `project`:
        only of this one. Raises UsageError for another key, RequestRefused (USAGE_TOO_LARGE).
        """
        from windrow.sdk.usage import usage_of

        return usage_of(self._connection, self._stub, by, since, until, project)


def _put(message: pb.QueueBounds, bounds: Bounds) -> None:
    message.quota = bounds.quota
    if not math.isinf(bounds.limit):
        message.limit = bounds.limit


def _bounds(message: pb.QueueBounds) -> Bounds:
    return Bounds(message.quota, message.limit if message.HasField("limit") else math.inf)


def _queue(message: pb.Queue) -> Queue:
    settings, use = message.settings, message.use
    return Queue(
        name=message.name,
        settings=QueueSettings(
            settings.weight if settings.HasField("weight") else 1.0,
            settings.priority,
            _bounds(settings.cluster),
            {pool: _bounds(bounds) for pool, bounds in sorted(settings.pools.items())},
        ),
        revision=message.revision,
        change_time=moment_of(message, "change_time"),
        changed_by=message.changed_by,
        open_jobs=use.open_jobs,
        fair_slots=use.fair_slots,
        workers=use.workers,
        ready=use.ready,
        leased=use.leased,
    )
