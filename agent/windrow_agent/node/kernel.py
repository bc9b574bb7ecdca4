"""What the agent asks of the kernel for itself."""

from __future__ import annotations

import ctypes

_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> bool:
    """Makes orphaned descendants our children, so that they can be found and killed. False if that is not possible."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def forbid_dumps() -> bool:
    """Forbids core dumps, and other processes of this user to read our memory: it holds credentials."""
    return _prctl(_PR_SET_DUMPABLE, 0)


def _prctl(option: int, value: int) -> bool:
    try:
        return bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False
