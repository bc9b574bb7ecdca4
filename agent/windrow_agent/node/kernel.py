"""What the agent asks of the kernel for itself."""

from __future__ import annotations

import ctypes

_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> bool:
    """Orphans among the descendants become our children, so that they can be found and ended.

    False: not possible here.
    """
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def forbid_dumps() -> bool:
    """No core dump, and no other process of this user may read our memory: there are credentials in it."""
    return _prctl(_PR_SET_DUMPABLE, 0)


def _prctl(option: int, value: int) -> bool:
    try:
        return bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False
