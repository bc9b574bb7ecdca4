"""Processes beside the master that answer one request: a line on stdin, which stays open while the answer is wanted.

So they end with whoever asked, however that ends.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

STDIN = 0


def command_of(module: str) -> list[str]:
    """What starts a module of ours as a process."""
    # -P: a module in the folder from which a run was started never shadows one of ours.
    return [sys.executable, "-P", "-m", module]


def read_request(leave: Callable[[], object] = lambda: os._exit(0)) -> bytes:
    """The request; b"": nobody asks. From then on `leave`, which ends the process, is called when stdin ends, in a
    thread of its own.
    """
    line = b""
    while not line.endswith(b"\n"):
        part = os.read(STDIN, 65536)
        if not part:
            return b""
        line += part
    threading.Thread(target=_leave_with_asker, args=(leave,), daemon=True).start()
    return line


def _leave_with_asker(leave: Callable[[], object]) -> None:
    while os.read(STDIN, 4096):
        pass
    leave()
