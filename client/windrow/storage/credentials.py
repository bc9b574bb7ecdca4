"""Protects credentials in the environment of a process from other processes of its user, such as scripts."""

from __future__ import annotations

import os
import sys

_PREFIXES = ("AWS_", "AZURE_", "GOOGLE_")
_PR_SET_DUMPABLE = 4


def hide_credentials() -> None:
    """Keep other processes of this user from reading this one, if its environment may hold credentials of storage."""
    if sys.platform == "linux" and any(name.startswith(_PREFIXES) for name in os.environ):
        # Loaded only if there is something to hide: it costs some milliseconds.
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
