"""Runs work that blocks on the disk in threads, beside the event loop.

Each kind of work has threads of its own. A folder on a network that does not answer holds up the threads that wait for
it, and so only work of its kind.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from typing import TypeVar

T = TypeVar("T")

THREADS = 8
"""Of each kind, at most."""


class Kind(StrEnum):
    """What work waits for."""

    STATE = "state"
    """The state folder, which is on a local disk."""
    SUBMISSIONS = "submissions"
    """Folders that jobs name, before they are accepted."""
    STEPS = "steps"
    """Inputs and outputs of a step that begins."""
    DATASTORES = "datastores"
    """Folders that clients look at, download from or register."""


@functools.cache
def pool(kind: Kind) -> ThreadPoolExecutor:
    """The threads for a kind of work."""
    return ThreadPoolExecutor(THREADS, thread_name_prefix=kind.value)


async def in_thread(work: Callable[..., T], *arguments: object, kind: Kind = Kind.STATE) -> T:
    """Run `work` in a thread of its kind and return its result.

    A cancelled call (its peer died) ends only when the thread has ended. So the caller can close a file afterwards: the
    thread no longer writes to it, nor to the next file that gets its descriptor.
    """
    running = asyncio.get_running_loop().run_in_executor(pool(kind), work, *arguments)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            try:
                await asyncio.wait([running])
            except asyncio.CancelledError:
                continue
        if not running.cancelled():
            running.exception()  # fetched so that asyncio does not log it: nobody waits for it now
        raise
