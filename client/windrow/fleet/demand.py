"""How many agents of each group the waiting mini-batches need: demands matched with agents. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from windrow.common.quantities import duration, size
from windrow.fleet.provider import Shape
from windrow.fleet.settings import GroupSettings

HORIZON_S = 120.0
"""There are to be so many agents that what is ready would have run after this time."""
_ROUNDING = 1e-9


class Demand(NamedTuple):
    """What waits, in one pool and with one need of a worker. As in the protocol."""

    pool: str = ""
    worker: Shape = Shape(1.0)
    ready: int = 0
    leased: int = 0
    ready_seconds: float = 0.0
    ready_unmeasured: int = 0
    workers_max: int = 0
    min_nodes: int = 0
    unknown_steps: int = 0
    longest_seconds: float = 0.0
    gpu_share: float = 0.0
    """Of one GPU, where a worker needs a part of one; 0: whole ones."""

    @property
    def needs_probe(self) -> bool:
        """Whether an agent has to run some of it before anybody knows how many are needed."""
        return bool(self.ready_unmeasured or self.unknown_steps)

    @property
    def workers(self) -> float:
        """So many workers would be done with it in time; parts of one count, too."""
        occupied = self.leased if self.longest_seconds > HORIZON_S else 0
        wanted = min(self.ready_seconds / HORIZON_S, self.ready) + occupied
        if self.needs_probe:
            wanted = max(wanted, occupied + 1)
        return min(wanted, self.workers_max)


class Agents(NamedTuple):
    """Agents of one pool and shape that are there already, or come. `group`: "" if they are of no group."""

    group: str
    pool: str
    shape: Shape
    number: int
    lifetime_s: float | None = None


class Match(NamedTuple):
    """What demands make of one group."""

    used: int
    """Of its agents that are there or come, so many are needed."""
    more: int
    """So many more it is to ask for, within its room."""
    short: int
    """So many more would be of use, and it has no room for them."""
    reasons: tuple[str, ...] = ()
    """Why some of what waits in its pool gets no agent of it, in words."""


def workers_of(shape: Shape, demand: Demand) -> int:
    """How many workers of a demand one agent has; 0: it is too small."""
    worker = demand.worker
    counts = [shape.slots / max(worker.slots, 0.01)]
    if worker.memory_bytes and shape.memory_bytes:
        counts.append(shape.memory_bytes / worker.memory_bytes)
    if demand.gpu_share:
        counts.append(shape.gpus * math.floor(1 / demand.gpu_share + _ROUNDING))
    elif worker.gpus:
        counts.append(shape.gpus / worker.gpus)
    return math.floor(min(counts) + _ROUNDING)


def match(
    groups: Sequence[GroupSettings],
    demands: Sequence[Demand],
    agents: Sequence[Agents],
    rooms: Mapping[str, int],
) -> dict[str, Match]:
    """Match demands with agents, then with room for more.

    `agents`: in the order in which they are to be used: those that serve before those that only come. `rooms`: how many
    more each group may ask for. A demand that few groups can meet is matched before one that many can; each gets more
    agents from the group where a worker of it is cheapest, then from the first.
    """
    matching = _Matching(groups, agents, rooms)
    by_choice = sorted(demands, key=lambda demand: len(matching.candidates(demand)))
    for demand in by_choice:
        matching.meet(demand)
    return matching.result()


class _Matching:
    """A matching under way."""

    def __init__(self, groups: Sequence[GroupSettings], agents: Sequence[Agents], rooms: Mapping[str, int]) -> None:
        self._groups = groups
        self._agents = agents
        self._free = [float(one.number) for one in agents]
        self._kept = [0] * len(agents)
        """So many are needed because a step begins on several nodes at once; those may have other work, too."""
        self._room = {group.name: float(rooms[group.name]) for group in groups}
        self._more = {group.name: 0.0 for group in groups}
        self._short = {group.name: 0.0 for group in groups}
        self._reasons: dict[str, list[str]] = {group.name: [] for group in groups}

    def candidates(self, demand: Demand) -> list[GroupSettings]:
        """The groups that can meet a demand, the cheapest first."""
        able = [group for group in self._groups if not misfit(group.pool, group.shape, group.lifetime_s, demand)]
        return sorted(able, key=lambda group: group.price_per_hour / workers_of(group.shape, demand))

    def meet(self, demand: Demand) -> None:
        """Take agents for a demand, and room for more."""
        wanted = demand.workers
        if wanted <= 0:
            return
        candidates = self.candidates(demand)
        serving = 0
        for index, one in enumerate(self._agents):
            if not misfit(one.pool, one.shape, one.lifetime_s, demand):
                nodes = max(0, min(one.number, demand.min_nodes - serving))
                self._kept[index] = max(self._kept[index], nodes)
                each = workers_of(one.shape, demand)
                taken = min(self._free[index], wanted / each)
                self._free[index] -= taken
                wanted -= taken * each
                serving += one.number
        for group in candidates:
            each = workers_of(group.shape, demand)
            taken = min(self._room[group.name], wanted / each)
            self._take(group.name, taken)
            wanted -= taken * each
            serving += math.ceil(self._more[group.name] - _ROUNDING)
        # A step that begins on several nodes at once needs them whatever there is to do.
        missing = float(demand.min_nodes - serving)
        for group in candidates:
            if missing > 0:
                taken = min(math.floor(self._room[group.name] + _ROUNDING), missing)
                self._take(group.name, taken)
                missing -= taken
        if candidates:
            first = candidates[0]
            lacking = max(wanted / workers_of(first.shape, demand), missing)
            self._short[first.name] += lacking if lacking > _ROUNDING else 0.0
        else:
            self._explain(demand)

    def _take(self, group: str, count: float) -> None:
        self._more[group] += count
        self._room[group] -= count

    def _explain(self, demand: Demand) -> None:
        """Say at each group of the demand's pool why it does not meet it."""
        for group in self._groups:
            if why := misfit(group.pool, group.shape, group.lifetime_s, demand, with_pool=False):
                self._reasons[group.name].append(why)

    def result(self) -> dict[str, Match]:
        """What each group is to do."""
        found = {}
        for group in self._groups:
            own = [index for index, one in enumerate(self._agents) if one.group == group.name]
            used = sum(max(self._agents[index].number - self._free[index], self._kept[index]) for index in own)
            found[group.name] = Match(
                math.ceil(used - _ROUNDING),
                math.ceil(self._more[group.name] - _ROUNDING),
                math.ceil(self._short[group.name] - _ROUNDING),
                tuple(dict.fromkeys(self._reasons[group.name])),
            )
        return found


def misfit(pool: str, shape: Shape, lifetime_s: float | None, demand: Demand, *, with_pool: bool = True) -> str:
    """Why agents cannot run what waits, in a sentence; "" if they can. `with_pool`: also because they are of another
    pool; without, those are no matter of theirs.
    """
    if pool and demand.pool and pool != demand.pool:
        return f"It waits for agents of pool {demand.pool}." if with_pool else ""
    if not workers_of(shape, demand):
        return f"Steps need {_words(demand.worker, demand.gpu_share)} for a worker, and an agent has {_words(shape)}."
    if lifetime_s is not None and demand.longest_seconds > lifetime_s:
        return f"Mini-batches take up to {duration(demand.longest_seconds)}, and an agent lives {duration(lifetime_s)}."
    return ""


def _words(shape: Shape, gpu_share: float = 0.0) -> str:
    parts = [f"{shape.slots:g} processor{'' if shape.slots == 1 else 's'}"]
    if shape.memory_bytes:
        parts.append(f"{size(shape.memory_bytes)} of memory")
    if shape.gpus:
        parts.append(f"{gpu_share or shape.gpus:g} GPU{'s' if shape.gpus > 1 else ''}")
    return ", ".join(parts)
