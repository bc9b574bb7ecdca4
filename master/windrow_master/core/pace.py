"""When a mini-batch may run, where a service sets the pace: the delay of a retry, and a step's rate limit.

The rate limit is a schedule: each call moves the moment of the next one by its share of a second. What was missed,
because leases are handed out in groups, may be caught up with, but only `CATCH_UP_S` of it. Nothing of this is stored:
a new master begins a new schedule, and does not catch up with the time before it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

DELAY_MAX_S = 60.0
"""The longest delay of a retry, unless the exception of the script asks for a longer one."""

RETRY_AFTER_MAX_S = 3600.0
"""The longest delay that an exception of a script may ask for."""

CATCH_UP_S = 0.3
"""How much of its schedule a step may catch up with at once. More than the time between two ticks, so that leases that
are handed out in groups do not fall behind."""

_JITTER = 0.25
_GOLDEN = 0x9E3779B97F4A7C15
"""Multiplied by it, successive numbers are spread evenly over 64 bits."""


def retry_delay_s(first_s: float, failures: int, lease_id: int) -> float:
    """How long a mini-batch waits after its `failures`-th failure, in seconds: `first_s`, doubled with each failure,
    at most `DELAY_MAX_S`, and up to a quarter more or less, so that those that failed together do not all come back
    at once. 0 if `first_s` is.
    """
    if not first_s:
        return 0.0
    delay_s = min(first_s * 2.0 ** min(failures - 1, 60), DELAY_MAX_S)
    spread = (lease_id * _GOLDEN % 2**64) / 2**64
    return min(delay_s * (1 - _JITTER + 2 * _JITTER * spread), DELAY_MAX_S)


def split_rate(rate_per_s: float, at_a_time: int) -> float:
    """The share of a rate limit that each mini-batch has that is split, if up to `at_a_time` are. Its worker keeps to
    it, since it calls `run()` many times for one lease.
    """
    return rate_per_s / (at_a_time + 1)


def rate_left(rate_per_s: float, at_a_time: int, running: int) -> float:
    """What is left of a rate limit for all others while so many mini-batches are split."""
    return rate_per_s - running * split_rate(rate_per_s, at_a_time)


@dataclass(slots=True)
class Pace:
    """How far a step has come in the schedule of its rate limit. Moments are monotonic."""

    due_s: float = -math.inf
    """When the next call may begin."""

    def allowed(self, rate_per_s: float, now: float) -> int:
        """How many calls may begin now."""
        if self.due_s == -math.inf:
            self.due_s = now
        if now < self.due_s:
            return 0
        return 1 + int((now - max(self.due_s, now - CATCH_UP_S)) * rate_per_s)

    def charge(self, units: float, rate_per_s: float, now: float) -> None:
        """Count calls, or items, that begin now."""
        self.due_s = max(self.due_s, now - CATCH_UP_S) + units / rate_per_s

    def shift(self, gap_s: float) -> None:
        """Move the schedule by a gap during which nobody could act."""
        self.due_s += gap_s
