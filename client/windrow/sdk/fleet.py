"""Fleets: programs that get agents from an engine as the queue needs them, and what they have asked for."""

from __future__ import annotations

import builtins
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.errors import UsageError
from windrow.sdk.job import moment_of

if TYPE_CHECKING:
    from windrow.rpc.connection import Connection
    from windrow.rpc.v1 import fleet_service_pb2 as pb

LIVE_STATES = ("begun", "queued", "started")
"""Of allocations that have not ended."""
_STATES = ("unknown", *LIVE_STATES, "completed", "preempted", "expired", "cancelled", "failed", "lost")
ENDED_MAX = 10_000
FROM_FILE = -1
"""A bound for `Fleets.scale`: what the group's file says holds again."""


class Allocation(NamedTuple):
    """What a fleet has asked an engine for: one agent."""

    name: str
    """Also the id of its node."""
    group: str
    state: str
    """begun, queued, started, completed, preempted, expired, cancelled, failed or lost."""
    engine_id: str = ""
    """What the engine calls it; empty: it has not said."""
    reason: str = ""
    """Why it is in this state, in the engine's own words where it has any."""
    begin_time: datetime | None = None
    """When the master wrote it, before the engine was asked."""
    queue_time: datetime | None = None
    start_time: datetime | None = None
    join_time: datetime | None = None
    end_time: datetime | None = None
    node_id: str = ""
    """The node that its agent is, or was; empty: no agent has joined."""
    is_alive: bool = False
    """That node serves now."""
    is_busy: bool = False
    """That node has leases or workers."""
    is_leaving: bool = False
    """That node takes nothing new."""

    @property
    def has_ended(self) -> bool:
        """Whether nothing more comes of it."""
        return self.state not in LIVE_STATES

    def hours_since(self, since: datetime, now: datetime) -> float:
        """The hours for which it had an agent, from a moment on."""
        if self.start_time is None:
            return 0.0
        lived = min(self.end_time or now, now) - max(self.start_time, since)
        return max(lived, timedelta()) / timedelta(hours=1)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types, with times in ISO 8601."""
        return {name: _plain(value) for name, value in self._asdict().items()}


class FleetGroup(NamedTuple):
    """Agents of one kind, from one engine."""

    name: str
    provider: str
    pool: str
    """Empty: its agents serve steps of all pools."""
    slots: float
    memory_bytes: int
    """0: nobody said."""
    gpus: int
    min: int
    """So many agents stay. What someone has set counts instead of the file."""
    max: int
    """So many it has at most."""
    min_set: int | None = None
    max_set: int | None = None
    exit_idle_s: float = 0.0
    lifetime_s: float | None = None
    price_per_hour: float = 0.0
    """Of one agent; 0: nobody said."""
    wanted: int = 0
    """So many agents it wants alive."""
    reason: str = ""
    """Why it has not more."""
    retry_time: datetime | None = None
    """Until when it asks for nothing more by itself."""
    failures: int = 0
    """Submissions in a row that failed, and agents in a row that never joined."""
    begun: int = 0
    """Allocations of which nobody knows yet whether the engine has them."""
    queued: int = 0
    started: int = 0
    alive: int = 0
    """Agents that serve."""
    busy: int = 0
    """Agents that have something to do."""
    ended: Mapping[str, int] = MappingProxyType({})
    """Allocations that ended in the last 24 hours, by state."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types, with times in ISO 8601."""
        return {name: _plain(value) for name, value in self._asdict().items()}


class Fleet(NamedTuple):
    """A fleet, at one moment.

    Example:
        with windrow.Client("gpu1") as client:
            for fleet in client.fleets.list():
                print(fleet.name, [(group.name, group.alive, group.reason) for group in fleet.groups])
    """

    name: str
    groups: tuple[FleetGroup, ...] = ()
    program: str = ""
    """The program that has it: host and process, in words."""
    program_time: datetime | None = None
    """Since when that program has had it."""
    silent_s: float | None = None
    """Since that program was heard; None: not since the master started."""
    paused: bool = False
    paused_by: str = ""
    """Who has paused or resumed it last; empty: nobody has, or the master asks for no token."""
    pause_time: datetime | None = None
    revision: int = 0
    allocations: tuple[Allocation, ...] | None = None
    """Those that have not ended, and the last that have; None: they were not asked for."""

    def cost_today(self, group: str, now: datetime | None = None) -> float | None:
        """What the agents of a group have cost today (UTC), as far as its allocations are known; None: without a price,
        or if nobody asked for allocations.
        """
        found = next((one for one in self.groups if one.name == group), None)
        if found is None or not found.price_per_hour or self.allocations is None:
            return None
        now = now or datetime.now(UTC)
        day = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        hours = sum(one.hours_since(day, now) for one in self.allocations if one.group == group)
        return found.price_per_hour * hours

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types, with times in ISO 8601."""
        told = {name: _plain(value) for name, value in self._asdict().items()}
        told["groups"] = [group.to_dict() for group in self.groups]
        told["allocations"] = None if self.allocations is None else [one.to_dict() for one in self.allocations]
        return told


class Fleets:
    """The fleets of one master."""

    def __init__(self, connection: Connection) -> None:
        from windrow.rpc.v1 import fleet_service_pb2_grpc

        self._connection = connection
        self._stub: Any = fleet_service_pb2_grpc.FleetServiceStub(connection.channel)

    def list(self) -> builtins.list[Fleet]:
        """All fleets, by name, without their allocations."""
        from windrow.rpc.v1 import fleet_service_pb2 as pb

        answer = self._connection.call(self._stub.ListFleets, pb.ListFleetsRequest())
        return [_fleet(one.fleet, _counts(one.counts)) for one in answer.fleets]

    def get(self, name: str, *, ended_max: int = 100) -> Fleet:
        """One fleet with its allocations: those that have not ended, and `ended_max` that have. Raises NotFound."""
        from windrow.rpc.v1 import fleet_service_pb2 as pb

        answer = self._connection.call(self._stub.GetFleet, pb.GetFleetRequest(name=name, ended_max=ended_max))
        allocations = tuple(map(_allocation, answer.allocations))
        counts: dict[tuple[str, str], Counter[str]] = {}
        for one in allocations:
            count = counts.setdefault((one.group, one.state), Counter())
            count.update(count=1, alive=int(one.is_alive), busy=int(one.is_busy))
        return _fleet(answer.fleet, counts)._replace(allocations=allocations)

    def pause(self, name: str) -> Fleet:
        """Have a fleet ask for nothing more. Its agents stay. Raises NotFound."""
        return self._update(name, paused=True)

    def resume(self, name: str) -> Fleet:
        """Have a fleet ask again, also for what it has put off because asking failed. Raises NotFound."""
        return self._update(name, paused=False)

    def scale(self, name: str, group: str, *, min: int | None = None, max: int | None = None) -> Fleet:
        """Set how many agents a group may have, instead of its file. None stays; FROM_FILE: as its file says. Raises
        NotFound, RequestRefused (FLEET_INVALID), UsageError.
        """
        from windrow.rpc.v1 import fleet_service_pb2 as pb

        if min is None and max is None:
            raise UsageError("Nothing is to be set. Give a min, a max, or both.")
        now = next((one for one in self.get(name, ended_max=1).groups if one.name == group), None)
        bounds = pb.GroupBounds(group=group)
        least = now.min_set if min is None and now is not None else min
        most = now.max_set if max is None and now is not None else max
        if least is not None and least != FROM_FILE:
            bounds.min = least
        if most is not None and most != FROM_FILE:
            bounds.max = most
        return self._update(name, bounds=[bounds])

    def delete(self, name: str) -> None:
        """Forget a fleet without a program and without allocations. Raises NotFound, RequestRefused (FLEET_IN_USE)."""
        from windrow.rpc.v1 import fleet_service_pb2 as pb

        self._connection.call(self._stub.DeleteFleet, pb.DeleteFleetRequest(name=name))

    def _update(self, name: str, **change: Any) -> Fleet:
        from windrow.rpc.v1 import fleet_service_pb2 as pb

        answer = self._connection.call(self._stub.UpdateFleet, pb.UpdateFleetRequest(name=name, **change))
        return _fleet(answer.fleet, {})


def _counts(messages: Any) -> dict[tuple[str, str], Counter[str]]:
    """How many allocations there are, alive and busy ones, by group and state."""
    return {
        (one.group, _STATES[one.state]): Counter(count=one.count, alive=one.alive, busy=one.busy) for one in messages
    }


def _fleet(message: pb.Fleet, counts: dict[tuple[str, str], Counter[str]]) -> Fleet:
    return Fleet(
        name=message.name,
        groups=tuple(_group(group, counts) for group in message.groups),
        program=message.program,
        program_time=moment_of(message, "program_time"),
        silent_s=message.silent_ms / 1000 if message.HasField("silent_ms") else None,
        paused=message.paused,
        paused_by=message.paused_by,
        pause_time=moment_of(message, "pause_time"),
        revision=message.revision,
    )


def _group(message: pb.FleetGroup, counts: dict[tuple[str, str], Counter[str]]) -> FleetGroup:
    own = {state: count for (group, state), count in counts.items() if group == message.name}
    min_set = message.min_set if message.HasField("min_set") else None
    max_set = message.max_set if message.HasField("max_set") else None
    return FleetGroup(
        name=message.name,
        provider=message.provider,
        pool=message.pool,
        slots=message.shape.slots,
        memory_bytes=message.shape.memory_bytes,
        gpus=message.shape.gpus,
        min=message.min if min_set is None else min_set,
        max=message.max if max_set is None else max_set,
        min_set=min_set,
        max_set=max_set,
        exit_idle_s=message.exit_idle.ToTimedelta().total_seconds(),
        lifetime_s=message.lifetime.ToTimedelta().total_seconds() if message.HasField("lifetime") else None,
        price_per_hour=message.price_per_hour,
        wanted=message.status.wanted,
        reason=message.status.reason,
        retry_time=moment_of(message.status, "retry_time"),
        failures=message.status.failed + message.status.unjoined,
        begun=own.get("begun", Counter())["count"],
        queued=own.get("queued", Counter())["count"],
        started=own.get("started", Counter())["count"],
        alive=sum(count["alive"] for count in own.values()),
        busy=sum(count["busy"] for count in own.values()),
        ended={state: count["count"] for state, count in sorted(own.items()) if state not in LIVE_STATES},
    )


def _allocation(message: pb.Allocation) -> Allocation:
    return Allocation(
        message.name,
        message.group,
        _STATES[message.state],
        message.engine_id,
        message.reason,
        moment_of(message, "begin_time"),
        moment_of(message, "queue_time"),
        moment_of(message, "start_time"),
        moment_of(message, "join_time"),
        moment_of(message, "end_time"),
        message.node_id,
        message.is_alive,
        message.is_busy,
        message.is_leaving,
    )


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return dict(value) if isinstance(value, Mapping) else value
