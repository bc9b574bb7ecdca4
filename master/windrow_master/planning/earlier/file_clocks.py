"""Whether a file is older than a moment, by its ctime and the clock of its file system.

The kernel of this machine writes the ctimes of a local disk, from a clock that stands still for up to a tick. Other
file systems have clocks of seconds, and shares those of another machine.
"""

from __future__ import annotations

import os

from windrow_master.planning.earlier.why import Why

MARGIN_S = 2.0
"""By how much a file must be older than the moment: its clock may be coarse, or another machine's."""

LOCAL_MARGIN_S = 0.05
"""The same on a local disk with fine times: the longest tick of a kernel is 10 ms."""

LOCAL = frozenset(("ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "f2fs"))
"""File systems whose times this kernel writes, finer than a second."""

MOUNTS = "/proc/self/mountinfo"


class FileClocks:
    """Compares files with one moment. `began`: in seconds since 1970, by this machine's clock."""

    def __init__(self, began: float, mounts: str = MOUNTS) -> None:
        self._began_ns = int(began * 1e9)
        self._mounts = mounts
        self._local: frozenset[int] | None = None

    def change_of(self, status: os.stat_result) -> Why | None:
        """CHANGED or UNSURE; None if the file was last changed before the moment."""
        changed_ns = status.st_ctime_ns
        if changed_ns >= self._began_ns:
            return Why.CHANGED
        if changed_ns < self._began_ns - int(MARGIN_S * 1e9):
            return None
        # A whole second is most likely the clock's, not the file's.
        is_fine = changed_ns % 1_000_000_000 != 0 and status.st_dev in self._local_devices()
        return None if is_fine and changed_ns < self._began_ns - int(LOCAL_MARGIN_S * 1e9) else Why.UNSURE

    def _local_devices(self) -> frozenset[int]:
        if self._local is None:
            self._local = frozenset(_devices(self._mounts))
        return self._local


def _devices(mounts: str) -> list[int]:
    """The devices of local file systems. A file that cannot be read names none."""
    found = []
    try:
        with open(mounts, encoding="utf-8", errors="surrogateescape") as file:
            for line in file:
                mount, _, rest = line.partition(" - ")
                if rest.split(" ", 1)[0] in LOCAL:
                    major, _, minor = mount.split()[2].partition(":")
                    found.append(os.makedev(int(major), int(minor)))
    except (OSError, ValueError, IndexError):
        return []
    return found
