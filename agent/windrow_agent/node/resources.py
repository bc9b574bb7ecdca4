"""What this node offers and uses: processors, memory, GPUs, disk. Respects affinity and cgroup limits."""

from __future__ import annotations

import math
import os
import shutil
from pathlib import Path

from windrow.rpc.v1 import node_pb2 as node

_SHARED_MEMORY = Path("/dev/shm")
_CGROUPS = Path("/sys/fs/cgroup")


def cpu_count() -> int:
    """Logical processors that this process may use: its affinity, bounded by the cgroup's quota; at least 1."""
    count = len(os.sched_getaffinity(0))
    quota = cpu_quota(_cgroup_folders("cpu"))
    return max(1, min(count, math.ceil(quota)) if quota else count)


def cpu_quota(folders: list[Path]) -> float | None:
    """Processors that the cgroups grant (v2: cpu.max; v1: cfs quota over period); None if they set no limit."""
    found = []
    for folder in folders:
        quota, _, period = _read(folder / "cpu.max").partition(" ")
        if not quota:
            quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
        if quota and period and quota != "max" and int(quota) > 0:
            found.append(int(quota) / int(period))
    return min(found, default=None)


def memory_bytes() -> int:
    """Memory that this process may use: the machine's, bounded by the cgroup."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for folder in _cgroup_folders("memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = _read(folder / name)
            if text.isdigit():
                total = min(total, int(text))
    return total


def _cgroup_folders(controller: str) -> list[Path]:
    """Folders of our cgroup and of those above it, which bound it too, v2 and v1; the root of the mount if the path is
    the host's and not visible here.
    """
    folders: list[Path] = []
    for line in _read(Path("/proc/self/cgroup")).splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            base = _CGROUPS / controller
        elif not controllers:
            base = _CGROUPS
        else:
            continue
        own = base / path.lstrip("/")
        folders += [place for place in (own, *own.parents) if place.is_relative_to(base)] if own.exists() else [base]
    return folders


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def shortage_of_shared_memory(wanted_bytes: int, step_name: str, folder: Path = _SHARED_MEMORY) -> str:
    """Why a step cannot have the shared memory that it asks for on this node, and what to do; "" if it can."""
    if not wanted_bytes:
        return ""
    try:
        there = os.statvfs(folder)
        has = there.f_blocks * there.f_frsize
    except OSError:
        has = 0
    if has >= wanted_bytes:
        return ""
    from windrow.common.quantities import size

    return (
        f"Step {step_name!r} asks for {size(wanted_bytes)} of shared memory (resources.shm_size), and {folder} of this "
        f"node has {size(has)}. Give it more (--shm-size, or shm_size in Compose, where the agent runs in a container; "
        f"mount -o remount,size=… {folder} elsewhere), or ask for less"
    )


def offered(slots: int, gpu_count: int, memory: int) -> node.NodeResources:
    """What this node offers, for its registration."""
    return node.NodeResources(cpu_count=cpu_count(), memory_bytes=memory, gpu_count=gpu_count, slots=slots)


class UsageMeter:
    """Measures resource use, for heartbeats.

    psutil is imported with the first heartbeat, after the first workers have started.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def measure(self) -> node.NodeUsage:
        """Current use; processor use is since the last call."""
        import psutil

        try:
            free = shutil.disk_usage(self._folder).free
        except OSError:
            free = 0
        return node.NodeUsage(
            cpu_percent=psutil.cpu_percent(None),
            memory_used_bytes=psutil.virtual_memory().used,
            disk_free_bytes=free,
        )

    @staticmethod
    def rss_kib(pid: int) -> int:
        """Resident memory of a process; 0 if it is gone."""
        fields = _read(Path(f"/proc/{pid}/statm")).split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") // 1024 if len(fields) > 1 else 0
