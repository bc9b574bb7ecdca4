"""How the steps on a node share its slots: by priority first, then by weight. A pure function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Demand:
    """What one step asks of the node.

    `workers_max`: worker processes it can use; `explicit`: the job file names that number
    (`max_concurrency_per_instance`), so it holds even where it is more than the slots.
    `weight`: at least 1. `priority`: the higher, the sooner.
    """

    step_id: int
    priority: int
    weight: int
    workers_max: int
    explicit: bool = False


def allot(slots: int, demands: Sequence[Demand]) -> dict[int, int]:
    """Worker processes for each step.

    - Steps of the highest priority are served first; what they leave goes to the next.
    - Among equals slots go by weight; each gets one before any gets two, as far as they reach;
      what a step cannot use goes to the others. Ties go to the lower step id.
    - A step that names its number gets it where it need not share: the bound is then that number, not the slots.
    """
    result = {demand.step_id: 0 for demand in demands}
    if not demands:
        return result
    top = max(demand.priority for demand in demands)
    free = max([slots, *(d.workers_max for d in demands if d.explicit and d.priority == top)])
    for priority in sorted({demand.priority for demand in demands}, reverse=True):
        tier = sorted((d for d in demands if d.priority == priority and d.workers_max > 0), key=lambda d: d.step_id)
        while free > 0:
            open_ = [d for d in tier if result[d.step_id] < d.workers_max]
            if not open_:
                break
            # The next slot goes to whoever has least for its weight (Webster's method: even shares without bias).
            chosen = min(
                open_, key=lambda d: (result[d.step_id] > 0, (2 * result[d.step_id] + 1) / d.weight, d.step_id)
            )
            result[chosen.step_id] += 1
            free -= 1
    return result
