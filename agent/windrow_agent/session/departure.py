"""When an agent leaves by itself: before its lifetime ends, or once it has had nothing to do for long enough."""

from __future__ import annotations

import math

from windrow.common.quantities import duration

from windrow_agent.config import HAND_BACK_S


class Departure:
    """Moments and times are in seconds, moments by one monotonic clock.

    `lifetime_s`: how long the agent lives from `started_s` on; then something else ends it. `grace_s`: how long what
    runs may take once the agent drains. `exit_idle_s`: how long it stays with nothing to do. None: without an end.
    """

    def __init__(self, lifetime_s: float | None, exit_idle_s: float | None, grace_s: float, started_s: float) -> None:
        self._ends_s = math.inf if lifetime_s is None else started_s + lifetime_s
        self._drains_s = self._ends_s - grace_s - HAND_BACK_S
        self._exit_idle_s = math.inf if exit_idle_s is None else exit_idle_s
        self._busy_s = started_s
        """When it was busy last."""

    @property
    def is_planned(self) -> bool:
        """Whether it ever leaves by itself."""
        return min(self._ends_s, self._exit_idle_s) < math.inf

    def left_s(self, now_s: float) -> float | None:
        """How long the agent still lives; None without an end."""
        return None if self._ends_s == math.inf else max(0.0, self._ends_s - now_s)

    def stay(self, now_s: float) -> None:
        """Something is about to be done here: being idle counts from now on."""
        self._busy_s = max(self._busy_s, now_s)

    def why(self, now_s: float, *, busy: bool) -> str:
        """Why the agent leaves now, in words; empty if it stays. `busy`: it has something to do."""
        if busy:
            self._busy_s = now_s
        if now_s >= self._drains_s:
            return f"its lifetime ends in {duration(max(0.0, self._ends_s - now_s))}"
        if now_s - self._busy_s >= self._exit_idle_s:
            return f"it has had nothing to do for {duration(now_s - self._busy_s)}"
        return ""

    def due_s(self, now_s: float) -> float:
        """The seconds until `why` may have another answer, unless the agent becomes busy or idle before."""
        return max(0.0, min(self._drains_s, self._busy_s + self._exit_idle_s) - now_s)
