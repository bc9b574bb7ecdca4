"""The CPU time and memory that an attempt uses."""

from __future__ import annotations

from io import open  # a script may replace the one in builtins
from resource import RUSAGE_SELF, getrusage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Tuple

_LOOK_AGAIN_US = 10000


class Usage:
    """CPU time since the last attempt's end, and the largest resident set of the process so far.

    The kernel passes the peak (`ru_maxrss`) on through fork and exec, so a small worker of a big agent shows the
    agent's. Until its own peak exceeds that, this class reads the process's own mark in /proc: at the start, and after
    attempts long enough for the cost not to matter.
    """

    def __init__(self) -> None:
        usage = getrusage(RUSAGE_SELF)
        self._inherited_kib = usage.ru_maxrss
        self._cpu_s = usage.ru_utime + usage.ru_stime
        self._peak_kib = _own_peak_kib() or usage.ru_maxrss

    def begin(self) -> None:
        """Start counting CPU time."""
        usage = getrusage(RUSAGE_SELF)
        self._cpu_s = usage.ru_utime + usage.ru_stime

    def end(self, elapsed_us: int) -> Tuple[int, int]:
        """CPU time in µs since the last call, and the peak in KiB."""
        usage = getrusage(RUSAGE_SELF)
        cpu_s = usage.ru_utime + usage.ru_stime
        cpu_us = int((cpu_s - self._cpu_s) * 1e6)
        self._cpu_s = cpu_s
        peak = usage.ru_maxrss
        if peak > self._inherited_kib:
            self._peak_kib = peak
        elif elapsed_us > _LOOK_AGAIN_US:
            self._peak_kib = _own_peak_kib() or self._peak_kib
        return max(cpu_us, 0), self._peak_kib


def _own_peak_kib() -> int:
    """VmHWM of this process; 0 if /proc does not have it."""
    try:
        with open("/proc/self/status", "rb") as file:
            for line in file:
                if line.startswith(b"VmHWM:"):
                    return int(line.split()[1])
    except (OSError, ValueError, IndexError):
        pass
    return 0
