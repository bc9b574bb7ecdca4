"""Fair shares of a capacity, from nothing but the settings of projects and what each could use. It has none of
Windrow's code, and finds the level of the water by halving, where Windrow goes from one end of a rise to the next.

    echo '{"capacity": 8, "projects": {"a": {"weight": 2, "demand": 99}, "b": {"demand": 99}}}' |
        python -m benchmarks.water_filling
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from typing import NamedTuple

HALVINGS = 100


class Project(NamedTuple):
    """What a project could use, and may have, in slots."""

    demand: float
    weight: float = 1.0
    priority: int = 0
    quota: float = 0.0
    limit: float = math.inf

    @property
    def most(self) -> float:
        """What it gets where nobody else wants anything."""
        return min(self.demand, self.limit)


def fair_shares(capacity: float, projects: Mapping[str, Project]) -> dict[str, float]:
    """Quotas first, as far as they are of use; then the highest priority, whose projects rise by their weights until
    each has all it may; then the next one.
    """
    shares = {name: min(one.most, one.quota) for name, one in projects.items()}
    if sum(shares.values()) > capacity:
        return {name: share * capacity / sum(shares.values()) for name, share in shares.items()}
    for priority in sorted({one.priority for one in projects.values()}, reverse=True):
        tier = {name: one for name, one in projects.items() if one.priority == priority}
        left = capacity - sum(share for name, share in shares.items() if name not in tier)
        low, high = 0.0, capacity / min(one.weight for one in tier.values())
        for _ in range(HALVINGS):
            level = (low + high) / 2
            low, high = (low, level) if sum(_at(level, tier, shares).values()) > left else (level, high)
        shares |= _at(low, tier, shares)
    return shares


def _at(level: float, tier: Mapping[str, Project], base: Mapping[str, float]) -> dict[str, float]:
    return {name: min(one.most, base[name] + level * one.weight) for name, one in tier.items()}


def main() -> int:
    """Read a question, print the answer."""
    asked = json.load(sys.stdin)
    projects = {name: Project(**one) for name, one in asked["projects"].items()}
    print(json.dumps(fair_shares(asked["capacity"], projects)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
