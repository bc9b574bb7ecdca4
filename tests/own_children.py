"""Processes that a test's process has started, when it may have others, too: of other tests, and of agents in it, which
become the parents of orphans. Some of them have ended, and nobody has waited for them yet.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import psutil


def own_children(has: Callable[[list[str]], bool]) -> list[psutil.Process]:
    """The children of this process that run a command whose words fit."""
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            if has(child.cmdline()):
                found.append(child)
    return found
