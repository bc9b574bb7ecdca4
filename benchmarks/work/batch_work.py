"""Functions from a mini-batch (a list of paths) to rows (a list of text), and stamps of when they ran."""

from __future__ import annotations

import os
import signal
import time
import zlib
from collections.abc import Callable

BatchWork = Callable[[list[str]], list[str]]

SPIN_S = 0.05

stamps_folder = ""
_stamped = False


def stamp_into(folder: str) -> None:
    """Put the stamps of this process into `folder` from now on."""
    global stamps_folder
    stamps_folder = folder


def stamped(work: BatchWork, paths: list[str]) -> list[str]:
    """Do the work. The first time in a process, leave a file with the time before it (ns of the wall clock)."""
    global _stamped
    if not _stamped:
        _stamped = True
        now = time.time_ns()
        with open(os.path.join(stamps_folder, f"first-{os.getpid()}"), "w") as file:
            file.write(str(now))
    return work(paths)


def _log_execution(paths: list[str]) -> None:
    """Record an execution as one line, written at once to a file opened for appending. So it stays whole, whoever else
    writes."""
    handle = os.open(os.path.join(stamps_folder, "executions"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(handle, f"{time.time_ns()} {os.getpid()} {os.path.basename(paths[0])}\n".encode())
    os.close(handle)


def noop(paths: list[str]) -> list[str]:
    """Return only the names of the files: the cost is that of the system."""
    return [os.path.basename(path) for path in paths]


def read_files(paths: list[str]) -> list[str]:
    """Read each file and check its content."""
    rows = []
    for path in paths:
        with open(path, "rb") as file:
            rows.append(f"{os.path.basename(path)} {zlib.crc32(file.read())}")
    return rows


def spin(paths: list[str]) -> list[str]:
    """Burn 50 ms of processor time."""
    end = time.process_time() + SPIN_S
    while time.process_time() < end:
        pass
    return [os.path.basename(path) for path in paths]


def rest(paths: list[str]) -> list[str]:
    """Take 50 ms, and no processor time."""
    time.sleep(SPIN_S)
    return [os.path.basename(path) for path in paths]


def logged_spin(paths: list[str]) -> list[str]:
    """Like `spin`, and record each execution."""
    _log_execution(paths)
    return spin(paths)


def spin_and_die_once(paths: list[str]) -> list[str]:
    """Like `logged_spin`. The first time that a mini-batch holds a file named `…-kill`, the process dies half-way, as
    by kill -9."""
    _log_execution(paths)
    marker = os.path.join(stamps_folder, "killed")
    if any(path.endswith("-kill") for path in paths) and not os.path.exists(marker):
        open(marker, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return spin(paths)


WORK: dict[str, BatchWork] = {
    work.__name__: work for work in (noop, read_files, spin, rest, logged_spin, spin_and_die_once)
}
