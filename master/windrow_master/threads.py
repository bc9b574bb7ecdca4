"""Runs work that blocks on the disk in threads, beside the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[..., T], *arguments: object) -> T:
    """Run `work` in a thread and return its result.

    A cancelled call (its peer died) ends only when the thread has ended. So the caller can close a file afterwards: the
    thread no longer writes to it, nor to the next file that gets its descriptor.
    """
    running = asyncio.get_running_loop().run_in_executor(None, work, *arguments)
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
