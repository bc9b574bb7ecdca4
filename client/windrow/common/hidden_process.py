"""Keeps what a process holds from other processes of its user, such as scripts."""

from __future__ import annotations

import sys

_PR_SET_DUMPABLE = 4


def hide_process() -> bool:
    """Forbid other processes of this user to read memory and environment of this one, and the kernel to dump them: they
    hold secrets. Return whether it is so; only Linux can do it. See prctl(2), PR_SET_DUMPABLE.
    """
    if sys.platform != "linux":
        return False
    # Loaded only if there is something to hide: it costs some milliseconds.
    import ctypes

    try:
        return bool(ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False
