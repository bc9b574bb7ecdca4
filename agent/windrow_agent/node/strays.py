"""Kills processes that an earlier incarnation of this agent, or a dead worker, left behind.

An agent's workers die with it (PR_SET_PDEATHSIG), but their children do not. A new incarnation kills them before it
registers: the master gives their mini-batches to others, and two copies of a script must not write the same files.

No other process is ever killed. A process is a stray only if its environment carries the earlier incarnation's mark, if
it is a recorded worker with the recorded start time (process ids are reused, start times are not), if it belongs to
the process group of such a worker, or if it can only descend from a worker of this incarnation that is dead.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path

MARK = "WINDROW_WORKER"
"""The environment variable that identifies the worker that a process descends from."""

_PATIENCE_S = 5.0


def mark_of(node_incarnation: str, worker: int) -> str:
    """The value of the mark for one worker, named by its key. The incarnation and the dot are the common prefix."""
    return f"{node_incarnation}.{worker}"


def start_time(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None if it is gone or a zombie."""
    fields = _stat(pid)
    return int(fields[19]) if fields is not None else None


def parent_of(pid: int) -> int:
    """The parent of a process; 0 if it is gone, a zombie, or has none here."""
    fields = _stat(pid) if pid > 0 else None
    return int(fields[1]) if fields is not None else 0


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/<pid>/stat from the third on: state, ppid, pgrp, …"""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else fields


def record(folder: Path, pid: int) -> None:
    """Records a worker on disk, so that a later incarnation finds its group. Best effort: there is also the mark."""
    begun = start_time(pid)
    if begun is None:
        return
    try:
        folder.mkdir(exist_ok=True)
        (folder / str(pid)).write_text(f"{begun} {boot_id()}")
    except OSError:
        pass


def forget(folder: Path, pid: int) -> None:
    """Removes the record: the worker and its group are gone."""
    try:
        (folder / str(pid)).unlink(missing_ok=True)
    except OSError:
        pass


def boot_id() -> str:
    """An id of this boot: start times are comparable only within one."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def kill_strays(folder: Path, incarnation: str) -> int:
    """Kills what the earlier incarnation left behind, and waits until it is gone; returns the number of processes."""
    groups = _recorded_groups(folder)
    strays = _find(groups, incarnation)
    deadline = time.monotonic() + _PATIENCE_S
    killed = set(strays)
    while strays and time.monotonic() < deadline:
        for pid in strays:
            _kill(pid, strays[pid])
        time.sleep(0.005)
        # Search again: a stray may have forked before it was killed.
        strays = _find(groups, incarnation)
        killed |= set(strays)
    for path in folder.glob("*") if folder.exists() else ():
        path.unlink(missing_ok=True)
    return len(killed)


def _recorded_groups(folder: Path) -> set[int]:
    """Process groups whose recorded leader still is that process."""
    groups: set[int] = set()
    if not folder.exists():
        return groups
    boot = boot_id()
    for path in folder.iterdir():
        try:
            pid = int(path.name)
            begun, _, of_boot = path.read_text().partition(" ")
            if of_boot == boot and start_time(pid) == int(begun):
                groups.add(pid)
        except (OSError, ValueError):
            continue
    return groups


def _find(groups: set[int], incarnation: str) -> dict[int, int]:
    """All strays: pid → start time."""
    prefix = f"{MARK}={incarnation}.".encode()
    me = os.getpid()
    found: dict[int, int] = {}
    for path in Path("/proc").iterdir():
        if not path.name.isdigit() or int(path.name) == me:
            continue
        pid = int(path.name)
        fields = _stat(pid)
        if fields is None:
            continue
        if int(fields[2]) in groups or _carries(pid, prefix):
            found[pid] = int(fields[19])
    return found


AWAITED: set[int] = set()
"""Processes that some other part of the agent waits for."""
CHILDLESS: set[int] = set()
"""Those of them that leave no orphans."""


def marks_of(pid: int) -> list[str]:
    """The marks that the environment of a process carries, of any agent."""
    prefix = f"{MARK}=".encode()
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
    return [entry[len(prefix) :].decode("utf-8", "replace") for entry in entries if entry.startswith(prefix)]


def _carries(pid: int, prefix: bytes) -> bool:
    try:
        return any(entry.startswith(prefix) for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    except OSError:
        return False


def end_orphans(node_incarnation: str, workers: Mapping[int, int]) -> int:
    """Kills what dead workers left behind outside their process groups, and reaps orphans that have died.

    Such a process (a daemon, or in a session of its own) is our child now, since we are the subreaper, and carries its
    worker's mark. One that has wiped its environment is killed once everything that it could descend from is gone: all
    workers and builds that are older.

    `workers`: key → pid of live workers, whose descendants are left alone. Returns how many were killed. Called
    repeatedly, since the kernel's list of children may miss one while others die.
    """
    alive = set(workers.values())
    killed = 0
    for pid in children():
        if pid in alive or pid in AWAITED:
            continue
        try:
            if os.waitpid(pid, os.WNOHANG)[0] == pid:
                continue
            key = _worker_of(pid, node_incarnation)
            if (key is not None and key not in workers) or (key is None and _left_its_parents(pid, alive)):
                os.kill(pid, signal.SIGKILL)
                killed += 1
        except OSError:
            continue
    return killed


def _left_its_parents(pid: int, workers: set[int]) -> bool:
    """Whether a child without a mark descends from a worker or build that is dead: it is in no group of this process,
    as what this process itself starts is, and older than all that live.
    """
    fields = _stat(pid)
    # The first process of a container gets the orphans of everybody there.
    if fields is None or os.getpid() == 1 or int(fields[2]) == os.getpgrp():
        return False
    begun = int(fields[19])
    return all((start_time(other) or begun + 1) > begun for other in workers | (AWAITED - CHILDLESS))


def _worker_of(pid: int, node_incarnation: str) -> int | None:
    """The key of the worker that a process descends from, by its mark; None if it does not carry one of our marks."""
    prefix = f"{MARK}={node_incarnation}.".encode()
    for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
        if entry.startswith(prefix) and entry[len(prefix) :].isdigit():
            return int(entry[len(prefix) :])
    return None


def children() -> list[int]:
    """Pids of this process's children."""
    found: list[int] = []
    try:
        for task in Path("/proc/self/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    except OSError:
        pass
    return found


def _kill(pid: int, begun: int) -> None:
    """Kills exactly this process: the pidfd pins it, and the start time proves that it is the right one."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if start_time(pid) == begun:
            signal.pidfd_send_signal(fd, signal.SIGKILL)
    except OSError:
        pass
    finally:
        os.close(fd)
