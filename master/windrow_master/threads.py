"""Runs work that blocks on the disk in threads, beside the event loop.

Each kind of work has threads of its own. A folder on a network that does not answer holds up the threads that wait for
it, and so only work of its kind. Work for a job that may wait for the folders that it names has turns by project
(`windrow_master.shell.project_turns.ProjectThreads`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from typing import TypeVar

from windrow.common import threads

T = TypeVar("T")

THREADS = 8
"""Of each kind, at most."""


class Kind(StrEnum):
    """What work waits for."""

    STATE = "state"
    """The state folder, which is on a local disk."""
    DATASTORES = "datastores"
    """Folders that clients look at, download from or register."""


@functools.cache
def pool(kind: Kind) -> ThreadPoolExecutor:
    """The threads for a kind of work."""
    return ThreadPoolExecutor(THREADS, thread_name_prefix=kind.value)


async def in_thread(
    work: Callable[..., T],
    *arguments: object,
    kind: Kind = Kind.STATE,
    drop: Callable[[T], object] | None = None,
) -> T:
    """Run `work` in a thread of its kind and return its result; see common.threads for calls that are cancelled."""
    return await threads.in_thread(work, *arguments, threads=pool(kind), drop=drop)
