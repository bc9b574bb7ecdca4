"""How many workers each step gets: steps share what a node has by priority, then by weight. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from windrow_agent.node.capacity import NOTHING, Capacity, Need


@dataclass(frozen=True, slots=True)
class Demand:
    """What one step can use on this node.

    `workers_max`: worker processes; `explicit`: the job file sets that number (`max_concurrency_per_instance`), so it
    holds even if the node has fewer slots. `weight`: at least 1. `priority`: higher goes first. `need`: what a worker
    takes of the node.
    """

    step_id: int
    priority: int
    weight: int
    workers_max: int
    explicit: bool = False
    need: Need = NOTHING


def allot(capacity: Capacity, demands: Sequence[Demand]) -> dict[int, int]:
    """Worker processes for each step, by step id.

    - Steps of the highest priority are served first; the next ones get what is left.
    - Steps of equal priority share by weight. Each gets one worker before any gets two, while slots last. What a step
      cannot use goes to the others. Ties go to the lower step id.
    - A step with an explicit number may exceed the slots if it is alone at the top, and does not say what it needs.
    - No worker is given that would need more than the node has left. Of first workers, those that need most go first.
    """
    result = {demand.step_id: 0 for demand in demands}
    if not demands:
        return result
    top = max(demand.priority for demand in demands)
    needs = {demand.step_id: demand.need for demand in demands}
    counts = any(need != NOTHING for need in needs.values())
    explicit = (d.workers_max for d in demands if d.explicit and d.priority == top and d.need == NOTHING)
    free: float = max([capacity.slots, *explicit])
    # Workers that take parts of a slot are more than these; what fits is asked for each.
    bound, free = free, sum(d.workers_max for d in demands) if counts else free
    for priority in sorted({demand.priority for demand in demands}, reverse=True):
        tier = sorted((d for d in demands if d.priority == priority and d.workers_max > 0), key=lambda d: d.step_id)
        while free > 0:
            open_ = [d for d in tier if result[d.step_id] < d.workers_max]
            if counts:
                one_more = [(d, {**result, d.step_id: result[d.step_id] + 1}) for d in open_]
                open_ = [d for d, after in one_more if capacity.fits(after, needs, bound)]
            if not open_:
                break
            # The next slot goes to the step with the least for its weight (Webster's method: even shares without bias).
            chosen = min(
                open_,
                key=lambda d: (
                    result[d.step_id] > 0,
                    (-d.need.gpus, -(d.need.cpus or 1.0), -d.need.memory_bytes) if not result[d.step_id] else (0.0,),
                    (2 * result[d.step_id] + 1) / d.weight,
                    d.step_id,
                ),
            )
            result[chosen.step_id] += 1
            free -= 1
    return result
