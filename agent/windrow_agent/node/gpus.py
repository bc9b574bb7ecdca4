"""Which worker sees which GPU (docs/reference/azure-ml/parallel-job.md#gpus)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from windrow.common.device_packing import choose, take


class GpuIndices:
    """Gives each new worker its GPUs. One that needs some gets exactly so many, or a part of one, which no other such
    worker has. Any other gets the lowest that nobody has, until all are taken; further ones get none.

    `devices`: values for CUDA_VISIBLE_DEVICES, one for each GPU.
    """

    def __init__(self, devices: Sequence[str]) -> None:
        self.devices = tuple(devices)
        self._needs: dict[int, tuple[tuple[int, ...], float]] = {}
        """By worker: the devices of those that need some, and how much of each."""
        self._others: dict[int, int] = {}
        """By worker: the device of those that have said nothing."""

    @property
    def free(self) -> list[float]:
        """What workers that need GPUs have left of each."""
        return self.without(())

    def without(self, keys: Sequence[int]) -> list[float]:
        """What would be left of each device if these workers were gone."""
        free = [1.0] * len(self.devices)
        for key, (chosen, need) in self._needs.items():
            if key not in keys:
                take(free, chosen, need)
        return free

    def has_room(self, need: float) -> bool:
        """Whether a worker with this need can have its devices now."""
        return choose(self.free, need) is not None

    def sharing(self) -> list[list[int]]:
        """The workers that have a part of the same device, device by device, those with the least in use first."""
        found: dict[int, list[int]] = {}
        for key, (chosen, need) in self._needs.items():
            if need < 1:
                found.setdefault(chosen[0], []).append(key)
        free = self.free
        return [found[at] for at in sorted(found, key=lambda at: (-free[at], at))]

    def take(self, key: int, need: float = 0.0) -> tuple[int, ...] | None:
        """The indices for a new worker, () if it has none; None if it needs more than there is."""
        free = self.free
        others = set(self._others.values())
        if need <= 0:
            lowest = next((at for at, room in enumerate(free) if room == 1 and at not in others), None)
            if lowest is not None:
                self._others[key] = lowest
            return () if lowest is None else (lowest,)
        order = sorted(range(len(free)), key=lambda at: (at in others, at))
        chosen = choose([free[at] for at in order], need)
        if chosen is None:
            return None
        found = tuple(sorted(order[at] for at in chosen))
        self._needs[key] = found, need
        return found

    def give_back(self, key: int) -> None:
        """The worker is gone."""
        self._needs.pop(key, None)
        self._others.pop(key, None)

    def device(self, indices: Sequence[int]) -> str | None:
        """Value of CUDA_VISIBLE_DEVICES for these; None if there are none."""
        return ",".join(self.devices[at] for at in indices) if indices else None


def find_gpus(environment: Mapping[str, str], driver: Path = Path("/proc/driver/nvidia/gpus")) -> tuple[str, ...]:
    """The GPUs that this agent may use: those in CUDA_VISIBLE_DEVICES, or else all that the driver shows."""
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return tuple(name.strip() for name in visible.split(",") if name.strip() and name.strip() != "-1")
    try:
        return tuple(str(index) for index, _ in enumerate(driver.iterdir()))
    except OSError:
        return ()
