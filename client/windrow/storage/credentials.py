"""Keeping credentials in a process's environment from other processes of its user: the scripts that it runs."""

from __future__ import annotations

import os
import sys

_PREFIXES = ("AWS_", "AZURE_", "GOOGLE_")
_PR_SET_DUMPABLE = 4


def hide_credentials() -> None:
    """Let no other process of this user look into this one, if its environment may hold credentials of storage."""
    if sys.platform == "linux" and any(name.startswith(_PREFIXES) for name in os.environ):
        # Not loaded where there is nothing to hide: it would cost every start some milliseconds.
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
