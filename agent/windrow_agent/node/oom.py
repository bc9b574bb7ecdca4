"""Tells whether the kernel killed for lack of memory: the oom_kill counters of this cgroup, v1 and v2."""

from __future__ import annotations

import os
from pathlib import Path


def parse_counter(text: str) -> int | None:
    """The value of `oom_kill` in memory.events (v2) or memory.oom_control (v1); None if it is missing."""
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name == "oom_kill" and value.strip().isdigit():
            return int(value)
    return None


_LOOK_NS = 5_000_000_000
"""Time between two readings: a large process takes seconds to go after it was killed."""


def counter_paths(cgroup: str, root: Path = Path("/sys/fs/cgroup")) -> list[Path]:
    """Files that may hold the counter, best first. `cgroup`: the text of /proc/self/cgroup.

    In a container, the path may be the host's and not visible; the root of the mount is then our own group.
    """
    paths: list[Path] = []
    for line in cgroup.splitlines():
        _, controllers, path = line.split(":", 2)
        relative = path.lstrip("/")
        if "memory" in controllers.split(","):
            paths += [root / "memory" / relative / "memory.oom_control", root / "memory" / "memory.oom_control"]
        elif not controllers:
            for base in (root, root / "unified"):
                paths += [base / relative / "memory.events", base / "memory.events"]
    return paths


class OomCounter:
    """Watches the counter. Each call of `rose()` claims one kill, so that one kill does not explain two deaths.

    A kill that is not claimed within two readings hit another process, such as a child of a script: it explains no
    later death.
    """

    def __init__(self, paths: list[Path] | None = None) -> None:
        if paths is None:
            try:
                paths = counter_paths(Path("/proc/self/cgroup").read_text())
            except OSError:
                paths = []
        self._path = next((path for path in paths if self._read(path) is not None), None)
        self._seen = self._at_last_look = self._now()
        self._looked_ns = 0

    @property
    def is_there(self) -> bool:
        """Whether this process can see the counter."""
        return self._path is not None

    @staticmethod
    def _read(path: Path) -> int | None:
        try:
            return parse_counter(path.read_text())
        except OSError:
            return None

    def _now(self) -> int:
        return (self._read(self._path) or 0) if self._path is not None else 0

    def look(self, now_ns: int) -> None:
        """Reads the counter now and then; called at every tick."""
        if now_ns - self._looked_ns >= _LOOK_NS:
            self._looked_ns = now_ns
            self._seen = max(self._seen, self._at_last_look)
            self._at_last_look = self._now()

    def rose(self) -> bool:
        """Claims a recent kill; False if there is none left."""
        if self._now() > self._seen:
            self._seen += 1
            return True
        return False


def make_likely_victim(pid: int) -> None:
    """Makes the kernel choose this process before the agent when memory runs out. Best effort."""
    try:
        fd = os.open(f"/proc/{pid}/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.write(fd, b"500")
    except OSError:
        pass
    finally:
        os.close(fd)
