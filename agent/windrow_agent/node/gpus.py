"""Which worker sees which GPU (docs/reference/azure-ml/parallel-job.md#gpus)."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from pathlib import Path


class GpuIndices:
    """Gives each new worker the lowest free GPU until all are taken; further workers get none.

    `devices`: values for CUDA_VISIBLE_DEVICES, one for each GPU.
    """

    def __init__(self, devices: Sequence[str]) -> None:
        self.devices = tuple(devices)
        self._free = list(range(len(self.devices)))

    def take(self) -> int | None:
        """Takes the lowest free index; None if there is none."""
        return heapq.heappop(self._free) if self._free else None

    def give_back(self, index: int | None) -> None:
        """The worker that had it is gone."""
        if index is not None:
            heapq.heappush(self._free, index)

    def device(self, index: int | None) -> str | None:
        """Value of CUDA_VISIBLE_DEVICES for an index."""
        return None if index is None else self.devices[index]


def find_gpus(environment: Mapping[str, str], driver: Path = Path("/proc/driver/nvidia/gpus")) -> tuple[str, ...]:
    """The GPUs that this agent may use: those in CUDA_VISIBLE_DEVICES, or else all that the driver shows."""
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return tuple(name.strip() for name in visible.split(",") if name.strip() and name.strip() != "-1")
    try:
        return tuple(str(index) for index, _ in enumerate(driver.iterdir()))
    except OSError:
        return ()
