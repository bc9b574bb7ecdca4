"""Which worker sees which GPU (docs/reference/azure-ml/parallel-job.md#gpus)."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from pathlib import Path


class GpuIndices:
    """Hands the lowest free device to each new worker until all are taken; the next ones get none at all.

    `devices`: values for CUDA_VISIBLE_DEVICES, one a GPU.
    """

    def __init__(self, devices: Sequence[str]) -> None:
        self.devices = tuple(devices)
        self._free = list(range(len(self.devices)))

    def take(self) -> int | None:
        """The lowest free index, or None."""
        return heapq.heappop(self._free) if self._free else None

    def give_back(self, index: int | None) -> None:
        """The worker that had it is gone."""
        if index is not None:
            heapq.heappush(self._free, index)

    def device(self, index: int | None) -> str | None:
        """Value of CUDA_VISIBLE_DEVICES for an index."""
        return None if index is None else self.devices[index]


def find_gpus(environment: Mapping[str, str], driver: Path = Path("/proc/driver/nvidia/gpus")) -> tuple[str, ...]:
    """The devices this agent may use: what CUDA_VISIBLE_DEVICES leaves it, else all that the driver shows."""
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return tuple(name.strip() for name in visible.split(",") if name.strip() and name.strip() != "-1")
    try:
        return tuple(str(index) for index, _ in enumerate(driver.iterdir()))
    except OSError:
        return ()
