"""Becomes a master or `setup`: the command line imports neither."""

from __future__ import annotations

import os
import sys

MODULES = {"master": "windrow_master", "setup": "windrow_master.setup"}


def become(role: str, arguments: list[str]) -> None:
    """Replace this process by the program of a role."""
    os.execv(sys.executable, [sys.executable, "-P", "-m", MODULES[role], *arguments])
