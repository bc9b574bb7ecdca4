"""How many workers each step gets: steps share the slots of a node by priority, then by weight. A pure function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Demand:
    """What one step can use on this node.

    `workers_max`: worker processes; `explicit`: the job file sets that number (`max_concurrency_per_instance`), so it
    holds even if the node has fewer slots. `weight`: at least 1. `priority`: higher goes first.
    """

    step_id: int
    priority: int
    weight: int
    workers_max: int
    explicit: bool = False


def allot(slots: int, demands: Sequence[Demand]) -> dict[int, int]:
    """Worker processes for each step, by step id.

    - Steps of the highest priority are served first; the next ones get what is left.
    - Steps of equal priority share by weight. Each gets one worker before any gets two, while slots last. What a step
      cannot use goes to the others. Ties go to the lower step id.
    - A step with an explicit number may exceed the slots if it is alone at the top.
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
            # The next slot goes to the step with the least for its weight (Webster's method: even shares without bias).
            chosen = min(
                open_, key=lambda d: (result[d.step_id] > 0, (2 * result[d.step_id] + 1) / d.weight, d.step_id)
            )
            result[chosen.step_id] += 1
            free -= 1
    return result
