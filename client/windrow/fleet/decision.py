"""What a fleet does next: how many agents each group asks for, what it cancels, and why not more. Pure.

Moments are in seconds of one clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from windrow.common.quantities import counted, duration
from windrow.fleet.demand import Agents, Demand, Match, match
from windrow.fleet.memory import FAILED_MAX, UNJOINED_MAX, Memory, recent
from windrow.fleet.names import stays
from windrow.fleet.settings import GroupSettings

JOIN_S = 300.0
"""An agent that has been started joins within this time, or never."""
UNWANTED_S = 60.0
"""What is queued and has been wanted by nobody for so long is cancelled."""
BEGUN, QUEUED, STARTED = "begun", "queued", "started"
_NAMED = 3


class Held(NamedTuple):
    """An allocation that has not ended, as the master has it."""

    name: str
    group: str
    state: str = BEGUN
    """BEGUN, QUEUED or STARTED."""
    engine_id: str = ""
    """What the engine calls it; "": it has not said."""
    has_joined: bool = False
    """Its agent has joined once."""
    is_alive: bool = False
    is_busy: bool = False
    is_leaving: bool = False
    unjoined_since: float | None = None
    """Since when it has been started, and could have joined; None: it has joined, or is not started."""
    reason: str = ""
    """Why it waits, as the engine says."""

    @property
    def is_started(self) -> bool:
        """Whether the engine has started it."""
        return self.state == STARTED

    @property
    def is_queued(self) -> bool:
        """Whether the engine has it and has not started it."""
        return self.state == QUEUED and not self.has_joined

    def is_overdue(self, now: float) -> bool:
        """Whether its agent was started and does not join."""
        return self.unjoined_since is not None and now - self.unjoined_since >= JOIN_S


class Circumstances(NamedTuple):
    """What else keeps groups from asking for more."""

    paused_by: str | None = None
    """Who has paused the fleet ("": nobody knows who); None: it is not paused."""
    spent: Mapping[str, float] = MappingProxyType({})
    """What agents of the day have cost, by group."""
    silent: Mapping[str, str] = MappingProxyType({})
    """What engines said when they last did not answer, by group."""


class Decision(NamedTuple):
    """What one group does next."""

    wanted: int
    """So many agents it wants alive."""
    begin: int
    """So many it asks for now, which leave when they are idle."""
    begin_staying: int
    """And so many that stay."""
    cancel: tuple[str, ...]
    """Names of queued ones to cancel."""
    reason: str
    """Why it has not more; "": it has what it wants."""
    memory: Memory


def decide(
    groups: Sequence[GroupSettings],
    demands: Sequence[Demand],
    held: Sequence[Held],
    others: Sequence[Agents],
    memories: Mapping[str, Memory],
    now: float,
    circumstances: Circumstances = Circumstances(),  # noqa: B008  it never changes
) -> dict[str, Decision]:
    """Decide for all groups, since a demand may be met by several. `groups`: with the bounds that hold now. `others`:
    agents that are in no allocation of the fleet, and serve.
    """
    of_group = {group.name: [one for one in held if one.group == group.name] for group in groups}
    blocked = {group.name: _blocked(group, memories[group.name], now, circumstances) for group in groups}
    rooms: dict[str, int] = {}
    staying: dict[str, int] = {}
    for group in groups:
        room = _room(group, of_group[group.name], memories[group.name], blocked[group.name], now)
        staying[group.name] = min(room, max(0, group.min - _staying(of_group[group.name], now)))
        rooms[group.name] = room - staying[group.name]
    agents = [*others, *_agents(groups, of_group, staying, now)]
    matches = match(groups, demands, agents, rooms)
    return {
        group.name: _of_group(
            group,
            of_group[group.name],
            matches[group.name],
            staying[group.name],
            memories[group.name],
            blocked[group.name],
            now,
        )
        for group in groups
    }


def _blocked(group: GroupSettings, memory: Memory, now: float, circumstances: Circumstances) -> str:
    """Why a group asks for nothing at the moment, whatever is wanted; "": it may ask."""
    if circumstances.paused_by is not None:
        by = f" by {circumstances.paused_by}" if circumstances.paused_by else ""
        return f"Paused{by}: windrow fleet resume"
    if memory.is_paused(now):
        return pause_words(memory)
    if said := circumstances.silent.get(group.name):
        return f"The engine does not answer: {said}"
    spent = circumstances.spent.get(group.name, 0.0)
    if spent >= group.budget_per_day:
        return f"The budget of the day (UTC) is used up: {spent:,.2f} of {group.budget_per_day:,.2f}."
    return ""


def pause_words(memory: Memory) -> str:
    """Why a group waits because asking has come to nothing too often, how often it has, and for how long it waits.
    All that is in the first line: further ones may be of an agent's log, which not everyone sees.
    """
    why, _, log = memory.why.partition("\n")
    told = f"{why} ({_failures(memory)}; it tries again after {duration(memory.pause_s)})".strip()
    return f"{told}\n{log}" if log else told


def _failures(memory: Memory) -> str:
    if memory.unjoined >= UNJOINED_MAX:
        return f"{counted(memory.unjoined, 'agent')} in a row never joined"
    if memory.failed >= FAILED_MAX:
        return f"{counted(memory.failed, 'submission')} in a row failed"
    return "trying again failed"


def _room(group: GroupSettings, held: Sequence[Held], memory: Memory, blocked: str, now: float) -> int:
    """How many more allocations the group may ask for, now or one after the other."""
    if blocked:
        return 0
    room = max(0, group.max - len(held))
    if memory.pauses:
        # After a pause one at a time shows whether it is better.
        return 0 if any(not one.has_joined and not one.is_overdue(now) for one in held) else min(room, 1)
    return room


def _staying(held: Sequence[Held], now: float) -> int:
    return sum(stays(one.name) and not one.is_leaving and not one.is_overdue(now) for one in held)


def _agents(
    groups: Sequence[GroupSettings], held: Mapping[str, Sequence[Held]], staying: Mapping[str, int], now: float
) -> list[Agents]:
    """The agents of the groups: those that serve, then those that come."""
    serving, coming = [], []
    for group in groups:
        able = [one for one in held[group.name] if not one.is_leaving and not one.is_overdue(now)]
        there = sum(one.has_joined for one in able)
        made = (group.name, group.pool, group.shape)
        serving.append(Agents(*made, there, group.lifetime_s))
        coming.append(Agents(*made, len(able) - there + staying[group.name], group.lifetime_s))
    return [*serving, *coming]


def _of_group(
    group: GroupSettings,
    held: Sequence[Held],
    found: Match,
    staying: int,
    memory: Memory,
    blocked: str,
    now: float,
) -> Decision:
    allowed = _allowed(group, held, memory, now)
    begin_staying = min(staying, allowed)
    begin = min(found.more, allowed - begin_staying)
    needed = max(group.min, found.used + found.more)
    # Agents that `min` asks for and that may not be asked for now would meet demands as well as others.
    able = sum(not one.is_leaving and not one.is_overdue(now) for one in held)
    absent = max(0, group.min - able - staying - found.more)
    cancel, memory = _cancel(group, held, needed, memory, now)
    reasons = _reasons(group, held, found, staying + found.more - begin - begin_staying, blocked, now)
    return Decision(
        min(group.max, needed + max(0, found.short - absent)),
        begin,
        begin_staying,
        cancel,
        " ".join(reasons),
        memory,
    )


def _allowed(group: GroupSettings, held: Sequence[Held], memory: Memory, now: float) -> int:
    """How many submissions may begin at once."""
    asked = sum(one.state == BEGUN and not one.has_joined for one in held)
    return max(
        0,
        min(group.submissions_per_minute - len(recent(memory, now)), group.submissions_at_once - asked),
    )


def _cancel(
    group: GroupSettings, held: Sequence[Held], needed: int, memory: Memory, now: float
) -> tuple[tuple[str, ...], Memory]:
    """Which queued ones to cancel: so many as have been too many all the time for UNWANTED_S, the newest first."""
    able = [one for one in held if not one.is_leaving and not one.is_overdue(now)]
    spare_staying = max(0, _staying(held, now) - group.min)
    queued = [one for one in able if one.is_queued]
    leaving = [one.name for one in reversed(queued) if not stays(one.name)]
    leaving += [one.name for one in reversed(queued) if stays(one.name)][:spare_staying]
    surplus = min(len(able) - needed, len(leaving))
    if surplus <= 0:
        return (), memory._replace(surplus_since=None, surplus_least=0)
    if memory.surplus_since is None:
        return (), memory._replace(surplus_since=now, surplus_least=surplus)
    least = min(memory.surplus_least, surplus)
    if now - memory.surplus_since < UNWANTED_S:
        return (), memory._replace(surplus_least=least)
    return tuple(leaving[:least]), memory._replace(surplus_since=now, surplus_least=surplus - least)


def _reasons(
    group: GroupSettings, held: Sequence[Held], found: Match, delayed: int, blocked: str, now: float
) -> list[str]:
    """Why the group has not more, in sentences."""
    reasons = [blocked] if blocked else []
    if not blocked and found.short and len(held) + found.more >= group.max:
        reasons.append(f"It may have {group.max} at most; {found.short:,} more would be of use.")
    if delayed > 0:
        limits = f"{group.submissions_per_minute} a minute, {group.submissions_at_once} at once"
        reasons.append(f"{counted(delayed, 'submission')} will follow: they are limited to {limits}.")
    reasons += found.reasons
    if overdue := [one for one in held if one.is_overdue(now)]:
        names = ", ".join(one.engine_id or one.name for one in overdue[:_NAMED])
        more = ", ..." if len(overdue) > _NAMED else ""
        reasons.append(f"{counted(len(overdue), 'agent')} started and did not join ({names}{more}).")
    waits = Counter(one.reason for one in held if one.is_queued and one.reason)
    reasons += [f"The engine lets {count} wait: {why}" for why, count in waits.most_common(1)]
    return reasons
