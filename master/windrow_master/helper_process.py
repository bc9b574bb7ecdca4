"""Helper processes of the master: each answers one request, a line on stdin.

Stdin stays open while the answer is wanted, so a helper ends with the process that asked, however that ends.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

STDIN = 0
OOM_SCORE = 500
"""As agents give their workers."""


def command_of(module: str) -> list[str]:
    """The command line that starts one of our modules as a process."""
    # -P: a module in the folder from which a run was started never shadows one of ours.
    return [sys.executable, "-P", "-m", module]


def read_request(leave: Callable[[], object] = lambda: os._exit(0)) -> bytes:
    """Return the request, or b"" if stdin ends before it is whole. From then on a thread calls `leave`, which ends the
    process, when stdin ends.
    """
    _be_the_likely_victim()
    line = b""
    while not line.endswith(b"\n"):
        part = os.read(STDIN, 65536)
        if not part:
            return b""
        line += part
    threading.Thread(target=_leave_with_asker, args=(leave,), daemon=True).start()
    return line


def _be_the_likely_victim() -> None:
    """Have the kernel end this process before the master, or anything else, when memory runs out. Best effort."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE))


def _leave_with_asker(leave: Callable[[], object]) -> None:
    while os.read(STDIN, 4096):
        pass
    leave()
