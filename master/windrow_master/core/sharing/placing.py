"""On which nodes steps have the workers that they are entitled to.

Workers stay where they are. A step that lacks some gets free places first, and then the places of steps that have more
than they are entitled to. A step keeps what it has beyond that for as long as nobody lacks it: its workers are ready
when it has something to do again.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from windrow_master.core.ids import NodeId, StepId

Vector = tuple[float, ...]

NO_BOUND = 1 << 30
"""A node may have as many workers of a step as it has room for."""

_ROUNDING = 1e-6
_CHANGES_MAX = 2000
"""Of one decision; the next one goes on. It bounds how long a decision takes."""


@dataclass(slots=True)
class Place:
    """A node. `processors`: how many it has. `room`: what is free of each resource, in its own unit. `workers`: how
    many each step has, and `since`: when a step got its last one. Workers are placed there.
    """

    node_id: NodeId
    processors: float
    room: list[float]
    workers: dict[StepId, int] = field(default_factory=dict)
    since: dict[StepId, float] = field(default_factory=dict)

    def fits(self, need: Vector, most: int) -> int:
        """How many workers with this need it has room for, at most `most`."""
        for room, each in zip(self.room, need, strict=True):
            if each > 0:
                most = min(most, math.floor((room + _ROUNDING) / each))
        return max(0, most)


@dataclass(slots=True)
class Crew:
    """The workers of a step. `entitled`: how many it should have. `need`: what one takes of each resource. `on`: how
    many it has, by node; it changes while workers are placed. `most_on`: how many a node may have. `barred`: nodes
    where it may have none. `chosen`: if not None, the only nodes where it may have some. `warm`: those that have its
    code and environment. `pays_s`: so long after they were placed, its workers have not paid for their `init()` yet,
    and yield only to what is owed. `is_owed`: its project has less than its quota.
    """

    step_id: StepId
    entitled: int
    need: Vector
    on: dict[NodeId, int] = field(default_factory=dict)
    most_on: int = NO_BOUND
    barred: Collection[NodeId] = ()
    chosen: Collection[NodeId] | None = None
    warm: Collection[NodeId] = ()
    pays_s: float = 0.0
    is_owed: bool = False

    @property
    def held(self) -> int:
        """How many workers it has."""
        return sum(self.on.values())

    @property
    def size(self) -> float:
        """How hard a worker is to place."""
        return max(self.need)

    def may_be_on(self, node_id: NodeId) -> bool:
        """Whether it may have workers on a node."""
        return node_id not in self.barred and (self.chosen is None or node_id in self.chosen)

    def need_on(self, at: Place) -> Vector:
        """What a worker takes of a node: where a node may have more workers than processors, they share these."""
        if self.most_on <= at.processors or self.most_on == NO_BOUND:
            return self.need
        return (at.processors / self.most_on, *self.need[1:])

    def may_add(self, at: Place, most: int) -> int:
        """How many workers it may get on a node, at most `most`."""
        if not self.may_be_on(at.node_id):
            return 0
        return at.fits(self.need_on(at), min(most, self.most_on - self.on.get(at.node_id, 0)))

    def change(self, at: Place, count: int, now_s: float) -> None:
        """Get workers on a node, or lose some."""
        if not count:
            return
        at.room = [room - count * each for room, each in zip(at.room, self.need_on(at), strict=True)]
        now_there = self.on.get(at.node_id, 0) + count
        if now_there:
            self.on[at.node_id] = at.workers[self.step_id] = now_there
        else:
            del self.on[at.node_id], at.workers[self.step_id]
            at.since.pop(self.step_id, None)
        if count > 0:
            at.since[self.step_id] = now_s


def place(crews: Sequence[Crew], places: Iterable[Place], now_s: float) -> None:
    """Give crews the workers that they are entitled to, as far as there is room. Those that go first are first in
    `crews`; but big needs go before small ones, which would leave them fragments.
    """
    nodes = {at.node_id: at for at in places}
    missing = {crew.step_id: crew.entitled - crew.held for crew in crews}
    lacking = sorted((crew for crew in crews if missing[crew.step_id] > 0), key=lambda crew: -crew.size)
    if not lacking:
        return
    free = _Free(nodes, now_s)
    changes = _CHANGES_MAX
    for crew in lacking:
        wanted = min(missing[crew.step_id], changes)
        left = free.give(crew, wanted)
        changes -= wanted - left
        missing[crew.step_id] = left
    beyond = [crew for crew in crews if missing[crew.step_id] < 0]
    for crew in lacking if beyond else ():
        if missing[crew.step_id] and changes:
            changes -= _take_over(crew, min(missing[crew.step_id], changes), beyond, missing, nodes, now_s)
    if any(missing[crew.step_id] for crew in lacking) and beyond:
        # A big one that has yielded may have left room for others.
        free = _Free(nodes, now_s)
        for crew in lacking:
            free.give(crew, missing[crew.step_id])


def place_standby(crews: Sequence[Crew], places: Iterable[Place], now_s: float) -> None:
    """Give what is free to these crews, as much as fits, in their order: where nobody else has a use for it, their
    workers are ready for a retry, or a straggler.
    """
    free = _Free({at.node_id: at for at in places}, now_s)
    for crew in crews:
        free.give(crew, _CHANGES_MAX)


class _Free:
    """The nodes with free room, those with most of a resource first."""

    def __init__(self, nodes: dict[NodeId, Place], now_s: float) -> None:
        self._nodes, self._now_s = nodes, now_s
        self._heaps: dict[int, list[tuple[float, NodeId]]] = {}

    def give(self, crew: Crew, wanted: int) -> int:
        """Place workers where there is room, evenly; return how many found none."""
        resource = crew.need.index(crew.size)
        heap = self._heaps.get(resource)
        if heap is None:
            heap = [(-at.room[resource], at.node_id) for at in self._nodes.values() if at.room[resource] > _ROUNDING]
            heapq.heapify(heap)
            self._heaps[resource] = heap
        if wanted < len(heap):
            # One each, as elsewhere; a second one where no other node has room.
            for node_id in sorted(crew.warm):
                at = self._nodes.get(node_id)
                if wanted and at is not None and crew.may_add(at, 1):
                    crew.change(at, 1, self._now_s)
                    wanted -= 1
        each = max(1, wanted // max(1, len(heap)))
        unfit: list[tuple[float, NodeId]] = []
        while wanted and heap:
            known, node_id = heap[0]
            at = self._nodes[node_id]
            if at.room[resource] < -known - _ROUNDING:
                # Another resource's heap, or a warm node, has given of it since.
                heapq.heapreplace(heap, (-at.room[resource], node_id))
                continue
            count = crew.may_add(at, min(each, wanted))
            if not count:
                unfit.append(heapq.heappop(heap))
                continue
            crew.change(at, count, self._now_s)
            wanted -= count
            heapq.heapreplace(heap, (-at.room[resource], node_id))
        for entry in unfit:
            heapq.heappush(heap, entry)
        return wanted


def _take_over(
    crew: Crew,
    wanted: int,
    beyond: Sequence[Crew],
    missing: dict[StepId, int],
    nodes: dict[NodeId, Place],
    now_s: float,
) -> int:
    """Place workers where others yield; return how many. Who has most beyond what it is entitled to yields first."""
    taken = 0
    for victim in sorted(beyond, key=lambda one: missing[one.step_id] * one.size):
        on = [(node_id not in crew.warm, -count, node_id) for node_id, count in victim.on.items() if node_id in nodes]
        for _, _, node_id in sorted(on):
            at = nodes[node_id]
            is_young = now_s - at.since.get(victim.step_id, -math.inf) < victim.pays_s
            if not crew.may_be_on(node_id) or (is_young and not crew.is_owed):
                continue
            while taken < wanted and crew.on.get(node_id, 0) < crew.most_on:
                if not crew.may_add(at, 1):
                    yielding = _yielding(crew, victim, at, -missing[victim.step_id])
                    if not yielding:
                        break
                    victim.change(at, -yielding, now_s)
                    missing[victim.step_id] += yielding
                crew.change(at, 1, now_s)
                missing[crew.step_id] -= 1
                taken += 1
        if taken == wanted:
            break
    return taken


def _yielding(crew: Crew, victim: Crew, at: Place, most: int) -> int:
    """How many workers of `victim` must end on a node for one of `crew`; 0 if they would not be enough."""
    count = 0
    for room, each, freed in zip(at.room, crew.need_on(at), victim.need_on(at), strict=True):
        if each > room + _ROUNDING:
            if freed <= 0:
                return 0
            count = max(count, math.ceil((each - room - _ROUNDING) / freed))
    return count if 0 < count <= min(most, victim.on.get(at.node_id, 0)) else 0
