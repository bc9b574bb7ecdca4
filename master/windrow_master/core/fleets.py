"""Fleets: programs that get agents from an engine, as the queue needs them (fleet_service.proto).

The program of a fleet syncs every second: it says how it stands and what its engine says of its allocations, and hears
what the steps need. It writes an allocation here before it asks its engine for it, so that whoever runs the fleet next
knows of each one that may exist. Agents are never ended from here: they leave by themselves.

A fleet has one program, the one that came last. The earlier ones are known by their incarnations and are refused, also
by the next master.

Invariants:
1. A fleet's program is none of `Fleet.earlier`.
2. An allocation belongs to one fleet and group, and its name is not used again while it is remembered.
3. At most ALLOCATIONS_MAX allocations have not ended, and at most ENDED_KEPT of those that have are remembered.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from windrow.common.quantities import counted

from windrow_master.core.allocated_nodes import link, node_of, of, take_back
from windrow_master.core.allocations import Allocation, Fleet, FleetGroup
from windrow_master.core.commands import (
    AllocationReport,
    BeginAllocations,
    DeleteFleet,
    Moment,
    SyncFleet,
    UpdateFleet,
)
from windrow_master.core.demand import OUTLOOK_S, outlook_of
from windrow_master.core.ids import JobKey
from windrow_master.core.lifetimes import left_s
from windrow_master.core.nodes import lose_node
from windrow_master.core.outlook import Demand, Outlook, Worker
from windrow_master.core.refused import Refused
from windrow_master.core.state import CoreState, Node
from windrow_master.core.states import AllocationState, NodeState
from windrow_master.core.transitions import ALLOCATION

FLEETS_MAX = 100
ALLOCATIONS_MAX = 10_000
"""Those that have not ended, of all fleets."""
ENDED_KEPT = 10_000
ENDED_KEPT_S = 30 * 86_400.0
EARLIER_KEPT = 200
"""Incarnations of programs that have had a fleet before."""
IN_USE_S = 10.0
"""A program that was heard within this time has its fleet."""
LEAVING_S = 60.0
"""A node that lives no longer than this counts as one that leaves."""


class Synced(NamedTuple):
    """What the program of a fleet hears. `before`: who ran the fleet until now, if this program has just taken it over;
    None if not.
    """

    fleet: Fleet
    allocations: tuple[Allocation, ...]
    demands: tuple[Demand, ...]
    before: str | None


class Served(NamedTuple):
    """How the node of an allocation stands."""

    is_alive: bool = False
    is_busy: bool = False
    is_leaving: bool = False


class Others(NamedTuple):
    """Nodes of one pool that offer the same, and are in no allocation of a fleet."""

    pool: str
    offer: Worker
    agents: int


def on_sync_fleet(state: CoreState, command: SyncFleet, now: Moment) -> Synced | Refused:
    """Hear the program of a fleet, and tell it what is wanted."""
    before = state.fleets.get(command.fleet)
    if before is not None and _digest(command.incarnation) in before.earlier:
        return _taken(before)
    if before is None and len(state.fleets) >= FLEETS_MAX:
        return Refused(
            "LIMIT_REACHED",
            f"There are {FLEETS_MAX} fleets, and no more can be made. Forget one that is not used any more: windrow "
            "fleet delete NAME",
        )
    for report in command.reports:
        if refused := _why_not_of(state, report.name, command.fleet, report.group):
            return refused
    fleet = _with_program(before, command, now)
    fleet = fleet._replace(groups=_with_settings(command.groups, fleet))
    if before is None or _is_worth_storing(before, fleet):
        state.touch_fleet(fleet)
    else:
        state.fleets[fleet.name] = fleet
    is_taken = before is not None and before.program_incarnation != fleet.program_incarnation
    if before is None:
        state.add_event(now, None, "fleet_began", f"{fleet.name}: run by {fleet.program}")
    elif is_taken:
        state.add_event(now, None, "fleet_taken", f"{fleet.name}: run by {fleet.program}, before by {before.program}")
    state.fleet_view.heard_s[fleet.name] = now.monotonic_s
    for report in command.reports:
        _take_report(state, fleet, report, now)
    _forget_ended(state, now)
    return Synced(
        fleet,
        tuple(one for one in state.allocations.values() if one.fleet == fleet.name),
        outlook(state, now).demands,
        before.program if is_taken and before is not None else None,
    )


def on_begin_allocations(state: CoreState, command: BeginAllocations, now: Moment) -> Refused | None:
    """Write allocations that an engine is about to be asked for."""
    fleet = state.fleets.get(command.fleet)
    if fleet is None:
        return fleet_not_found(command.fleet)
    if fleet.program_incarnation != command.incarnation:
        return _taken(fleet)
    if fleet.paused:
        by = f" by {fleet.paused_by}" if fleet.paused_by else ""
        return Refused(
            "FLEET_PAUSED",
            f"The fleet {fleet.name} was paused{by}: it asks for nothing more. Resume it: windrow fleet resume "
            f"{fleet.name}",
        )
    new: dict[str, str] = {}
    for name, group in command.allocations:
        if refused := _why_not_of(state, name, fleet.name, group):
            return refused
        if name in state.ended_allocations:
            return Refused("FLEET_INVALID", f"The allocation {name} has ended. Another one needs another name.")
        if fleet.group(group) is None:
            return Refused("FLEET_INVALID", f"The fleet {fleet.name} has no group {group}, as of its last sync.")
        if name not in state.allocations:
            new[name] = group
    if len(state.allocations) + len(new) > ALLOCATIONS_MAX:
        return Refused(
            "TOO_MANY_ALLOCATIONS",
            f"{counted(len(state.allocations), 'allocation')} of all fleets have not ended, and there are at most "
            f"{ALLOCATIONS_MAX:,}. Nothing was written. Wait until some have ended.",
        )
    for name, group in new.items():
        state.touch_allocation(Allocation(name, fleet.name, group, now.wall_s))
        _link_node(state, name, now)
    return None


def on_update_fleet(state: CoreState, command: UpdateFleet, now: Moment) -> Fleet | Refused:
    """Pause or resume a fleet, or change how many agents its groups may have."""
    fleet = state.fleets.get(command.fleet)
    if fleet is None:
        return fleet_not_found(command.fleet)
    groups = {group.name: group for group in fleet.groups}
    for name, least, most in command.bounds:
        if name not in groups:
            return Refused(
                "GROUP_NOT_FOUND",
                f"The fleet {fleet.name} has no group {name}. It has: {', '.join(groups) or 'none'}.",
            )
        groups[name] = groups[name]._replace(min_set=least, max_set=most)
        low, high = bounds_of(groups[name])
        if low > high:
            return Refused(
                "FLEET_INVALID",
                f"Group {name} of the fleet {fleet.name}: at least {low} agents would be more than the {high} that "
                "it may have. Lower the one, or raise the other.",
            )
    fleet = fleet._replace(groups=tuple(groups.values()), revision=fleet.revision + 1)
    if command.paused is not None and command.paused != fleet.paused:
        fleet = fleet._replace(paused=command.paused, paused_by=command.by, pause_time=now.wall_s)
        by = f" by {command.by}" if command.by else ""
        state.add_event(now, None, "fleet_paused" if command.paused else "fleet_resumed", f"{fleet.name}{by}")
    state.touch_fleet(fleet)
    return fleet


def on_delete_fleet(state: CoreState, command: DeleteFleet, now: Moment) -> Refused | None:
    """Forget a fleet, and its allocations that have ended."""
    fleet = state.fleets.get(command.fleet)
    if fleet is None:
        return fleet_not_found(command.fleet)
    heard_s = state.fleet_view.heard_s.get(fleet.name)
    if heard_s is not None and now.monotonic_s - heard_s < IN_USE_S:
        return Refused(
            "FLEET_IN_USE",
            f"The fleet {fleet.name} is run by {fleet.program}, which was heard {now.monotonic_s - heard_s:.1f} s ago. "
            f"End that program first, and try again after {IN_USE_S:g} s.",
        )
    if left := sum(one.fleet == fleet.name for one in state.allocations.values()):
        return Refused(
            "FLEET_IN_USE",
            f"{counted(left, 'allocation')} of the fleet {fleet.name} {'has' if left == 1 else 'have'} not ended. Let "
            f"its program end them (windrow fleet scale {fleet.name} to 0), or wait until their agents have left.",
        )
    del state.fleets[fleet.name]
    state.dirty_fleets.add(fleet.name)
    state.fleet_view.heard_s.pop(fleet.name, None)
    for name in [name for name, one in state.ended_allocations.items() if one.fleet == fleet.name]:
        _forget(state, name)
    state.add_event(now, None, "fleet_deleted", fleet.name)
    return None


def bounds_of(group: FleetGroup) -> tuple[int, int]:
    """How many agents a group has at least, and at most: what an operator has set goes before the fleet's file."""
    return (
        group.min if group.min_set is None else group.min_set,
        group.max if group.max_set is None else group.max_set,
    )


def fleet_not_found(name: str) -> Refused:
    """There is no such fleet."""
    return Refused("FLEET_NOT_FOUND", f"There is no fleet named {name!r}. `windrow fleet list` names them.")


def outlook(state: CoreState, now: Moment) -> Outlook:
    """What the steps need; computed at most once in OUTLOOK_S, whoever asks."""
    view = state.fleet_view
    if view.outlook is None or now.monotonic_s >= view.outlook_s + OUTLOOK_S:
        view.outlook, view.outlook_s = outlook_of(state, now), now.monotonic_s
    return view.outlook


def served(state: CoreState, allocation: Allocation, now: Moment) -> Served:
    """How the node of an allocation stands now."""
    node = node_of(state, allocation)
    if node is None:
        return Served()
    shortest_s = {} if state.fleet_view.outlook is None else state.fleet_view.outlook.shortest_s
    return Served(True, bool(node.lease_ids) or any(node.workers.values()), _is_leaving(node, shortest_s, now))


def others(state: CoreState, fleet: str, now: Moment) -> list[Others]:
    """The nodes that serve and are in no allocation of a fleet. One that is in several pools is named with each."""
    found: dict[tuple[str, Worker], int] = {}
    shortest_s = {} if state.fleet_view.outlook is None else state.fleet_view.outlook.shortest_s
    for node in state.nodes.values():
        known = state.allocations.get(node.allocation)
        is_own = known is not None and known.fleet == fleet and node_of(state, known) is node
        if not node.serves or is_own or _is_leaving(node, shortest_s, now):
            continue
        offer = Worker(float(node.slots), node.memory_bytes, node.gpu_count)
        for pool in sorted(node.pools) or [""]:
            found[pool, offer] = found.get((pool, offer), 0) + 1
    return [Others(pool, offer, count) for (pool, offer), count in sorted(found.items())]


def _is_leaving(node: Node, shortest_s: Mapping[str, float], now: Moment) -> bool:
    """Whether a node takes nothing new: it drains, or will not live long enough for what waits."""
    if node.state == NodeState.DRAINING or node.draining or node.cordoned:
        return True
    left = left_s(node, now)
    if left < LEAVING_S:
        return True
    waiting = [each_s for pool, each_s in shortest_s.items() if not pool or not node.pools or pool in node.pools]
    return bool(waiting) and left <= min(waiting)


def _digest(incarnation: str) -> str:
    return hashlib.sha256(incarnation.encode()).hexdigest()[:16]


def _taken(fleet: Fleet) -> Refused:
    return Refused(
        "FLEET_TAKEN",
        f"The fleet {fleet.name} is run by another program now: {fleet.program}. A fleet has one program, the one that "
        "was started last. End this one, or give it another name of a fleet.",
    )


def _why_not_of(state: CoreState, name: str, fleet: str, group: str) -> Refused | None:
    """Why an allocation is not one of a group of a fleet; None if it is, or is not known."""
    known = state.allocations.get(name) or state.ended_allocations.get(name)
    if known is None or (known.fleet, known.group) == (fleet, group):
        return None
    return Refused(
        "FLEET_INVALID",
        f"The allocation {name} is one of the group {known.group} of the fleet {known.fleet}, not of {group} of "
        f"{fleet}. Names of allocations are unique in the cluster.",
    )


def _with_program(known: Fleet | None, command: SyncFleet, now: Moment) -> Fleet:
    """The fleet as run by the program that calls."""
    if known is None:
        return Fleet(command.fleet, command.program, command.incarnation, now.wall_s)
    if known.program_incarnation == command.incarnation:
        return known._replace(program=command.program)
    return known._replace(
        program=command.program,
        program_incarnation=command.incarnation,
        program_time=now.wall_s,
        earlier=(*known.earlier, _digest(known.program_incarnation))[-EARLIER_KEPT:],
    )


def _with_settings(groups: Iterable[FleetGroup], fleet: Fleet) -> tuple[FleetGroup, ...]:
    """The groups that a program names, with what an operator has set for those that the fleet had."""
    known = {group.name: group for group in fleet.groups}
    before = ((group, known.get(group.name, group)) for group in groups)
    return tuple(group._replace(min_set=was.min_set, max_set=was.max_set) for group, was in before)


def _is_worth_storing(before: Fleet, after: Fleet) -> bool:
    """Whether more has changed than how many agents groups want, which swings all the time."""

    def calm(fleet: Fleet) -> Fleet:
        groups = (group._replace(status=group.status._replace(wanted=0)) for group in fleet.groups)
        return fleet._replace(groups=tuple(groups))

    return before != after and calm(before) != calm(after)


def _take_report(state: CoreState, fleet: Fleet, report: AllocationReport, now: Moment) -> None:
    """Note what an engine says of an allocation. What comes too late, and what is known, changes nothing."""
    before = state.allocations.get(report.name) or state.ended_allocations.get(report.name)
    if before is None:
        if len(state.allocations) >= ALLOCATIONS_MAX:
            return  # reported again once others have ended
        before = Allocation(report.name, fleet.name, report.group, now.wall_s)
        state.touch_allocation(before)
        _link_node(state, report.name, now)
        before = state.allocations[report.name]
    node = node_of(state, before)
    queued_again = before.state == AllocationState.STARTED and report.state == AllocationState.QUEUED
    if report.state == before.state:
        after = before if before.has_ended else _told(before, report)
    elif queued_again and node is not None and node.stream:
        # Its agent joined before the engine's word came, which was true once. If it is true still, it is said again.
        after = before._replace(engine_id=report.engine_id or before.engine_id)
    elif ALLOCATION.allows(before.state, report.state):
        after = _told(before.become(report.state, now.wall_s), report)
    else:
        return
    if after == before:
        return
    state.touch_allocation(after)
    if after.has_ended and not before.has_ended:
        if node is not None:
            _lose(state, node, after, now)
        take_back(state, after)
    elif queued_again and after.state == AllocationState.QUEUED:
        # The engine has ended it to queue it again.
        taken = after._replace(state=AllocationState.PREEMPTED)
        if node is not None:
            _lose(state, node, taken, now)
        take_back(state, taken)


def _told(allocation: Allocation, report: AllocationReport) -> Allocation:
    return allocation._replace(engine_id=report.engine_id or allocation.engine_id, reason=report.reason)


def _link_node(state: CoreState, name: str, now: Moment) -> None:
    """Link the node that has named an allocation before its fleet did."""
    for node in state.nodes.values():
        if node.allocation == name:
            link(state, node, now)


def _lose(state: CoreState, node: Node, allocation: Allocation, now: Moment) -> None:
    """Give up a node whose allocation the engine has ended: its leases go back now. Say so to those who wait for its
    results.
    """
    words = of(allocation)
    held: dict[JobKey, int] = {}
    for lease_id in node.lease_ids:
        lease = state.leases[lease_id]
        job_key = state.steps[lease.step_id].job_key
        held[job_key] = held.get(job_key, 0) + 1
    is_taken = allocation.state != AllocationState.FAILED
    lose_node(state, node, f"{words}.", now, taken=is_taken)
    for job_key, count in sorted(held.items()):
        message = (
            f"{words}, and with it the node {node.node_id}. {counted(count, 'mini-batch')} that it held "
            f"{'runs' if count == 1 else 'run'} again{', charged to nobody' if is_taken else ''}."
        )
        job_id = state.jobs[job_key].job_id
        if (told := state.update_events.words(job_id, message, now.monotonic_s)) is not None:
            state.add_event(now, job_key, "allocation_ended", told)


def _forget_ended(state: CoreState, now: Moment) -> None:
    """Forget allocations that ended long ago, and the oldest where there are too many."""
    ended = state.ended_allocations
    while ended:
        name, oldest = next(iter(ended.items()))
        if len(ended) <= ENDED_KEPT and (oldest.end_time or 0.0) > now.wall_s - ENDED_KEPT_S:
            return
        _forget(state, name)


def _forget(state: CoreState, name: str) -> None:
    del state.ended_allocations[name]
    state.dirty_allocations.add(name)
    state.fleet_view.charged.pop(name, None)
