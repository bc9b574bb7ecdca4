"""What steps need of agents that are not there yet (`demand`), as a fleet is told it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Worker(NamedTuple):
    """What one worker needs: processors, bytes of memory, and GPUs, which may be a part of one."""

    cpus: float = 1.0
    memory_bytes: int = 0
    gpus: float = 0.0


class Demand(NamedTuple):
    """What the mini-batches of steps with one pool and one need wait for; as `Demand` of fleet_service.proto."""

    pool: str
    worker: Worker
    ready: int = 0
    leased: int = 0
    ready_s: float = 0.0
    unmeasured: int = 0
    init_s: float = 0.0
    workers_max: int = 0
    min_nodes: int = 0
    unknown_steps: int = 0
    longest_s: float = 0.0

    @property
    def asks(self) -> bool:
        """Whether another agent would be of use."""
        return bool(self.ready or self.unknown_steps)


class Outlook(NamedTuple):
    """All demands, by pool and need. `shortest_s`: by pool, how long the shortest mini-batch takes that waits there: a
    node that lives no longer takes nothing more.
    """

    demands: tuple[Demand, ...] = ()
    shortest_s: Mapping[str, float] = MappingProxyType({})
