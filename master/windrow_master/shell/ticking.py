"""Tells the core that time has passed: when something is due, not at intervals.

Invariants:
1. A tick comes at most `GRAIN_S` after something has become due; if the moment was known before, at that moment.
2. While anything can become due, this process looks at the clock every `LOOK_S`. A look that comes late means that the
   process stood still, and the core moves its deadlines (`Tick.interval_s`).
3. Between two ticks there is at least `GRAIN_S`.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable

from windrow.common.journal import say

from windrow_master.core import commands
from windrow_master.core.commands import Command, Moment, Tick
from windrow_master.core.core import Core
from windrow_master.core.ticks import STALL_S

GRAIN_S = 0.25
LOOK_S = 1.0
TOLD_FROM_S = 2.0
"""A shorter standstill is not logged."""
_JUST_AFTER_S = 0.001
"""A deadline counts as over just after its moment."""

QUIET = (commands.HeartbeatNode, commands.ExplainJob, commands.NoteProgress)
"""Commands after which nothing is due sooner than before."""


class Plan:
    """Computes the next moment to wake. Pure: the caller brings the time.

    `wake_s`: monotonic; inf: nothing is due.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self.wake_s = math.inf

    def after(self, handled: Iterable[Command], now_s: float) -> None:
        """Take note of handled commands: something may be due sooner than planned."""
        if now_s + GRAIN_S < self.wake_s and not all(type(command) in QUIET for command in handled):
            self.wake_s = now_s + GRAIN_S

    def take(self, now: Moment, *, wanted: bool = False) -> Tick | None:
        """Return the tick to handle now, if any, and set the next moment. Call it at `wake_s` or later.

        `wanted`: somebody else needs regular ticks.
        """
        planned_s = min(self.wake_s, now.monotonic_s)
        due_s = self._core.next_due(now)
        late = now.monotonic_s - planned_s > STALL_S
        if due_s < now.monotonic_s or late or wanted:
            self.wake_s = now.monotonic_s + GRAIN_S
            last_s = self._core.state.tick_s
            return Tick(planned_s - last_s if last_s is not None else 0.0)
        if math.isinf(due_s):
            self.wake_s = math.inf
        else:
            self.wake_s = min(due_s + _JUST_AFTER_S, now.monotonic_s + LOOK_S)
        return None


class Ticker:
    """Drives a plan by the clock of the event loop."""

    def __init__(
        self, core: Core, submit: Callable[[Tick], object], moment: Callable[[], Moment], is_wanted: Callable[[], bool]
    ) -> None:
        """`is_wanted()`: whether ticks must come even if nothing is due."""
        self._plan = Plan(core)
        self._submit = submit
        self._moment = moment
        self._is_wanted = is_wanted
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def after(self, handled: Iterable[Command]) -> None:
        """Plan the next tick after a group of commands was handled."""
        self._plan.after(handled, self._moment().monotonic_s)
        self._arm()

    def close(self) -> None:
        """Stop ticking."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        self._tell_standstill()
        wanted = self._is_wanted()
        tick = self._plan.take(self._moment(), wanted=wanted)
        if tick is not None:
            self._submit(tick)
        self._arm()

    def _tell_standstill(self) -> None:
        late_s = self._moment().monotonic_s - self._plan.wake_s
        if late_s > TOLD_FROM_S:
            say(logging.WARNING, "this process stood still; all deadlines are moved", seconds=round(late_s, 1))

    def _arm(self) -> None:
        # `wake_s` fits the event loop: its clock is CLOCK_MONOTONIC as well.
        if self._closed or math.isinf(self._plan.wake_s):
            return
        if self._timer is not None:
            if self._timer.when() <= self._plan.wake_s:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(self._plan.wake_s, self._look)
