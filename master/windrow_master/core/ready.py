"""The ready queue of one step. It holds mini-batches that were never leased (as ranges, or by rank), those that
were put back, and those that failed, grouped by the nodes where they failed.
"""

from __future__ import annotations

import bisect
import heapq
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import itemgetter

from windrow_master.core.standing import Past

RANK_MAX = 2**63 - 1
NO_PAST = Past(())
_INDEX_BITS = 32
INDEX_MASK = (1 << _INDEX_BITS) - 1


@dataclass(slots=True)
class ReadyQueue:
    """Indices of QUEUED mini-batches. Those that were put back go first, then those with ranks, the highest first,
    then the rest in order. Retries are kept apart, since not every node may have them.
    """

    fresh: deque[tuple[int, int]] = field(default_factory=deque)
    """Runs [start, stop), ascending."""
    returned: list[int] = field(default_factory=list)
    """Heap of indices that may run at once."""
    ranked: list[int] = field(default_factory=list)
    """Heap of ranks, turned around, each with its index in the low bits; what was removed stays until it comes up."""
    in_ranked: bytearray = field(default_factory=bytearray)
    """By index: 1 while it waits in `ranked`."""
    retries: dict[Past, deque[tuple[float, int]]] = field(default_factory=dict)
    """What failed: (since when it waits, index), by the nodes where it did. None is empty."""
    lives: dict[int, float] = field(default_factory=dict)
    """By index, how long a node must live that gets it (`lifetimes`): of those that took much longer than others."""
    long: dict[int, float] = field(default_factory=dict)
    """Those of them that may run now. They wait for a node that lives so long."""
    longest_life_s: float = 0.0
    """How long one of the nodes lives that may have them."""
    delayed: list[tuple[float, int, Past]] = field(default_factory=list)
    """Heap of (not before, index, where it failed)."""
    size: int = 0
    retry_count: int = 0

    def __len__(self) -> int:
        return self.size

    def add_fresh(self, start: int, stop: int) -> None:
        """Add a run of mini-batches after all others."""
        if stop > start:
            if self.fresh and self.fresh[-1][1] == start:
                self.fresh[-1] = (self.fresh[-1][0], stop)
            else:
                self.fresh.append((start, stop))
            self.size += stop - start

    def add_ranked(self, indices: Iterable[int], ranks: Iterable[int]) -> list[int]:
        """Add mini-batches with their ranks, from 0 to `RANK_MAX`; return their entries. Higher ranks go first; equal
        ranks go by index.
        """
        added = [(RANK_MAX - rank) << _INDEX_BITS | index for index, rank in zip(indices, ranks, strict=True)]
        if not added:
            return added
        last = max(entry & INDEX_MASK for entry in added)
        if last >= len(self.in_ranked):
            self.in_ranked.extend(bytes(max(last + 1 - len(self.in_ranked), len(self.in_ranked))))
        for entry in added:
            self.in_ranked[entry & INDEX_MASK] = 1
        if len(added) > len(self.ranked):
            # After a restart, all of them come at once.
            self.ranked.extend(added)
            heapq.heapify(self.ranked)
        else:
            for entry in added:
                heapq.heappush(self.ranked, entry)
        self.size += len(added)
        return added

    def put_back(self, index: int, now: float, past: Past = NO_PAST, not_before: float = 0.0) -> None:
        """Put back a mini-batch that was leased before."""
        if not_before:
            heapq.heappush(self.delayed, (not_before, index, past))
        else:
            self._return(index, now, past)
        self.size += 1

    def ready_count(self, now: float) -> int:
        """How many mini-batches may run now, including retries; not those for which no node lives long enough."""
        self.release_due(now)
        beyond = sum(life_s >= self.longest_life_s for life_s in self.long.values()) if self.long else 0
        return self.size - len(self.delayed) - beyond

    @property
    def anywhere(self) -> int:
        """How many may run now on any node, as of the last `release_due`."""
        return self.size - self.retry_count - len(self.delayed) - len(self.long)

    @property
    def has_only_long(self) -> bool:
        """Whether all that may run now needs a node that lives long."""
        return bool(self.long) and len(self.long) + len(self.delayed) == self.size

    @property
    def least_life_s(self) -> float:
        """How long a node must live, at least, to get one of those that need much time."""
        return min(self.long.values(), default=0.0)

    def note_life(self, index: int, life_s: float) -> None:
        """Note how long a node must live to get a mini-batch that is not in the queue now. It is never noted less."""
        self.lives[index] = max(self.lives.get(index, 0.0), life_s)

    def take_long(self, index: int) -> None:
        """Remove one that waits for a node that lives long."""
        del self.long[index]
        self.size -= 1

    def take_retries(self, past: Past, count: int) -> list[int]:
        """Remove and return up to `count` mini-batches that failed on these nodes, the longest waiting first."""
        waiting = self.retries[past]
        taken = [waiting.popleft()[1] for _ in range(min(count, len(waiting)))]
        if not waiting:
            del self.retries[past]
        self.size -= len(taken)
        self.retry_count -= len(taken)
        return taken

    def take(self, count: int, now: float) -> list[int]:
        """Remove and return up to `count` mini-batches that may run now on any node."""
        self.release_due(now)
        taken: list[int] = []
        while self.returned and len(taken) < count:
            taken.append(heapq.heappop(self.returned))
        while self.ranked and len(taken) < count:
            index = heapq.heappop(self.ranked) & INDEX_MASK
            if self.in_ranked[index]:
                self.in_ranked[index] = 0
                taken.append(index)
        while self.fresh and len(taken) < count:
            start, stop = self.fresh.popleft()
            middle = min(stop, start + count - len(taken))
            taken.extend(range(start, middle))
            if middle < stop:
                self.fresh.appendleft((middle, stop))
        self.size -= len(taken)
        return taken

    def waiting_ranked(self) -> list[int]:
        """The entries of `ranked` that still wait, in no order."""
        return [entry for entry in self.ranked if self.in_ranked[entry & INDEX_MASK]]

    def rank_fresh(self, most: int) -> list[int]:
        """Give the first `most` mini-batches without a rank the lowest one, so that each can be taken alone. Return
        their entries.
        """
        moved: list[int] = []
        while self.fresh and len(moved) < most:
            start, stop = self.fresh.popleft()
            middle = min(stop, start + most - len(moved))
            moved.extend(range(start, middle))
            if middle < stop:
                self.fresh.appendleft((middle, stop))
        self.size -= len(moved)
        return self.add_ranked(moved, (0 for _ in moved))

    def is_next(self, entry: int) -> bool:
        """Whether no other mini-batch goes before one of `ranked`, but some of the same rank."""
        while self.ranked and not self.in_ranked[self.ranked[0] & INDEX_MASK]:
            heapq.heappop(self.ranked)
        return not self.returned and (not self.ranked or entry >> _INDEX_BITS <= self.ranked[0] >> _INDEX_BITS)

    def take_ranked(self, index: int) -> bool:
        """Remove one mini-batch of `ranked`; False if it does not wait there."""
        if index >= len(self.in_ranked) or not self.in_ranked[index]:
            return False
        self.in_ranked[index] = 0
        self.size -= 1
        return True

    def remove(self, index: int) -> bool:
        """Remove one mini-batch; False if it is not in the queue."""
        # Runs ascend. After a restart there may be thousands of them, and as many leases to be adopted.
        at = bisect.bisect(self.fresh, index, key=itemgetter(0)) - 1
        if at >= 0 and index < self.fresh[at][1]:
            start, stop = self.fresh[at]
            del self.fresh[at]
            for part in ((index + 1, stop), (start, index)):
                if part[0] < part[1]:
                    self.fresh.insert(at, part)
            self.size -= 1
            return True
        if self.take_ranked(index):
            return True
        if index in self.long:
            self.take_long(index)
            return True
        if index in self.returned:
            self.returned.remove(index)
            heapq.heapify(self.returned)
            self.size -= 1
            return True
        for past, waiting in self.retries.items():
            for entry in waiting:
                if entry[1] == index:
                    waiting.remove(entry)
                    if not waiting:
                        del self.retries[past]
                    self.size -= 1
                    self.retry_count -= 1
                    return True
        kept = [entry for entry in self.delayed if entry[1] != index]
        if len(kept) < len(self.delayed):
            self.delayed = kept
            heapq.heapify(self.delayed)
            self.size -= 1
            return True
        return False

    def clear(self) -> None:
        """Remove all."""
        self.fresh.clear()
        self.returned.clear()
        self.ranked.clear()
        self.in_ranked.clear()
        self.delayed.clear()
        self.retries.clear()
        self.lives.clear()
        self.long.clear()
        self.size = self.retry_count = 0

    def shift(self, gap_s: float) -> None:
        """Move all delays by a gap during which nobody could act."""
        self.delayed = [(due + gap_s, index, past) for due, index, past in self.delayed]
        for waiting in self.retries.values():
            for at, (since, index) in enumerate(waiting):
                waiting[at] = (since + gap_s, index)

    def _return(self, index: int, now: float, past: Past) -> None:
        if index in self.lives:
            self.long[index] = self.lives[index]
        elif past.nodes:
            self.retries.setdefault(past, deque()).append((now, index))
            self.retry_count += 1
        else:
            heapq.heappush(self.returned, index)

    def release_due(self, now: float) -> bool:
        """Make mini-batches ready whose delay is over; return whether there were any."""
        released = False
        while self.delayed and self.delayed[0][0] <= now:
            due, index, past = heapq.heappop(self.delayed)
            self._return(index, due, past)
            released = True
        return released
