"""Which GPUs an agent has, and which worker sees which of them (docs/reference/azure-ml/parallel-job.md#gpus)."""

from __future__ import annotations

import asyncio
import ctypes
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from windrow.common.device_packing import choose, take
from windrow.common.journal import say

if TYPE_CHECKING:
    from windrow_agent.node.gpu_driver import Reading, Readings

NVIDIA, AMD = "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"
"""The variables by which a process is told its devices."""

_DRIVER = Path("/proc/driver/nvidia")
_KFD = Path("/sys/class/kfd/kfd/topology/nodes")
_LIBRARY = "libnvidia-ml.so.1"


class GpuIndices:
    """Gives each new worker its GPUs. One that needs some gets exactly so many, or a part of one, which no other such
    worker has. Any other gets the lowest that nobody has, until all are taken; further ones get none.

    `devices`: values for the variable, one for each GPU. `variable`: NVIDIA or AMD. `trouble`: why some that are there
    are missing, in words.
    """

    def __init__(self, devices: Sequence[str], variable: str = NVIDIA, trouble: str = "") -> None:
        self.devices = tuple(devices)
        self.variable = variable
        self.trouble = trouble
        self.lost: frozenset[int] = frozenset()
        """Places of those that cannot be used: no worker gets one."""
        self.taken = asyncio.Event()
        """Set when a worker gets some."""
        self._needs: dict[int, tuple[tuple[int, ...], float]] = {}
        """By worker: the devices of those that need some, and how much of each."""
        self._others: dict[int, int] = {}
        """By worker: the device of those that have said nothing."""

    @property
    def count(self) -> int:
        """How many there are that can be used."""
        return len(self.devices) - len(self.lost)

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
        return [0.0 if at in self.lost else room for at, room in enumerate(free)]

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
        self.taken.set()
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

    def held(self) -> dict[int, tuple[tuple[int, ...], float]]:
        """By worker: its devices, and what it has of each: 1, or a part."""
        return {
            **{key: ((at,), 1.0) for key, at in self._others.items()},
            **{key: (chosen, min(1.0, need)) for key, (chosen, need) in self._needs.items()},
        }

    def give_back(self, key: int) -> None:
        """The worker is gone."""
        self._needs.pop(key, None)
        self._others.pop(key, None)

    def device(self, indices: Sequence[int]) -> str | None:
        """Value of the variable for these; None if there are none."""
        return ",".join(self.devices[at] for at in indices) if indices else None


def given_devices(environment: Mapping[str, str], variable: str = NVIDIA) -> tuple[str, ...] | None:
    """The devices that the agent itself was given, as it was told them; None if it was told nothing."""
    visible = environment.get(variable)
    if visible is None:
        return None
    return tuple(name.strip() for name in visible.split(",") if name.strip() and name.strip() != "-1")


def nvidia_is_here(driver: Path = _DRIVER) -> bool:
    """Whether this machine seems to have a driver of NVIDIA. Asks nothing of it."""
    if (driver / "gpus").exists():
        return True
    try:
        ctypes.CDLL(_LIBRARY)
    except OSError:
        return False
    return True


def amd_is_here(nodes: Path = _KFD) -> bool:
    """Whether this machine seems to have a driver of AMD."""
    return nodes.exists()


def listed_by_kernel(driver: Path = _DRIVER) -> tuple[str, ...] | None:
    """The UUIDs of NVIDIA's GPUs by files of its kernel module, in the order of the driver; None if these do not say:
    where a GPU is divided (MIG), or was not used yet, or where there are no such files. Costs next to nothing, where
    asking the driver may cost seconds.
    """
    try:
        if any((driver / "capabilities").glob("gpu*/mig/gi*")):
            return None
        found = []
        for folder in sorted((driver / "gpus").iterdir()):
            lines = (folder / "information").read_text(errors="replace").splitlines()
            found += [line.partition(":")[2].strip() for line in lines if line.startswith("GPU UUID:")]
    except OSError:
        return None
    return tuple(found) if found and not any("?" in uuid for uuid in found) else None


def find_gpus(environment: Mapping[str, str], driver: Path = _DRIVER, nodes: Path = _KFD) -> GpuIndices:
    """The GPUs that this agent may use: those that it was given itself (CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES), or
    else all that the driver shows.
    """
    given = given_devices(environment)
    if given is not None:
        return GpuIndices(given)
    if nvidia_is_here(driver):
        # Without asking the driver, which may cost seconds before the first run().
        listed = listed_by_kernel(driver)
        return _asked(NVIDIA) if listed is None else GpuIndices(listed)
    if not amd_is_here(nodes):
        return GpuIndices(())
    given = given_devices(environment, AMD)
    return _asked(AMD) if given is None else GpuIndices(given, AMD)


def _asked(variable: str) -> GpuIndices:
    # Not at the top: most machines have no GPU.
    from windrow_agent.node.gpu_watch import look_once

    readings = look_once()
    # One without a name cannot be given to anybody.
    unnamed = [f"GPU {one.number}: {one.trouble}" for one in readings.devices if not one.device]
    trouble = readings.trouble or "; ".join(unnamed)
    if trouble:
        say(logging.WARNING, "GPUs of this node cannot be used", why=trouble)
        trouble += ". Restart the agent when that is mended"
    return GpuIndices([one.device for one in readings.devices if one.device], variable, trouble)


def places_of(devices: Sequence[str], readings: Readings, environment: Mapping[str, str]) -> list[Reading | None]:
    """Which reading is of which of the agent's devices, which may be named by UUID, the first letters of one, or a
    number; None where nobody can say.

    CUDA numbers the fastest device 0, NVML that of the lowest bus id (CUDA C++ Programming Guide, CUDA_DEVICE_ORDER):
    numbers agree only where all devices are alike, or the order is set.
    """
    whole = [one for one in readings.devices if not one.device.startswith("MIG-")]
    in_order = (
        readings.vendor != "nvidia"
        or environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
        or len({one.model for one in whole if one.model}) <= 1
    )
    found: list[Reading | None] = []
    for name in devices:
        if name.isdigit():
            alike = [one for one in whole if in_order and one.number == int(name)]
        else:
            alike = [one for one in readings.devices if one.device and one.device.startswith(name)]
        found.append(alike[0] if len(alike) == 1 else None)
    return found


def in_first_namespace() -> bool:
    """Whether this process sees the numbers of processes as the kernel has them (`PROC_PID_INIT_INO` of the kernel's
    proc_ns.h): only then a driver's are sure to be the same.
    """
    try:
        return str(Path("/proc/self/ns/pid").readlink()) == "pid:[4026531836]"
    except OSError:
        return False
