"""Rule 28 of `sim_checkers`: the rate limit of a step, over all nodes."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

from sim_planting import Broken
from windrow_master.core import effects as fx
from windrow_master.core.core import Core
from windrow_master.core.pace import CATCH_UP_S

if TYPE_CHECKING:
    from sim_run import Simulation

WINDOW_S = 1.0


class Paces:
    """Counts the leases of each step that a master hands out within a second."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self._begun: dict[tuple[int, int], deque[float]] = {}
        """(master incarnation, step) -> when leases were handed out, within the last second."""

    def on_effects(self, core: Core, effects: list[fx.Effect]) -> None:
        """Leases are handed out."""
        now_s = self._sim.world.now_s
        for effect in effects:
            if not isinstance(effect, fx.SendAssignments):
                continue
            rate_per_s = core.state.steps[effect.step_id].settings.rate_per_s
            if rate_per_s == math.inf:
                continue
            begun = self._begun.setdefault((core.state.incarnation, effect.step_id), deque())
            begun.extend(now_s for lease in effect.leases if lease.split is None)
            while begun and begun[0] < now_s - WINDOW_S:
                begun.popleft()
            most = 1 + rate_per_s * (WINDOW_S + CATCH_UP_S)
            if len(begun) > most:
                raise Broken(28, f"{len(begun)} leases of step {effect.step_id} in a second, at {rate_per_s:g}/s")
