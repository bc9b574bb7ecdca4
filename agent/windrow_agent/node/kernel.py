"""What the agent asks of the kernel for itself."""

from __future__ import annotations

import ctypes
import os
from typing import TypedDict

_PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> bool:
    """Makes orphaned descendants our children, so that they can be found and killed. False if that is not possible."""
    try:
        return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


class Apart(TypedDict):
    """Arguments of `subprocess.Popen`."""

    start_new_session: bool
    process_group: int | None


def apart() -> Apart:
    """How a process that runs foreign code is started: as the leader of its own process group, and without the terminal
    of this process, into which it could type commands.

    Only if there is a terminal, it also gets a session of its own. Between sessions the kernel divides the processors
    equally (`sched_autogroup`, in sched(7)): many workers then take time from the agent and the master that feed them.
    """
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        # Only the leader of a session can give it one, so it stays like this.
        return {"start_new_session": False, "process_group": 0}
    return {"start_new_session": True, "process_group": None}
