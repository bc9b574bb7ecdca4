"""Which node has read which data last, so that a later job over the same data prefers that node: its data cache may
still have it.

Data is known by the crc32 of a mini-batch's recipe, which names each object with its etag. Only completions of nodes
that keep what they fetch are noted: where there is none, all of this costs nothing. What is noted is a guess, and only
decides who gets which mini-batch first: a node without such data, or one that has had all of its own, takes any.

Volatile: a new master learns it again. Its memory is bounded: what was noted before in the same place is forgotten.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field

from windrow_master.core.ids import NodeId
from windrow_master.core.ready import INDEX_MASK, ReadyQueue

PLACES = 1 << 20
"""A power of two: mini-batches that are remembered at most, of all nodes together."""
NODES_MAX = 0xFFFF
AHEAD = 1 << 16
"""A step is sorted by nodes as far as so many of its mini-batches wait, and then in pieces."""
PIECE = 1 << 13


@dataclass(slots=True)
class DataPlaces:
    """`sums` and `readers`, by the low bits of the crc32: the whole crc32, and the number of the node; 0: none."""

    sums: array[int] = field(default_factory=lambda: array("I"))
    readers: array[int] = field(default_factory=lambda: array("H"))
    numbers: dict[NodeId, int] = field(default_factory=dict)

    def note(self, node_id: NodeId, recipe_crc: int) -> None:
        """Note that a node has fetched the data of a recipe, and may have kept it."""
        number = self.numbers.get(node_id)
        if number is None:
            if len(self.numbers) >= NODES_MAX:
                return
            number = self.numbers[node_id] = len(self.numbers) + 1
            if not self.readers:
                self.sums.frombytes(bytes(4 * PLACES))
                self.readers.frombytes(bytes(2 * PLACES))
        place = recipe_crc & (PLACES - 1)
        self.sums[place], self.readers[place] = recipe_crc, number

    def reader(self, recipe_crc: int) -> int:
        """The number of the node that has fetched this data last; 0 if nobody knows."""
        place = recipe_crc & (PLACES - 1)
        return self.readers[place] if self.readers and self.sums[place] == recipe_crc else 0

    def take_known(
        self, preferred: Preferred | None, node_id: NodeId, count: int, ready: ReadyQueue, crcs: array[int]
    ) -> tuple[Preferred | None, list[int]]:
        """Remove from the queue of a step up to `count` mini-batches whose data a node has read last, and return them,
        with what the step has to keep for the next time. `preferred`: what that was before.
        """
        number = self.numbers.get(node_id)
        if number is None:
            return preferred, []
        if preferred is None:
            preferred = Preferred(self)
            preferred.sort(ready.waiting_ranked(), crcs)
        while ready.fresh and len(ready.ranked) < AHEAD:
            preferred.sort(ready.rank_fresh(PIECE), crcs)
        return preferred, preferred.take(number, count, ready)


@dataclass(slots=True)
class Preferred:
    """The ready mini-batches of one step by the number of the node that should have them: entries of
    `ReadyQueue.ranked`, as heaps. One that another node took meanwhile stays until it comes up.
    """

    places: DataPlaces
    of_node: dict[int, list[int]] = field(default_factory=dict)

    def sort(self, entries: Iterable[int], crcs: array[int]) -> None:
        """Sort ready mini-batches by nodes."""
        found: dict[int, list[int]] = {}
        for entry in entries:
            if number := self.places.reader(crcs[entry & INDEX_MASK]):
                found.setdefault(number, []).append(entry)
        for number, more in found.items():
            waiting = self.of_node.setdefault(number, [])
            waiting += more
            heapq.heapify(waiting)

    def take(self, number: int, count: int, ready: ReadyQueue) -> list[int]:
        """Remove up to `count` mini-batches of a node from the queue, and return them: none that others go before, by
        their rank or since they were put back.
        """
        waiting, taken = self.of_node.get(number), list[int]()
        while waiting and len(taken) < count and ready.is_next(waiting[0]):
            index = heapq.heappop(waiting) & INDEX_MASK
            if ready.take_ranked(index):
                taken.append(index)
        return taken
