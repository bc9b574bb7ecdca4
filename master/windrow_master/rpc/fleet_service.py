"""FleetService: what fleets say of themselves, and hear of what the steps need."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator

import grpc
from windrow.rpc import errors
from windrow.rpc.v1 import fleet_service_pb2 as pb
from windrow.rpc.v1 import fleet_service_pb2_grpc

from windrow_master.core.allocations import Allocation, Fleet, FleetGroup, GroupStatus, Shape
from windrow_master.core.commands import (
    AllocationReport,
    BeginAllocations,
    DeleteFleet,
    Moment,
    SyncFleet,
    UpdateFleet,
)
from windrow_master.core.fleet_bounds import why_not_begun, why_not_changed, why_not_synced
from windrow_master.core.fleets import Others, fleet_not_found, others, outlook, served
from windrow_master.core.outlook import Demand, Worker
from windrow_master.core.state import CoreState
from windrow_master.core.states import AllocationState
from windrow_master.identity.principals import caller
from windrow_master.rpc.refusals import Context, accepted
from windrow_master.rpc.views import seconds_of, timestamp
from windrow_master.shell.standby import Standby

ENDED_SHOWN = 100
KEPT_MORE = 1_000
"""So many messages are kept beyond twice those of the allocations that have not ended."""
COUNTED_S = 86_400.0
"""Of allocations that have ended, `ListFleets` counts those of this time."""


class FleetService(fleet_service_pb2_grpc.FleetServiceServicer):
    """Turns calls into commands, and fleets into messages."""

    def __init__(self, standby: Standby, note_taken: Callable[[Context, str, str, str], None]) -> None:
        """`note_taken`: notes that a fleet has another program: the call, the fleet, its program and the one before."""
        self._standby = standby
        self._note_taken = note_taken
        self._allocations = _AllocationMessages()

    async def SyncFleet(self, request: pb.SyncFleetRequest, context: Context) -> pb.SyncFleetResponse:
        """Hear a fleet's program, and tell it what is wanted; answered when what it said is durable."""
        if request.look_only:
            return self._looked(request.fleet)
        await _need_valid(context, why_not_synced(request))
        reply = await accepted(
            context,
            await self._standby.changes().sync_fleet(
                SyncFleet(
                    request.fleet,
                    request.program_incarnation,
                    request.program,
                    tuple(map(_group, request.groups)),
                    tuple(map(_report, request.reports)),
                )
            ),
        )
        if reply.before is not None:
            self._note_taken(context, request.fleet, request.program, reply.before)
        state, now = self._standby.changes().state, _now()
        return pb.SyncFleetResponse(
            demands=map(_demand_message, reply.demands),
            fleet=_fleet_message(state, reply.fleet, now),
            allocations=self._allocations.of(state, reply.allocations, now),
            others=map(_others_message, others(state, request.fleet, now)),
        )

    def _looked(self, name: str) -> pb.SyncFleetResponse:
        """What a program of the fleet would hear. Nothing is changed."""
        state, now = self._standby.changes().state, _now()
        fleet = state.fleets.get(name)
        own = tuple(one for one in state.allocations.values() if one.fleet == name)
        return pb.SyncFleetResponse(
            demands=map(_demand_message, outlook(state, now).demands),
            fleet=None if fleet is None else _fleet_message(state, fleet, now),
            allocations=self._allocations.of(state, own, now),
            others=map(_others_message, others(state, name, now)),
        )

    async def BeginAllocations(
        self, request: pb.BeginAllocationsRequest, context: Context
    ) -> pb.BeginAllocationsResponse:
        """Write allocations; answered when they are durable."""
        await _need_valid(context, why_not_begun(request))
        begun = tuple((one.name, one.group) for one in request.allocations)
        command = BeginAllocations(request.fleet, request.program_incarnation, begun)
        await accepted(context, await self._standby.changes().begin_allocations(command))
        return pb.BeginAllocationsResponse()

    async def ListFleets(self, request: pb.ListFleetsRequest, context: Context) -> pb.ListFleetsResponse:
        """All fleets, by name."""
        state, now = self._standby.changes().state, _now()
        counts = _counts(state, now)
        return pb.ListFleetsResponse(
            fleets=[
                pb.FleetSummary(fleet=_shown_message(state, fleet, now), counts=counts.get(name, ()))
                for name, fleet in sorted(state.fleets.items())
            ]
        )

    async def GetFleet(self, request: pb.GetFleetRequest, context: Context) -> pb.GetFleetResponse:
        """One fleet with its allocations."""
        state, now = self._standby.changes().state, _now()
        fleet = await accepted(context, state.fleets.get(request.name) or fleet_not_found(request.name))
        own = [one for one in state.allocations.values() if one.fleet == fleet.name]
        ended = [one for one in state.ended_allocations.values() if one.fleet == fleet.name]
        shown = [*own, *ended[-(request.ended_max or ENDED_SHOWN) :]]
        shown.sort(key=lambda one: one.begin_time, reverse=True)
        answer = pb.GetFleetResponse(
            fleet=_shown_message(state, fleet, now),
            allocations=self._allocations.of(state, shown, now),
        )
        if caller().project:
            # The lines of an agent's log may tell of jobs of other projects.
            for message, one in zip(answer.allocations, shown, strict=True):
                message.reason = one.brief_reason
        return answer

    async def UpdateFleet(self, request: pb.UpdateFleetRequest, context: Context) -> pb.UpdateFleetResponse:
        """Pause or resume a fleet, or change how many agents its groups may have; answered when that is durable."""
        await _need_valid(context, why_not_changed(request))
        command = UpdateFleet(
            request.name,
            request.paused if request.HasField("paused") else None,
            tuple(
                (
                    bounds.group,
                    bounds.min if bounds.HasField("min") else None,
                    bounds.max if bounds.HasField("max") else None,
                )
                for bounds in request.bounds
            ),
            caller().name,
        )
        fleet = await accepted(context, await self._standby.changes().update_fleet(command))
        return pb.UpdateFleetResponse(fleet=_shown_message(self._standby.changes().state, fleet, _now()))

    async def DeleteFleet(self, request: pb.DeleteFleetRequest, context: Context) -> pb.DeleteFleetResponse:
        """Forget a fleet; answered when that is durable."""
        await accepted(context, await self._standby.changes().delete_fleet(DeleteFleet(request.name)))
        return pb.DeleteFleetResponse()


def _now() -> Moment:
    return Moment(time.monotonic(), time.time())


async def _need_valid(context: Context, why: str) -> None:
    if why:
        await errors.abort(context, grpc.StatusCode.INVALID_ARGUMENT, errors.FLEET_INVALID, why)


def _group(message: pb.FleetGroup) -> FleetGroup:
    return FleetGroup(
        message.name,
        message.pool,
        message.provider,
        Shape(message.shape.slots, message.shape.memory_bytes, message.shape.gpus),
        message.min,
        message.max,
        seconds_of(message, "lifetime"),
        seconds_of(message, "exit_idle"),
        message.price_per_hour,
        status=GroupStatus(
            message.status.wanted,
            message.status.reason,
            seconds_of(message.status, "retry_time"),
            message.status.failed,
            message.status.unjoined,
            message.status.pauses,
            message.status.failure,
        ),
    )


def _report(message: pb.AllocationReport) -> AllocationReport:
    state = AllocationState(int(message.state))
    return AllocationReport(message.name, message.group, state, message.engine_id, message.reason)


def _fleet_message(state: CoreState, fleet: Fleet, now: Moment) -> pb.Fleet:
    message = pb.Fleet(
        name=fleet.name,
        groups=map(_group_message, fleet.groups),
        program=fleet.program,
        program_time=timestamp(fleet.program_time),
        paused=fleet.paused,
        paused_by=fleet.paused_by,
        pause_time=timestamp(fleet.pause_time),
        revision=fleet.revision,
    )
    if (heard_s := state.fleet_view.heard_s.get(fleet.name)) is not None:
        message.silent_ms = max(0, int((now.monotonic_s - heard_s) * 1000))
    return message


def _shown_message(state: CoreState, fleet: Fleet, now: Moment) -> pb.Fleet:
    """A fleet as its caller may see it: the lines of an agent's log may tell of jobs of other projects."""
    message = _fleet_message(state, fleet, now)
    if caller().project:
        for told, group in zip(message.groups, fleet.groups, strict=True):
            told.status.reason, told.status.failure = group.status.brief_reason, group.status.brief_failure
    return message


def _group_message(group: FleetGroup) -> pb.FleetGroup:
    message = pb.FleetGroup(
        name=group.name,
        pool=group.pool,
        provider=group.provider,
        shape=pb.AgentShape(**group.shape._asdict()),
        min=group.min,
        max=group.max,
        min_set=group.min_set,
        max_set=group.max_set,
        price_per_hour=group.price_per_hour,
        status=pb.FleetGroupStatus(
            wanted=group.status.wanted,
            reason=group.status.reason,
            retry_time=timestamp(group.status.retry_time),
            failed=group.status.failed,
            unjoined=group.status.unjoined,
            pauses=group.status.pauses,
            failure=group.status.failure,
        ),
    )
    if group.lifetime_s is not None:
        message.lifetime.FromNanoseconds(round(group.lifetime_s * 1e9))
    if group.exit_idle_s is not None:
        message.exit_idle.FromNanoseconds(round(group.exit_idle_s * 1e9))
    return message


class _AllocationMessages:
    """Makes the messages of allocations. A fleet asks for all of its own each second, and few of them change: what does
    not depend on their nodes is made once.
    """

    def __init__(self) -> None:
        self._made: dict[str, tuple[Allocation, pb.Allocation]] = {}

    def of(self, state: CoreState, allocations: Iterable[Allocation], now: Moment) -> list[pb.Allocation]:
        """The messages, in the same order; they are good until the next call."""
        found = []
        for one in allocations:
            known = self._made.get(one.name)
            if known is None or known[0] is not one:
                known = self._made[one.name] = (one, _allocation_message(one))
            message, stands = known[1], served(state, one, now)
            message.is_alive, message.is_busy, message.is_leaving = stands
            found.append(message)
        if len(self._made) > 2 * len(state.allocations) + KEPT_MORE:
            there = state.allocations.keys()
            self._made = {name: made for name, made in self._made.items() if name in there}
        return found


def _allocation_message(one: Allocation) -> pb.Allocation:
    return pb.Allocation(
        name=one.name,
        fleet=one.fleet,
        group=one.group,
        engine_id=one.engine_id,
        state=int(one.state),  # type: ignore[arg-type]
        reason=one.reason,
        begin_time=timestamp(one.begin_time),
        queue_time=timestamp(one.queue_time),
        start_time=timestamp(one.start_time),
        join_time=timestamp(one.join_time),
        end_time=timestamp(one.end_time),
        node_id=one.node_id,
    )


def _demand_message(demand: Demand) -> pb.Demand:
    return pb.Demand(
        pool=demand.pool,
        worker=_shape_message(demand.worker),
        ready=demand.ready,
        leased=demand.leased,
        ready_seconds=demand.ready_s,
        ready_unmeasured=demand.unmeasured,
        init_seconds=demand.init_s,
        workers_max=demand.workers_max,
        min_nodes=demand.min_nodes,
        unknown_steps=demand.unknown_steps,
        longest_seconds=demand.longest_s,
        gpu_share=demand.worker.gpus if 0 < demand.worker.gpus < 1 else 0.0,
    )


def _shape_message(offer: Worker) -> pb.AgentShape:
    return pb.AgentShape(slots=offer.cpus, memory_bytes=offer.memory_bytes, gpus=math.ceil(offer.gpus))


def _others_message(found: Others) -> pb.OtherAgents:
    return pb.OtherAgents(pool=found.pool, shape=_shape_message(found.offer), count=found.agents)


def _counts(state: CoreState, now: Moment) -> dict[str, list[pb.AllocationCount]]:
    """Of each fleet, its allocations by group and state."""
    found: dict[tuple[str, str, int], pb.AllocationCount] = {}
    for one in _counted(state, now):
        key = (one.fleet, one.group, int(one.state))
        if key not in found:
            found[key] = pb.AllocationCount(group=one.group, state=int(one.state))  # type: ignore[arg-type]
        stands = served(state, one, now)
        found[key].count += 1
        found[key].alive += stands.is_alive
        found[key].busy += stands.is_busy
    counts: dict[str, list[pb.AllocationCount]] = {}
    for (fleet, _, _), count in sorted(found.items(), key=lambda item: item[0]):
        counts.setdefault(fleet, []).append(count)
    return counts


def _counted(state: CoreState, now: Moment) -> Iterator[Allocation]:
    yield from state.allocations.values()
    ended: Iterable[Allocation] = reversed(state.ended_allocations.values())
    yield from (one for one in ended if (one.end_time or 0.0) > now.wall_s - COUNTED_S)
