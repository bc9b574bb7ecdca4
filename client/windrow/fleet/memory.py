"""What a fleet remembers of a group's submissions: how often they failed, how fast they were, until when it waits.

Times are in seconds of one clock.
"""

from __future__ import annotations

import math
from typing import NamedTuple

FAILED_MAX = 10
"""So many submissions in a row that failed pause a group."""
UNJOINED_MAX = 3
"""So many agents in a row that never joined pause it."""
PAUSE_S = 60.0
"""The first pause; each further one is twice as long."""
PAUSE_MAX_S = 1800.0
MINUTE_S = 60.0


class Memory(NamedTuple):
    """Of one group. A value that never changes: the functions below return what is remembered next."""

    failed: int = 0
    """Submissions that failed in a row."""
    unjoined: int = 0
    """Agents in a row that never joined."""
    pauses: int = 0
    """Pauses in a row; 0: it tries as it is wanted, else with one allocation at a time."""
    paused_until: float = -math.inf
    why: str = ""
    """Of the last failure, in the engine's own words where it has any."""
    recent: tuple[float, ...] = ()
    """When it submitted, in the last minute."""
    surplus_since: float | None = None
    """Since when it has had queued allocations that nobody wants."""
    surplus_least: int = 0
    """The fewest that it was since then."""

    @property
    def pause_s(self) -> float:
        """How long its last pause is."""
        return min(PAUSE_MAX_S, PAUSE_S * 2.0 ** (self.pauses - 1))

    def is_paused(self, now: float) -> bool:
        """Whether it waits, because asking has come to nothing too often."""
        return now < self.paused_until


def begun(memory: Memory, now: float, count: int) -> Memory:
    """So many submissions begin."""
    return memory._replace(recent=(*recent(memory, now), *[now] * count))


def recent(memory: Memory, now: float) -> tuple[float, ...]:
    """When it submitted, in the minute before."""
    return tuple(moment for moment in memory.recent if now - moment < MINUTE_S)


def submission_failed(memory: Memory, now: float, why: str) -> Memory:
    """The engine has refused a submission, or not answered."""
    return _failed(memory._replace(failed=memory.failed + 1, why=why), now, memory.failed + 1 >= FAILED_MAX)


def submitted(memory: Memory) -> Memory:
    """The engine has taken a submission. Whether its agent joins is another matter."""
    return memory._replace(failed=0, pauses=memory.pauses if memory.unjoined else 0)


def never_joined(memory: Memory, now: float, why: str) -> Memory:
    """The engine has started an agent that never joined."""
    return _failed(memory._replace(unjoined=memory.unjoined + 1, why=why), now, memory.unjoined + 1 >= UNJOINED_MAX)


def joined(memory: Memory) -> Memory:
    """An agent has joined."""
    return memory._replace(unjoined=0, pauses=memory.pauses if memory.failed else 0)


def resumed(memory: Memory) -> Memory:
    """Someone wants it to try again at once."""
    return memory._replace(failed=0, unjoined=0, pauses=0, paused_until=-math.inf, why="")


def _failed(memory: Memory, now: float, too_often: bool) -> Memory:
    """A failure; what was under way when a pause began makes it no longer."""
    if not (too_often or memory.pauses) or memory.is_paused(now):
        return memory
    memory = memory._replace(pauses=memory.pauses + 1)
    return memory._replace(paused_until=now + memory.pause_s)
