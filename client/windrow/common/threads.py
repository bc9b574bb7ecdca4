"""Runs work that blocks beside the event loop, in a thread that no cancelled call leaves behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, TypeVar

T = TypeVar("T")


async def in_thread(
    work: Callable[..., T],
    *arguments: object,
    threads: Executor | None = None,
    drop: Callable[[T], object] | None = None,
) -> T:
    """Run `work` in a thread and return its result. `threads`: whose; None: those of the event loop.

    A cancelled call (its peer died) ends only when the thread has ended. So the caller can close a file afterwards: the
    thread no longer uses it, nor the next file that gets its descriptor. `drop` closes what `work` has opened for a
    call that is cancelled, which does not get it.
    """
    loop = asyncio.get_running_loop()
    running = loop.run_in_executor(threads, work, *arguments)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await _ended(running)
        if drop is not None and not running.cancelled() and running.exception() is None:
            await _ended(loop.run_in_executor(threads, drop, running.result()))
        raise


async def _ended(running: asyncio.Future[Any]) -> None:
    """Wait for a thread, however often the caller is cancelled. Raises nothing."""
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError:
            continue
    if not running.cancelled():
        running.exception()  # fetched so that asyncio does not log it: nobody waits for it now
