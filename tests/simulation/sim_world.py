"""The virtual world: one clock, one source of randomness, one queue of events. The same seed gives the same history."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any
from zlib import crc32

from windrow_master.core.commands import Moment

WALL_S = 1_700_000_000.0
TRACE_MAX = 400


class World:
    """Time, chance and the order of events.

    Invariant: nothing outside the queue changes the world, and equal times are served in the order of asking.
    """

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.now_s = 100.0
        self.faults_until_s = 0.0
        self.history = deque[tuple[Any, ...]](maxlen=None if keep_trace else TRACE_MAX)
        self.digest = 0
        """Of the whole history: equal digests, equal histories."""
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    @property
    def moment(self) -> Moment:
        """Now, as the core gets it."""
        return Moment(self.now_s, WALL_S + self.now_s)

    @property
    def faulty(self) -> bool:
        """Whether things may still go wrong."""
        return self.now_s < self.faults_until_s

    def trace(self, *what: Any) -> None:
        """Write down what happens."""
        entry = (round(self.now_s, 4), *what)
        self.history.append(entry)
        self.digest = crc32(repr(entry).encode(), self.digest)

    def after(self, delay_s: float, event: Callable[[], None]) -> None:
        """Let something happen later."""
        self._count += 1
        heapq.heappush(self._queue, (self.now_s + delay_s, self._count, event))

    def chance(self, share: float) -> bool:
        """Whether a fault of this share strikes now; never after faults have stopped."""
        return share > 0.0 and self.now_s < self.faults_until_s and self.rng.random() < share

    def around(self, mean_s: float) -> float:
        """A duration around a mean, now and then much longer."""
        return self.rng.expovariate(1.0 / mean_s) if mean_s else 0.0

    def run(self, until: Callable[[], bool], limit_s: float) -> bool:
        """Let events happen until a condition holds; False when time is up before."""
        checked = 0
        while self._queue and self._queue[0][0] <= limit_s:
            self.now_s, _, event = heapq.heappop(self._queue)
            event()
            checked += 1
            if checked % 16 == 0 and until():
                return True
        return until()


class Process:
    """Something that can be paused and killed: its events wait while it hangs, and vanish with it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.alive = True
        self.paused_until_s = 0.0

    def after(self, delay_s: float, event: Callable[[], None]) -> None:
        """Let something happen later in this process."""

        def run() -> None:
            if not self.alive:
                return
            if self.world.now_s < self.paused_until_s:
                self.world.after(self.paused_until_s - self.world.now_s, run)
            else:
                event()

        self.world.after(delay_s, run)

    def pause(self, duration_s: float) -> None:
        """Hang for a while."""
        self.paused_until_s = max(self.paused_until_s, self.world.now_s + duration_s)
