"""Messages of the fleet service: what the master says of a fleet, and what its program says to the master."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from windrow.fleet.cost import hours_of_day
from windrow.fleet.decision import Held
from windrow.fleet.demand import Agents, Demand
from windrow.fleet.provider import Shape
from windrow.fleet.reconciling import Report
from windrow.fleet.settings import FleetSettings, GroupSettings
from windrow.rpc.v1 import fleet_service_pb2 as pb
from windrow.sdk.job import moment_of

_STATE_PREFIX = "ALLOCATION_STATE_"


def shape_of(message: pb.AgentShape) -> Shape:
    """A shape of the protocol."""
    return Shape(message.slots, message.memory_bytes, message.gpus)


def demand_of(message: pb.Demand) -> Demand:
    """A demand of the protocol."""
    return Demand(
        message.pool,
        shape_of(message.worker),
        message.ready,
        message.leased,
        message.ready_seconds,
        message.ready_unmeasured,
        message.workers_max,
        message.min_nodes,
        message.unknown_steps,
        message.longest_seconds,
        message.gpu_share,
    )


def others_of(answer: pb.SyncFleetResponse) -> list[Agents]:
    """The agents that are in no allocation of the fleet."""
    return [Agents("", one.pool, shape_of(one.shape), one.count) for one in answer.others]


def with_bounds(settings: FleetSettings, fleet: pb.Fleet) -> list[GroupSettings]:
    """The groups with the bounds that hold now: the file's, or what someone has set instead."""
    set_now = {one.name: one for one in fleet.groups}
    groups = []
    for group in settings.groups:
        one = set_now.get(group.name, pb.FleetGroup())
        most = one.max_set if one.HasField("max_set") else group.max
        least = one.min_set if one.HasField("min_set") else group.min
        groups.append(group._replace(min=min(least, most), max=most))
    return groups


def group_message(group: GroupSettings) -> pb.FleetGroup:
    """A group as its file says."""
    message = pb.FleetGroup(
        name=group.name,
        pool=group.pool,
        provider=group.provider,
        shape=pb.AgentShape(slots=group.shape.slots, memory_bytes=group.shape.memory_bytes, gpus=group.shape.gpus),
        min=group.min,
        max=group.max,
        price_per_hour=group.price_per_hour,
    )
    message.exit_idle.FromTimedelta(timedelta(seconds=group.exit_idle_s))
    if group.lifetime_s is not None:
        message.lifetime.FromTimedelta(timedelta(seconds=group.lifetime_s))
    return message


def held_of(message: pb.Allocation) -> Held:
    """An allocation of the protocol that has not ended."""
    return Held(
        message.name,
        message.group,
        pb.AllocationState.Name(message.state).removeprefix(_STATE_PREFIX).lower(),
        message.engine_id,
        message.HasField("join_time"),
        message.is_alive,
        message.is_busy,
        message.is_leaving,
        reason=message.reason,
    )


def spent_today(group: str, price_per_hour: float, answer: pb.GetFleetResponse) -> float:
    """What the agents of a group have cost today (UTC)."""
    spans = [
        (moment_of(one, "start_time"), moment_of(one, "end_time")) for one in answer.allocations if one.group == group
    ]
    return price_per_hour * hours_of_day(spans, datetime.now(UTC))


def report_message(group: str, report: Report) -> pb.AllocationReport:
    """What became of an allocation."""
    return pb.AllocationReport(
        name=report.name,
        group=group,
        engine_id=report.engine_id,
        state=pb.AllocationState.Value(f"{_STATE_PREFIX}{report.state.upper()}"),
        reason=report.reason,
    )
