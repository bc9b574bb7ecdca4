"""Starts the processes that divide inputs. A master that is about to get a job has one at hand."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import Process
from contextlib import suppress

from windrow_master.helper_process import command_of


async def start_planner() -> Process:
    """Start a process that waits for its request (`windrow_master.planning`). Raises OSError if it cannot."""
    return await asyncio.create_subprocess_exec(
        *command_of("windrow_master.planning"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


class PlannerProcesses:
    """Planner processes of one master. Each plans once."""

    def __init__(self) -> None:
        self._at_hand: Process | None = None

    async def have_one_at_hand(self) -> None:
        """Start the one that the first step will get: it imports what it needs while the master still starts."""
        with suppress(OSError):  # who needs one tries again, and says why
            self._at_hand = await start_planner()

    async def start(self) -> Process:
        """Return a process that waits for its request. Raises OSError if none can be started."""
        ready, self._at_hand = self._at_hand, None
        if ready is not None and ready.returncode is None:
            return ready
        return await start_planner()

    async def close(self) -> None:
        """End the one that nobody has needed."""
        ready, self._at_hand = self._at_hand, None
        if ready is not None and ready.returncode is None:
            ready.kill()
            await ready.wait()
