"""What a node has for its workers, and what one of them takes of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from windrow.common.device_packing import ROUNDING, pack


class Need(NamedTuple):
    """What one worker takes of its node. `cpus`: of its slots; None: one, or as many of a step share the slots as it
    may have workers. `gpus`: below 1, a part of one.
    """

    cpus: float | None = None
    memory_bytes: int = 0
    gpus: float = 0.0


NOTHING = Need()


class Capacity(NamedTuple):
    """What a node has for its workers."""

    slots: int
    memory_bytes: int = 0
    gpus: int = 0

    def fits(self, workers: Mapping[int, int], needs: Mapping[int, Need], slots: float = 0.0) -> bool:
        """Whether so many workers of each step fit, by their needs. `slots`: more of them than it has, if that is
        allowed.
        """
        cpus = sum(count * (1.0 if (each := needs[at].cpus) is None else each) for at, count in workers.items())
        memory = sum(count * needs[at].memory_bytes for at, count in workers.items())
        gpus = [needs[at].gpus for at, count in workers.items() for _ in range(count) if needs[at].gpus]
        return (
            cpus <= max(self.slots, slots) + ROUNDING
            and memory <= (self.memory_bytes if memory else 0)
            and (not gpus or pack(self.gpus, gpus) is not None)
        )
