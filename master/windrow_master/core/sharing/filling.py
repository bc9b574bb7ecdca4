"""Fair shares: capacity is filled in like water, first up to what is guaranteed, then by priority, then by weight.

A share is a *dominant* share: the largest fraction of a resource's capacity that its owner has, over all resources. Who
uses many processors and who uses much memory are equal when their largest fractions are.
Source: Ghodsi et al., Dominant Resource Fairness (NSDI 2011), with weights, guarantees and limits.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

_ROUNDING = 1e-9


@dataclass(slots=True)
class Share:
    """Who wants a share of a capacity.

    `demand`: the largest share it can use, in its dominant resource. `profile`: what it uses of each resource, as a
    fraction of the capacity, for a share of 1; its largest entry is 1. `guaranteed`: what it gets before others get
    more. `limit`: what it never gets more of. Of what is not guaranteed, those of a higher `rank` are filled first, and
    those of one rank in proportion to their `weight`. `most`: the largest share it may get.
    """

    demand: float
    profile: tuple[float, ...] = (1.0,)
    guaranteed: float = 0.0
    limit: float = math.inf
    weight: float = 1.0
    rank: tuple[float, ...] = (0.0,)
    most: float = field(init=False)

    def __post_init__(self) -> None:
        self.most = max(0.0, min(self.demand, self.limit))


def fill(shares: Sequence[Share], capacity: Sequence[float]) -> list[float]:
    """Divide `capacity`, a fraction of each resource; return what each gets, in the same order.

    No resource is given out twice, nobody gets more than it can use or may have, and everybody gets what is guaranteed
    to it, if it can use it. If more is guaranteed than there is, all guarantees shrink alike.
    """
    if not shares:
        return []
    filled = [min(share.guaranteed, share.most) for share in shares]
    resources = range(len(shares[0].profile))
    used = [sum(at * share.profile[r] for at, share in zip(filled, shares, strict=True)) for r in resources]
    shrink = min((bound / at for at, bound in zip(used, capacity, strict=True) if at > bound), default=1.0)
    if shrink < 1:
        filled = [at * shrink for at in filled]
        used = [at * shrink for at in used]
    order = sorted(range(len(shares)), key=lambda at: shares[at].rank, reverse=True)
    for _, tier in groupby(order, key=lambda at: shares[at].rank):
        _fill_tier(shares, list(tier), filled, used, capacity)
    return filled


def _fill_tier(
    shares: Sequence[Share], tier: Sequence[int], filled: list[float], used: list[float], capacity: Sequence[float]
) -> None:
    """Raise the level of those of one rank until each has all it may, or lacks a resource."""
    resources = range(len(used))
    base = {at: filled[at] for at in tier}
    rising = {at for at in tier if shares[at].most > filled[at] + _ROUNDING}
    slopes = [sum(shares[at].weight * shares[at].profile[r] for at in rising) for r in resources]
    ends = [((shares[at].most - filled[at]) / shares[at].weight, at) for at in rising]
    heapq.heapify(ends)
    level = 0.0
    while rising:
        while ends[0][1] not in rising:
            heapq.heappop(ends)
        steps = [(capacity[r] - used[r]) / slopes[r] for r in resources if slopes[r] > _ROUNDING]
        until = min([ends[0][0], *(level + max(0.0, step) for step in steps)])
        for r in resources:
            used[r] += slopes[r] * (until - level)
        level = until
        if ends[0][0] <= level:
            stopped = {heapq.heappop(ends)[1]}
        else:
            full = [r for r in resources if capacity[r] - used[r] <= _ROUNDING]
            stopped = {at for at in rising if any(shares[at].profile[r] > 0 for r in full)}
        for at in stopped:
            filled[at] = min(shares[at].most, base[at] + shares[at].weight * level)
            for r in resources:
                slopes[r] -= shares[at].weight * shares[at].profile[r]
        rising -= stopped
