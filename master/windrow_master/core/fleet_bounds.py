"""Bounds of what the program of a fleet says, and of what an operator sets for it: checked before the core sees them.

A name, a state or a number that decides something and cannot be right is refused. Texts come from engines, which write
what they like: they are cut. So are numbers that are only shown.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from windrow.common.allocation_name import is_allocation_name
from windrow.common.secret_values import shown_text

from windrow_master.core.bounds import NODE_OFFERS_MAX
from windrow_master.core.fleets import ALLOCATIONS_MAX
from windrow_master.core.states import AllocationState

if TYPE_CHECKING:
    from windrow.rpc.v1 import fleet_service_pb2 as pb

GROUPS_MAX: Final = 100
REPORTS_MAX: Final = 1_000
"""Of one call; also allocations that are begun with one."""
TEXT_CHARS_MAX: Final = 2_000
ENGINE_ID_CHARS_MAX: Final = 256
TIME_S_MAX: Final = 10 * 366 * 86_400
_NAME: Final = re.compile(r"[A-Za-z0-9][\w.-]{0,63}", re.ASCII)
_INCARNATION: Final = re.compile(r"[0-9a-fA-F]{1,64}")
_PROVIDER: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,39}")
_PRICE_MAX: Final = 1e9
_SHOWN_MAX: Final = 1_000_000
_DATE_S_MAX: Final = 253_402_300_799
_STATES: Final = frozenset(map(int, AllocationState))


def why_not_synced(request: pb.SyncFleetRequest) -> str:
    """Why what a program says of its fleet cannot be right; empty if it can. Cuts texts to what is kept."""
    if why := _why_not_called(request.fleet, request.program_incarnation):
        return why
    if len(request.groups) > GROUPS_MAX:
        return f"A fleet has at most {GROUPS_MAX} groups, not {len(request.groups):,}."
    if len(request.reports) > REPORTS_MAX:
        return f"One call brings at most {REPORTS_MAX:,} reports, not {len(request.reports):,}. Send the rest after it."
    request.program = _cut(request.program)
    names = set()
    for group in request.groups:
        if why := _why_no_group(group):
            return why
        names.add(group.name)
    if len(names) < len(request.groups):
        return "Two groups of the fleet have the same name."
    return next(filter(None, map(_why_no_report, request.reports)), "")


def why_not_begun(request: pb.BeginAllocationsRequest) -> str:
    """Why these cannot be allocations that a program is about to ask for; empty if they can."""
    if why := _why_not_called(request.fleet, request.program_incarnation):
        return why
    if len(request.allocations) > REPORTS_MAX:
        return f"One call begins at most {REPORTS_MAX:,} allocations, not {len(request.allocations):,}."
    return next(filter(None, (_why_unnamed(one.name, one.group) for one in request.allocations)), "")


def why_not_changed(request: pb.UpdateFleetRequest) -> str:
    """Why a change of a fleet makes no sense; empty if it does."""
    if len(request.bounds) > GROUPS_MAX:
        return f"A fleet has at most {GROUPS_MAX} groups, and {len(request.bounds):,} are named."
    for bounds in request.bounds:
        for number in (bounds.min, bounds.max):
            if number > ALLOCATIONS_MAX:
                return f"Group {bounds.group[:80]!r}: a group has at most {ALLOCATIONS_MAX:,} agents, not {number:,}."
    return ""


def _why_not_called(fleet: str, incarnation: str) -> str:
    if not _NAME.fullmatch(fleet):
        return _not_a_name(fleet, "a fleet")
    if not _INCARNATION.fullmatch(incarnation):
        return f"{incarnation[:80]!r} is no incarnation of a program: that is 1 to 64 hexadecimal digits."
    return ""


def _not_a_name(text: str, of: str) -> str:
    return f"{text[:80]!r} is not a valid name of {of}: use at most 64 letters, digits, '_', '.' and '-'."


def _why_unnamed(allocation: str, group: str) -> str:
    if not is_allocation_name(allocation):
        return (
            f"{allocation[:80]!r} is not a valid name of an allocation: use at most 40 lower-case letters, digits and "
            "'-'."
        )
    return "" if _NAME.fullmatch(group) else _not_a_name(group, "a group")


def _why_no_group(group: pb.FleetGroup) -> str:
    """Why this cannot be a group; empty if it can. Cuts texts, and makes numbers fit that are only shown."""
    if not _NAME.fullmatch(group.name):
        return _not_a_name(group.name, "a group")
    of = f"Group {group.name}"
    if group.pool and not _NAME.fullmatch(group.pool):
        return f"{of}: {_not_a_name(group.pool, 'a pool')}"
    if not _PROVIDER.fullmatch(group.provider):
        return f"{of}: {group.provider[:80]!r} is no kind of engine: use lower-case letters, digits, '_', '.' and '-'."
    if not group.min <= group.max <= ALLOCATIONS_MAX:
        return (
            f"{of}: min {group.min:,} and max {group.max:,}; min is at most max, and max at most {ALLOCATIONS_MAX:,}."
        )
    slots_max, _ = NODE_OFFERS_MAX["slots"]
    if not 0 < group.shape.slots <= slots_max:
        return f"{of}: an agent has more than 0 slots, and at most {slots_max:,}, not {group.shape.slots:g}."
    for name, offered in (("memory_bytes", group.shape.memory_bytes), ("gpu_count", group.shape.gpus)):
        most, words = NODE_OFFERS_MAX[name]
        if offered > most:
            return f"{of}: an agent has at most {most:,} {words}, not {offered:,}."
    for what, is_given, given in (
        ("lifetime", group.HasField("lifetime"), group.lifetime),
        ("exit_idle", group.HasField("exit_idle"), group.exit_idle),
    ):
        if is_given and not (
            0 <= given.seconds <= TIME_S_MAX and 0 <= given.nanos < 10**9 and (given.seconds or given.nanos)
        ):
            return f"{of}: {what} is a time of more than 0 s and at most ten years, not {given.seconds:,} s."
    if not 0 <= group.price_per_hour <= _PRICE_MAX:
        return f"{of}: a price is a number, 0 or more, not {group.price_per_hour:g}."
    status = group.status
    status.reason, status.failure = _told(status.reason), _told(status.failure)
    for number in ("wanted", "failed", "unjoined", "pauses"):
        setattr(status, number, min(getattr(status, number), _SHOWN_MAX))
    if not 0 <= status.retry_time.seconds <= _DATE_S_MAX or not 0 <= status.retry_time.nanos < 10**9:
        status.ClearField("retry_time")
    return ""


def _why_no_report(report: pb.AllocationReport) -> str:
    if why := _why_unnamed(report.name, report.group):
        return why
    if int(report.state) not in _STATES:
        return f"Allocation {report.name}: {int(report.state)} is no state of an allocation."
    if len(report.engine_id) > ENGINE_ID_CHARS_MAX:
        return f"Allocation {report.name}: what an engine calls it has at most {ENGINE_ID_CHARS_MAX} characters."
    report.reason = _told(report.reason)
    return ""


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_CHARS_MAX else text[: TEXT_CHARS_MAX - 1] + "…"


def _told(text: str) -> str:
    """What engines say, as everyone with a token sees it: without what looks like a secret."""
    return _cut(shown_text(text[: 2 * TEXT_CHARS_MAX]))
