"""Queues: what each project may have of the cluster. A project has one queue, of its name."""

from __future__ import annotations

import builtins
import math
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.common.queue_settings import ADMITTED_JOBS, Bounds, QueueSettings
from windrow.sdk.job import moment_of

if TYPE_CHECKING:
    from windrow.rpc.connection import Connection
    from windrow.rpc.v1 import queue_service_pb2 as pb
    from windrow.sdk.forecast import Forecast
    from windrow.sdk.usage import Usage


class IdleGpu(NamedTuple):
    """A worker that holds GPUs and has used less than 5 % of them for ten minutes or more."""

    node_id: str
    job_id: str
    step: str
    process_number: int
    """As in process003."""
    gpus: float
    """How many it holds; below 1, a part of one."""
    idle_s: float
    """For how long it has not used them."""
    is_working: bool
    """Whether it has a mini-batch."""
    submitter: str = ""
    """Who has submitted the job; empty if nobody is known."""


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
    queued_jobs: int = 0
    """Of the open ones, those that are not admitted yet."""
    idle_gpus: tuple[IdleGpu, ...] = ()
    """Its workers that hold GPUs without using them, those that have done so longest first."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types, with times in ISO 8601."""
        changed = None if self.change_time is None else self.change_time.isoformat()
        idle = [one._asdict() for one in self.idle_gpus]
        return {**self._asdict(), "settings": self.settings.to_dict(), "change_time": changed, "idle_gpus": idle}


class QueuesNow(NamedTuple):
    """Queues by name, and the number of the last change of any."""

    queues: tuple[Queue, ...]
    revision: int


class QuotaOwed(NamedTuple):
    """What a project is guaranteed on some nodes, could use, and does not have yet, in slots. `pool`: "" for all."""

    project: str
    pool: str
    quota: float
    held: float
    owed: float


class OtherProject(NamedTuple):
    """What another project has and is entitled to, in slots."""

    project: str
    held_slots: float
    fair_slots: float


class SettingChange(NamedTuple):
    """A setting (`limit`, `quota`, `weight` or `priority`) by which a project would be entitled to more. `pool`: whose
    bounds it belongs to, "" for all nodes; `value`: what it would be, None for no limit.
    """

    setting: str
    pool: str
    value: float | None
    fair_slots: float


class EndChange(NamedTuple):
    """The end of another project's step, by which a project is entitled to more. With a token for one project, `job_id`
    and `step` are empty.
    """

    project: str
    job_id: str
    step: str
    end_s: float
    """From now."""
    fair_slots: float


class WaitingJob(NamedTuple):
    """A job that waits for its first worker. `place`: among those of all projects, from 1 on. `begin_s`: when it is
    likely to get one, from now; None: nobody knows.
    """

    job_id: str
    place: int
    begin_s: float | None


class StepAhead(NamedTuple):
    """A step of a job with several steps, and when it is likely to begin and end."""

    job_id: str
    step: str
    forecast: Forecast


class QueueExplanation(NamedTuple):
    """Where a project stands, in slots, and what would change that.

    Example:
        with windrow.Client("gpu1") as client:
            found = client.queues.explain("web")
            print(found.held_slots, "of", found.fair_slots, [job.job_id for job in found.waiting])
    """

    queue: Queue
    total_slots: float
    """Of all nodes that serve."""
    held_slots: float
    """What its live workers take."""
    fair_slots: float
    """What it is entitled to."""
    wanted_slots: float
    """What its steps could use now."""
    limited: bool
    """It has as much as its limits allow, and could use more."""
    owed: tuple[QuotaOwed, ...] = ()
    """Quotas that are owed, of any project; its own first."""
    others: tuple[OtherProject, ...] = ()
    """Those that have something or are entitled to something; those furthest above their share first."""
    changes: tuple[SettingChange, ...] = ()
    ends: tuple[EndChange, ...] = ()
    waiting: tuple[WaitingJob, ...] = ()
    """Its own, the next one first."""
    steps: tuple[StepAhead, ...] = ()
    """Of its jobs with several steps: those of which a start or an end is known, the next one first, at most 20."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        lists = ("owed", "others", "changes", "ends", "waiting")
        return {
            **self._asdict(),
            "queue": self.queue.to_dict(),
            **{name: [one._asdict() for one in getattr(self, name)] for name in lists},
            "steps": [{**one._asdict(), "forecast": one.forecast._asdict()} for one in self.steps],
        }


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

    def explain(self, name: str) -> QueueExplanation:
        """Why a project has what it has, in numbers, and what would change that. Raises RequestRefused
        (PROJECT_MISSING: the token is for another project).
        """
        from windrow.rpc.v1 import queue_service_pb2 as pb
        from windrow.sdk.forecast import forecast_from_message

        answer = self._connection.call(self._stub.ExplainQueue, pb.ExplainQueueRequest(name=name))
        return QueueExplanation(
            _queue(answer.queue),
            answer.total_slots,
            answer.held_slots,
            answer.fair_slots,
            answer.wanted_slots,
            answer.limited,
            tuple(QuotaOwed(one.project, one.pool, one.quota, one.held, one.owed) for one in answer.owed),
            tuple(OtherProject(one.project, one.held_slots, one.fair_slots) for one in answer.others),
            tuple(
                SettingChange(one.setting, one.pool, one.value if one.HasField("value") else None, one.fair_slots)
                for one in answer.changes
            ),
            tuple(
                EndChange(one.project, one.job_id, one.step, one.end_ms / 1000, one.fair_slots) for one in answer.ends
            ),
            tuple(
                WaitingJob(one.job_id, one.place, one.begin_ms / 1000 if one.HasField("begin_ms") else None)
                for one in answer.waiting
            ),
            tuple(StepAhead(one.job_id, one.step, forecast_from_message(one.forecast)) for one in answer.steps),
        )

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
            message.weight, message.priority, message.admitted_jobs = one.weight, one.priority, one.admitted_jobs
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
            settings.admitted_jobs if settings.HasField("admitted_jobs") else ADMITTED_JOBS,
        ),
        revision=message.revision,
        change_time=moment_of(message, "change_time"),
        changed_by=message.changed_by,
        open_jobs=use.open_jobs,
        fair_slots=use.fair_slots,
        workers=use.workers,
        ready=use.ready,
        leased=use.leased,
        queued_jobs=use.queued_jobs,
        idle_gpus=tuple(
            IdleGpu(
                one.node_id,
                one.job_id,
                one.step,
                one.process_number,
                one.gpus,
                one.idle_ms / 1000,
                one.is_working,
                one.submitter,
            )
            for one in message.idle_gpus
        ),
    )
