"""Protects credentials in the environment of a process from other processes of its user, such as scripts."""

from __future__ import annotations

import os
import sys

_PREFIXES = ("AWS_", "AZURE_", "GOOGLE_")
_PR_SET_DUMPABLE = 4


def hide_credentials() -> None:
    """Keep other processes of this user from reading this one, if its environment may hold credentials of storage."""
    if any(name.startswith(_PREFIXES) for name in os.environ):
        hide_process()


def hide_process() -> None:
    """Keep other processes of this user from reading memory and environment of this one: they hold secrets."""
    if sys.platform == "linux":
        # Loaded only if there is something to hide: it costs some milliseconds.
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
