"""On which nodes steps have the workers that they are entitled to.

Workers stay where they are. A step that lacks some gets free places first, and then the places of steps that have more
than they are entitled to. A step keeps what it has beyond that for as long as nobody lacks it: its workers are ready
when it has something to do again.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from windrow.common.device_packing import is_fraction, pack

from windrow_master.core.ids import NodeId, StepId

Vector = tuple[float, ...]
"""One number for each resource: slots, then memory and GPUs where a step needs some of these."""

SLOTS, MEMORY, GPUS = range(3)
"""The places of resources in a vector."""

NO_BOUND = 1 << 30
"""A node may have as many workers of a step as it has room for."""

_ROUNDING = 1e-6
_CHANGES_MAX = 2000
"""Of one decision; the next one goes on. It bounds how long a decision takes."""
_ROOMS_TRIED = 8
"""On so many nodes room is looked for in one decision, and on so many others for what has to go."""


@dataclass(slots=True, eq=False)
class Place:
    """A node. `processors`: how many it has. `total`: what it has of each resource, in its own unit. `workers`: how
    many each step has, and `since`: when a step got its last one. Workers are placed there.
    """

    node_id: NodeId
    processors: float
    total: Vector
    workers: dict[StepId, int] = field(default_factory=dict)
    since: dict[StepId, float] = field(default_factory=dict)
    needs: dict[StepId, Vector] = field(default_factory=dict)
    """What one worker of each step takes there."""
    room: list[float] = field(init=False)
    """What is free of each resource."""
    has_changed: bool = True
    """Since `Layout.take_changed`."""

    def __post_init__(self) -> None:
        self.room = list(self.total)

    def count_room(self) -> None:
        """Count anew what is free. It depends on what is there alone, to the last bit, not on how it came about."""
        room = list(self.total)
        for step_id, need in sorted(self.needs.items()):
            count = self.workers[step_id]
            for at, each in enumerate(need):
                room[at] -= count * each
        self.room, self.has_changed = room, True

    def packs(self) -> bool:
        """Whether what is there fits on the GPUs that it has."""
        there = [
            each[GPUS] for step_id, each in self.needs.items() for _ in range(self.workers[step_id]) if each[GPUS:]
        ]
        return not any(map(is_fraction, there)) or pack(round(self.total[GPUS]), there) is not None

    def fits(self, need: Vector, most: int) -> int:
        """How many workers with this need it has room for, at most `most`."""
        most = _fitting(self.room, need, most)
        if most and len(need) > GPUS and need[GPUS] > 0:
            there = [each[GPUS] for step_id, each in self.needs.items() for _ in range(self.workers[step_id])]
            if is_fraction(need[GPUS]) or any(map(is_fraction, there)):
                # Fractions leave pieces of several devices, which are no whole one together.
                devices = round(self.total[GPUS])
                if is_fraction(need[GPUS]):
                    most = min(most, devices * math.floor(1 / need[GPUS] + _ROUNDING))
                while most and pack(devices, [*there, *[need[GPUS]] * most]) is None:
                    most -= 1
        return most


def _fitting(rooms: Sequence[float], need: Vector, most: int) -> int:
    """How many workers with this need there is room for, at most `most`. Resources that `rooms` does not have are not
    bounded.
    """
    for room, each in zip(rooms, need, strict=False):
        if each > 0:
            most = min(most, math.floor((room + _ROUNDING) / each))
    return max(0, most)


@dataclass(slots=True, eq=False)
class Allowance:
    """What is left for the crews of one project together, of each resource in its own unit: of its quota, or of its
    limit. Below 0, they have more. Resources at the end that `room` does not have are not counted.
    """

    room: list[float]

    def fits(self, need: Vector, most: int) -> int:
        """How many workers with this need it allows, at most `most`."""
        return _fitting(self.room, need, most)

    def take(self, need: Vector, count: int) -> None:
        """Take workers off what is left; below 0, add some."""
        self.room = [room - count * each for room, each in zip(self.room, need, strict=False)]


@dataclass(slots=True, eq=False)
class Crew:
    """The workers of a step. `entitled`: how many it should have. `need`: what one takes of each resource, unless a
    node may have more of them than processors (`need_on`). `on`: how many it has, by node; it changes while workers
    are placed. `held`: how many that are. `bound`: how many a node may have by the settings of the step, by which goes
    what one takes. `most_on`: how many a node may have now. `barred`: nodes where it may have none.
    `chosen`: if not None, the only nodes where it may have some. `warm`: those that have its code and environment.
    `pays_s`: so long after they were placed, its workers have not paid for their `init()` yet, and yield only to what
    is owed. `quota`, `allowance`: what is left for its project of what it is guaranteed, and of what it may have; None
    where it has no settings, or no limit.
    """

    step_id: StepId
    entitled: int
    need: Vector
    on: dict[NodeId, int] = field(default_factory=dict)
    held: int = 0
    bound: int = NO_BOUND
    most_on: int = NO_BOUND
    barred: Collection[NodeId] = ()
    chosen: Collection[NodeId] | None = None
    warm: Collection[NodeId] = ()
    pays_s: float = 0.0
    quota: Allowance | None = None
    allowance: Allowance | None = None
    is_fixed: bool = False
    capacity: Vector | None = None
    size: float = field(init=False)
    """How hard a worker is to place."""
    scarcest: int = field(init=False)
    """The resource of which it takes most."""

    def __post_init__(self) -> None:
        self.measure(self.capacity)

    def measure(self, capacity: Vector | None) -> None:
        """Compare its need with what all nodes have together; None: with the other resources."""
        self.capacity = capacity
        sizes = self.need
        if capacity is not None:
            sizes = tuple(need / all_ if all_ > 0 else 0.0 for need, all_ in zip(self.need, capacity, strict=True))
        self.size = max(sizes)
        self.scarcest = sizes.index(self.size)

    @property
    def gpu_fraction(self) -> float:
        """What a worker takes of a GPU that it shares; 0 if it shares none."""
        return self.need[GPUS] if len(self.need) > GPUS and is_fraction(self.need[GPUS]) else 0.0

    @property
    def is_owed(self) -> bool:
        """Whether its project has less than it is guaranteed."""
        return self.quota is not None and self.quota.fits(self.need, 1) > 0

    def may_be_on(self, node_id: NodeId) -> bool:
        """Whether it may have workers on a node."""
        return node_id not in self.barred and (self.chosen is None or node_id in self.chosen)

    def need_on(self, at: Place) -> Vector:
        """What a worker takes of a node: where a node may have more workers than processors, they share these."""
        if self.is_fixed or self.bound <= at.processors or self.bound == NO_BOUND:
            return self.need
        return (at.processors / self.bound, *self.need[1:])

    def may_add(self, at: Place, most: int) -> int:
        """How many workers it may get on a node, at most `most`."""
        if not self.may_be_on(at.node_id):
            return 0
        need, most = self.need_on(at), min(most, self.most_on - self.on.get(at.node_id, 0))
        if self.allowance is not None:
            most = self.allowance.fits(need, most)
        return at.fits(need, most)

    def change(self, at: Place, count: int, now_s: float) -> None:
        """Get workers on a node, or lose some."""
        if not count:
            return
        self.held += count
        for bound in (self.quota, self.allowance):
            if bound is not None:
                bound.take(self.need_on(at), count)
        now_there = self.on.get(at.node_id, 0) + count
        if now_there:
            self.on[at.node_id] = at.workers[self.step_id] = now_there
            at.needs[self.step_id] = self.need_on(at)
        else:
            del self.on[at.node_id], at.workers[self.step_id], at.needs[self.step_id]
            at.since.pop(self.step_id, None)
        if count > 0:
            at.since[self.step_id] = now_s
        at.count_room()


@dataclass(slots=True, eq=False)
class Layout:
    """Crews and places from one decision to the next: what has not changed is not looked at again.

    Invariant: `Crew.on` and `Place.needs` name the same pairs, and `Place.workers` has the count of each of them.
    """

    crews: dict[StepId, Crew] = field(default_factory=dict)
    places: dict[NodeId, Place] = field(default_factory=dict)

    def add_place(self, at: Place) -> None:
        """A node has come. Of the workers that are there it keeps those of crews that may have some."""
        self.drop_place(at.node_id)
        self.places[at.node_id] = at
        for step_id, count in list(at.workers.items()):
            crew = self.crews.get(step_id)
            if crew is None or count <= 0 or not crew.may_be_on(at.node_id):
                del at.workers[step_id]
                at.since.pop(step_id, None)
                continue
            # An agent may have had more than its step may have there.
            at.workers[step_id] = crew.on[at.node_id] = min(count, crew.most_on)
            crew.held += crew.on[at.node_id]
            at.needs[step_id] = crew.need_on(at)
        at.count_room()
        self._keep_what_fits(at)

    def _keep_what_fits(self, at: Place) -> None:
        """Of what is there by what an agent has said, no more stays than fits: the largest goes first."""
        there = [self.crews[step_id] for step_id in at.needs]
        for crew in sorted(there, key=lambda crew: (not crew.is_fixed, -crew.size, crew.step_id)):
            while crew.on.get(at.node_id) and (min(at.room) < -_ROUNDING or not at.packs()):
                crew.change(at, -1, -math.inf)

    def drop_place(self, node_id: NodeId) -> None:
        """A node has gone, and what was there with it. What it was told stays as it is."""
        at = self.places.pop(node_id, None)
        for step_id in at.needs if at is not None else ():
            crew = self.crews[step_id]
            crew.held -= crew.on.pop(node_id)

    def drop_crew(self, step_id: StepId) -> None:
        """A step has ended, or wants nothing any more."""
        crew = self.crews.pop(step_id, None)
        for node_id in crew.on if crew is not None else ():
            at = self.places[node_id]
            del at.workers[step_id], at.needs[step_id]
            at.since.pop(step_id, None)
            at.count_room()

    def take_changed(self) -> list[Place]:
        """The places where something has changed since the last call."""
        changed = [at for at in self.places.values() if at.has_changed]
        for at in changed:
            at.has_changed = False
        return changed

    def bound(self, crew: Crew, barred: Collection[NodeId], chosen: Collection[NodeId] | None, now_s: float) -> None:
        """Say where a crew may have workers. It loses those that it has elsewhere."""
        crew.barred, crew.chosen = barred, chosen
        if barred or chosen is not None:
            for node_id, count in list(crew.on.items()):
                if not crew.may_be_on(node_id):
                    crew.change(self.places[node_id], -count, now_s)


def give_back(crews: Sequence[Crew], allowance: Allowance, places: Mapping[NodeId, Place], now_s: float) -> None:
    """Take workers from the crews of a project until it has no more than its limit: those beyond what a crew is
    entitled to first.
    """
    for crew in sorted(crews, key=lambda one: one.entitled - one.held):
        for node_id in sorted(crew.on, key=lambda at: (crew.on[at], at)):
            while min(allowance.room) < -_ROUNDING and node_id in crew.on:
                crew.change(places[node_id], -1, now_s)


def place(crews: Sequence[Crew], places: Mapping[NodeId, Place], now_s: float) -> None:
    """Give crews the workers that they are entitled to, as far as there is room. Those that go first are first in
    `crews`; but big needs go before small ones, which would leave them fragments.
    """
    missing = {crew.step_id: crew.entitled - crew.held for crew in crews}
    lacking = sorted((crew for crew in crews if missing[crew.step_id] > 0), key=lambda crew: -crew.size)
    if not lacking:
        return
    free = _Free(places, now_s)
    changes = _CHANGES_MAX
    for crew in lacking:
        wanted = min(missing[crew.step_id], changes)
        left = free.give(crew, wanted)
        changes -= wanted - left
        missing[crew.step_id] -= wanted - left
    victims = [_Victim(crew, missing, places, now_s) for crew in crews if missing[crew.step_id] < 0]
    for crew in lacking if victims else ():
        if missing[crew.step_id] and changes:
            changes -= _take_over(crew, min(missing[crew.step_id], changes), victims, missing, places, now_s)
    if victims and any(missing[crew.step_id] for crew in lacking):
        # A big one that has yielded may have left room for others.
        free = _Free(places, now_s)
        for crew in lacking:
            missing[crew.step_id] = free.give(crew, missing[crew.step_id])
    large = [crew for crew in lacking if crew.is_fixed and missing[crew.step_id] > 0]
    for crew in large:
        _make_room(crew, crews, missing, places, now_s)


def place_standby(crews: Sequence[Crew], places: Mapping[NodeId, Place], now_s: float) -> None:
    """Give what is free to these crews, as much as fits, in their order: where nobody else has a use for it, their
    workers are ready for a retry, or a straggler.
    """
    free = _Free(places, now_s)
    for crew in crews:
        free.give(crew, _CHANGES_MAX)


def _make_room(
    crew: Crew, crews: Sequence[Crew], missing: dict[StepId, int], places: Mapping[NodeId, Place], now_s: float
) -> None:
    """Place one worker that finds its room in pieces only, on several nodes: smaller workers of one node end, as far as
    their crews have more than they are entitled to, or go to other nodes.
    """
    smaller = {
        one.step_id: _Victim(one, missing, places, now_s) for one in crews if one is not crew and one.size < crew.size
    }
    able = [at for at in places.values() if at.node_id not in crew.barred and smaller.keys() & at.workers.keys()]
    for at in heapq.nlargest(_ROOMS_TRIED, able, key=lambda at: (at.room[crew.scarcest], at.node_id)):
        if not crew.may_be_on(at.node_id) or crew.on.get(at.node_id, 0) >= crew.most_on:
            continue
        if not _fitting(at.total, crew.need_on(at), 1):
            continue
        clearing = _Clearing(crew, at, smaller, missing, places, now_s)
        if clearing.clear():
            crew.change(at, 1, now_s)
            missing[crew.step_id] -= 1
            return
        clearing.undo()


class _Clearing:
    """Makes room on one node for one worker."""

    def __init__(
        self,
        crew: Crew,
        at: Place,
        smaller: Mapping[StepId, _Victim],
        missing: dict[StepId, int],
        places: Mapping[NodeId, Place],
        now_s: float,
    ) -> None:
        self._crew, self._at, self._missing, self._now_s = crew, at, missing, now_s
        self._smaller, self._missing_before = smaller, dict(missing)
        others = (other for other in places.values() if other is not at)
        self._others = heapq.nlargest(_ROOMS_TRIED, others, key=lambda other: (other.room[SLOTS], other.node_id))
        self._done: list[tuple[Crew, Place, int, dict[StepId, float]]] = []
        """What has changed: whose workers, where, by how many, and since when which crews had theirs before."""

    def clear(self) -> bool:
        """Have workers end or go until there is room; return whether there is."""
        while not self._crew.may_add(self._at, 1):
            if not any(self._leaves(self._smaller[step_id]) for step_id in self._in_the_way()):
                return False
        return True

    def undo(self) -> None:
        """Take it all back."""
        for crew, at, count, since in reversed(self._done):
            crew.change(at, -count, self._now_s)
            at.since.clear()
            at.since.update(since)
        self._missing.update(self._missing_before)
        self._done = []

    def _change(self, crew: Crew, at: Place, count: int) -> None:
        self._done.append((crew, at, count, dict(at.since)))
        crew.change(at, count, self._now_s)

    def _in_the_way(self) -> list[StepId]:
        """Whose workers hold what is lacking there, the smallest first."""
        need = self._crew.need_on(self._at)
        lacking = [r for r, each in enumerate(need) if each > self._at.room[r] + _ROUNDING]
        # Where it is the limit of its project that is lacking, or a whole device, any that holds of the same may help.
        lacking = lacking or [r for r, each in enumerate(need) if each > 0]
        found = [
            step_id
            for step_id, each in self._at.needs.items()
            if step_id in self._smaller and any(each[r] > 0 for r in lacking)
        ]
        return sorted(found, key=lambda step_id: (self._smaller[step_id].crew.size, step_id))

    def _leaves(self, victim: _Victim) -> bool:
        """Have one worker end or go; return whether it could."""
        crew = victim.crew
        if not self._ends(victim, self._at):
            if not self._may_end(victim, self._at):
                return False
            self._change(crew, self._at, -1)
            if not any(self._comes(crew, other) for other in self._others):
                return False
        return True

    def _may_end(self, victim: _Victim, at: Place) -> bool:
        return bool(victim.crew.on.get(at.node_id)) and (self._crew.is_owed or victim.has_paid(at))

    def _ends(self, victim: _Victim, at: Place) -> bool:
        """End a worker of a crew that has more than it is entitled to; return whether there was one."""
        if victim.beyond <= 0 or not self._may_end(victim, at):
            return False
        self._missing[victim.crew.step_id] += 1
        self._change(victim.crew, at, -1)
        return True

    def _comes(self, crew: Crew, other: Place) -> bool:
        """Give a crew a worker on another node, where others may end for it; return whether there is room."""
        if not crew.may_be_on(other.node_id) or crew.on.get(other.node_id, 0) >= crew.most_on:
            return False
        there = [
            one for step_id in sorted(other.workers) if (one := self._smaller.get(step_id)) and one.crew is not crew
        ]
        while not crew.may_add(other, 1):
            if not any(self._ends(one, other) for one in there):
                return False
        self._change(crew, other, 1)
        return True


class _Free:
    """The nodes with free room, those with most of a resource first."""

    def __init__(self, places: Mapping[NodeId, Place], now_s: float) -> None:
        self._places, self._now_s = places, now_s
        self._heaps: dict[int, list[tuple[float, NodeId]]] = {}

    def give(self, crew: Crew, wanted: int) -> int:
        """Place workers where there is room, evenly; return how many found none."""
        if not wanted:
            return 0
        resource = crew.scarcest
        heap = self._heap(crew, resource)
        if crew.gpu_fraction:
            wanted = self._fill_devices(crew, wanted)
        if wanted < len(heap):
            # One each, as elsewhere; a second one where no other node has room.
            for node_id in sorted(crew.warm):
                at = self._places.get(node_id)
                if wanted and at is not None and crew.may_add(at, 1):
                    crew.change(at, 1, self._now_s)
                    wanted -= 1
        each = max(1, wanted // max(1, len(heap)))
        if crew.gpu_fraction:
            each = math.floor(1 / crew.gpu_fraction + _ROUNDING)
        unfit: list[tuple[float, NodeId]] = []
        while wanted and heap:
            known, node_id = heap[0]
            at = self._places[node_id]
            if at.room[resource] < -known - _ROUNDING:
                # Another resource's heap, or a warm node, has given of it since.
                heapq.heapreplace(heap, (-at.room[resource], node_id))
                continue
            if crew.bound == NO_BOUND and at.room[resource] + _ROUNDING < crew.need[resource]:
                break  # nor has any other node room for one
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

    def _fill_devices(self, crew: Crew, wanted: int) -> int:
        """Place workers that share a GPU on devices of which others have a part; return how many found none. Whole
        devices stay free for those that need them.
        """
        begun = [at for at in self._places.values() if _ROUNDING < at.room[GPUS] % 1 < 1 - _ROUNDING]
        for at in sorted(begun, key=lambda at: (at.room[GPUS] % 1, at.node_id)):
            while wanted and at.room[GPUS] % 1 + _ROUNDING >= crew.gpu_fraction and crew.may_add(at, 1):
                crew.change(at, 1, self._now_s)
                wanted -= 1
                if at.room[GPUS] % 1 < _ROUNDING:
                    break
        return wanted

    def _heap(self, crew: Crew, resource: int) -> list[tuple[float, NodeId]]:
        if crew.chosen is not None:
            return self._ordered([self._places[at] for at in crew.chosen if at in self._places], resource)
        heap = self._heaps.get(resource)
        if heap is None:
            heap = self._heaps[resource] = self._ordered(self._places.values(), resource)
        return heap

    def _ordered(self, places: Iterable[Place], resource: int) -> list[tuple[float, NodeId]]:
        heap = [(-at.room[resource], at.node_id) for at in places if at.room[resource] > _ROUNDING]
        heapq.heapify(heap)
        return heap


class _Victim:
    """A crew that has more workers than it is entitled to, when a decision begins."""

    def __init__(self, crew: Crew, missing: Mapping[StepId, int], places: Mapping[NodeId, Place], now_s: float) -> None:
        self.crew = crew
        self._missing = missing
        self._since_s = now_s - crew.pays_s
        self.paid_on = [node_id for node_id in crew.on if self.has_paid(places[node_id])]
        """Nodes where its workers have paid for their `init()`."""

    def has_paid(self, at: Place) -> bool:
        """Whether its workers on a node have paid for their `init()`."""
        return at.since.get(self.crew.step_id, -math.inf) <= self._since_s

    @property
    def beyond(self) -> int:
        """How many workers it has still beyond what it is entitled to."""
        return -self._missing[self.crew.step_id]

    def yields_on(self, taker: Crew) -> list[NodeId]:
        """Where it yields to another crew: the nodes that the other one is ready on first, then those where it has
        most.
        """
        where = self.crew.on if taker.is_owed else self.paid_on
        on = [(at not in taker.warm, -self.crew.on.get(at, 0), at) for at in where if taker.may_be_on(at)]
        return [node_id for _, _, node_id in sorted(on)]


def _take_over(
    crew: Crew,
    wanted: int,
    victims: Sequence[_Victim],
    missing: dict[StepId, int],
    places: Mapping[NodeId, Place],
    now_s: float,
) -> int:
    """Place workers where others yield; return how many. Who has most beyond what it is entitled to yields first."""
    taken = 0
    able = [one for one in victims if one.beyond > 0 and (crew.is_owed or one.paid_on)]
    for victim in sorted(able, key=lambda one: -one.beyond * one.crew.size):
        for node_id in victim.yields_on(crew):
            at = places[node_id]
            has_paid = victim.has_paid(places[node_id])
            while taken < wanted and crew.on.get(node_id, 0) < crew.most_on and (has_paid or crew.is_owed):
                if not crew.may_add(at, 1):
                    yielding = _yielding(crew, victim.crew, at, victim.beyond)
                    if not yielding:
                        break
                    victim.crew.change(at, -yielding, now_s)
                    missing[victim.crew.step_id] += yielding
                crew.change(at, 1, now_s)
                missing[crew.step_id] -= 1
                taken += 1
            if taken == wanted or not victim.beyond:
                break
        if taken == wanted:
            break
    return taken


def _yielding(crew: Crew, victim: Crew, at: Place, most: int) -> int:
    """How many workers of `victim` must end on a node for one of `crew`; 0 if they would not be enough."""
    count, most = 0, min(most, victim.on.get(at.node_id, 0))
    if not most:
        return 0
    lacking: list[list[float]] = [at.room]
    if crew.allowance is not None and not crew.allowance.fits(crew.need_on(at), 1):
        if victim.allowance is not crew.allowance:
            return 0
        lacking.append(crew.allowance.room)
    for rooms in lacking:
        for room, each, freed in zip(rooms, crew.need_on(at), victim.need_on(at), strict=False):
            if each > room + _ROUNDING:
                if freed <= 0:
                    return 0
                count = max(count, math.ceil((each - room - _ROUNDING) / freed))
    if len(crew.need) > GPUS and crew.need[GPUS] > 0:
        while count <= most and not _packs_without(crew, victim, at, count):
            count += 1
    return count if 0 < count <= most else 0


def _packs_without(crew: Crew, victim: Crew, at: Place, count: int) -> bool:
    """Whether the GPUs of a node have room for a worker once so many of `victim` have ended."""
    left = {**at.workers, victim.step_id: at.workers[victim.step_id] - count}
    needs = [need[GPUS] for step_id, need in at.needs.items() for _ in range(left[step_id])]
    return pack(round(at.total[GPUS]), [*needs, crew.need[GPUS]]) is not None
