"""Processes that build environments: started on the event loop's thread, and awaited without blocking it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from windrow_agent.node import strays

POLL_S = 0.05


class Abandoned(Exception):
    """The result is no longer wanted."""


class Process:
    """One process, the leader of its group. `output`: for stdout and stderr; `kept_open`: a descriptor that it
    inherits.

    Not the embedded mode's `Process`, which is a role of Windrow's.
    """

    def __init__(
        self,
        command: Sequence[str],
        variables: Mapping[str, str],
        *,
        output: int,
        folder: Path | None = None,
        kept_open: int | None = None,
    ) -> None:
        """Starts the process. Raises OSError if it cannot."""
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env=dict(variables),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=[] if kept_open is None else [kept_open],
            process_group=0,
        )
        # Otherwise, reaping orphans would take its exit code.
        strays.AWAITED.add(self._process.pid)

    async def wait(self, is_wanted: Callable[[], bool]) -> int:
        """Waits for the exit code; kills the process if it is no longer wanted, or the wait is cancelled. Raises
        Abandoned.
        """
        try:
            while (code := self._process.poll()) is None:
                if not is_wanted():
                    raise Abandoned
                await asyncio.sleep(POLL_S)
            return code
        finally:
            if self._process.returncode is None:
                self.kill()
                self._process.wait()
            strays.AWAITED.discard(self._process.pid)

    def kill(self) -> None:
        """Kills it and its children."""
        if self._process.returncode is None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
