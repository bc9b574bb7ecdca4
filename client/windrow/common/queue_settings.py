"""What a project may have of the cluster, as an operator sets it for the project's queue."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

WHOLE_CLUSTER = ""
"""In place of the name of a pool: all nodes, whatever their pools."""


PRIORITY_MAX = 1_000
"""Of projects and of jobs: a priority is a whole number from -PRIORITY_MAX to PRIORITY_MAX."""
WEIGHT_MIN, WEIGHT_MAX = 0.001, 1_000
"""Of projects. Weights of jobs are whole numbers from 1 to WEIGHT_MAX."""
SLOTS_MAX = 1_000_000_000
ADMITTED_JOBS, ADMITTED_JOBS_MAX = 20, 1_000_000
"""How many jobs of a project are admitted by default, and the most that can be set."""


class Bounds(NamedTuple):
    """What a project may have of some nodes, in slots. `quota`: what it is guaranteed; `limit`: the most it gets."""

    quota: float = 0.0
    limit: float = math.inf

    def to_dict(self) -> dict[str, float | None]:
        """Return plain JSON types; no limit is None."""
        return {"quota": self.quota, "limit": None if math.isinf(self.limit) else self.limit}


UNBOUND = Bounds()


class QueueSettings(NamedTuple):
    """What a project may have of the cluster.

    `weight`, `priority`: of what is guaranteed to nobody, projects of a higher priority get all that they can use
    first, and those of one priority get parts by their weights. `cluster`: bounds for all nodes together; `pools`: for
    the nodes of single pools, by name, which hold beside those. `admitted_jobs`: so many of its jobs run at a time,
    even if there is no worker for them; further ones are queued until they would get one.
    """

    weight: float = 1.0
    priority: int = 0
    cluster: Bounds = UNBOUND
    pools: Mapping[str, Bounds] = MappingProxyType({})
    admitted_jobs: int = ADMITTED_JOBS

    def bounds(self) -> Iterator[tuple[str, Bounds]]:
        """All bounds, each with its pool, or WHOLE_CLUSTER."""
        yield WHOLE_CLUSTER, self.cluster
        yield from sorted(self.pools.items())

    def of_pool(self, pool: str) -> Bounds:
        """The bounds of a pool, or of the WHOLE_CLUSTER."""
        return self.cluster if pool == WHOLE_CLUSTER else self.pools.get(pool, UNBOUND)

    def with_pool(self, pool: str, bounds: Bounds) -> QueueSettings:
        """These settings with other bounds of a pool, or of the WHOLE_CLUSTER."""
        if pool == WHOLE_CLUSTER:
            return self._replace(cluster=bounds)
        others = {name: kept for name, kept in self.pools.items() if name != pool}
        return self._replace(pools=others if bounds == UNBOUND else others | {pool: bounds})

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        pools = {pool: bounds.to_dict() for pool, bounds in sorted(self.pools.items())}
        rank = {"weight": self.weight, "priority": self.priority}
        return {**rank, **self.cluster.to_dict(), "pools": pools, "admitted_jobs": self.admitted_jobs}

    def to_json(self) -> str:
        """The settings as text."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text: str | bytes) -> QueueSettings:
        """The settings of such a text."""
        read = json.loads(text)
        pools = {pool: _bounds(bounds) for pool, bounds in read["pools"].items()}
        admitted_jobs = read.get("admitted_jobs", ADMITTED_JOBS)  # stored settings may be older than this one
        return cls(read["weight"], read["priority"], _bounds(read), pools, admitted_jobs)


def _bounds(read: Mapping[str, Any]) -> Bounds:
    return Bounds(read["quota"], math.inf if read["limit"] is None else read["limit"])
