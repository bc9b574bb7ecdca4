"""What a fleet would submit, without doing it."""

from __future__ import annotations

import time
from collections.abc import Iterator

from windrow.common.quantities import counted
from windrow.fleet import names
from windrow.fleet.agent_command import request_of
from windrow.fleet.decision import Circumstances, decide
from windrow.fleet.memory import Memory
from windrow.fleet.messages import demand_of, group_message, held_of, others_of, with_bounds
from windrow.fleet.providers import registry
from windrow.fleet.settings import FleetSettings, GroupSettings
from windrow.rpc.connection import Connection
from windrow.rpc.v1 import fleet_service_pb2 as pb
from windrow.rpc.v1 import fleet_service_pb2_grpc


def lines(settings: FleetSettings, connection: Connection, master: str) -> Iterator[str]:
    """What each group would ask for now, why not more, and one request in the engine's own words. Raises WindrowError.

    The master is only looked at: a program that has the fleet keeps it.
    """
    stub = fleet_service_pb2_grpc.FleetServiceStub(connection.channel)
    request = pb.SyncFleetRequest(
        fleet=settings.name, groups=[group_message(group) for group in settings.groups], look_only=True
    )
    answer = connection.call(stub.SyncFleet, request)
    groups = with_bounds(settings, answer.fleet)
    held = [held_of(one) for one in answer.allocations]
    decisions = decide(
        groups,
        [demand_of(one) for one in answer.demands],
        held,
        others_of(answer),
        {group.name: Memory() for group in groups},
        time.monotonic(),
        Circumstances(answer.fleet.paused_by if answer.fleet.paused else None),
    )
    for group in groups:
        decision, has = decisions[group.name], sum(one.group == group.name for one in held)
        now = counted(decision.begin + decision.begin_staying, "agent")
        reason = f" {decision.reason}" if decision.reason else ""
        yield f"Group {group.name} would ask {group.provider} for {now} now; it has asked for {has}.{reason}"
        yield from _example(settings, group, master, stays=bool(decision.begin_staying))


def examples(settings: FleetSettings, master: str) -> Iterator[str]:
    """One request of each group, in the engine's own words."""
    for group in settings.groups:
        yield f"Group {group.name} asks {group.provider} for agents."
        yield from _example(settings, group, master, stays=False)


def _example(settings: FleetSettings, group: GroupSettings, master: str, *, stays: bool) -> Iterator[str]:
    name = names.new_name(names.prefix_of(settings.name, group.name), stays=stays)
    yield "For one agent it would submit:"
    shown = registry.load(group.provider).show(group.engine, request_of(group, name, master, stays=stays))
    for line in shown.splitlines():
        yield f"    {line}".rstrip()
    yield ""
