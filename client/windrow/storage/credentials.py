"""Protects credentials in the environment of a process from other processes of its user, such as scripts."""

from __future__ import annotations

import os

_PREFIXES = ("AWS_", "AZURE_", "GOOGLE_")


def hide_credentials() -> None:
    """Keep other processes of this user from reading this one, if its environment may hold credentials of storage."""
    if any(name.startswith(_PREFIXES) for name in os.environ):
        from windrow.common.hidden_process import hide_process

        hide_process()
