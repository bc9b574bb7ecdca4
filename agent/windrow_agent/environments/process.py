"""Processes that build environments: started on the event loop's thread, and awaited without blocking it.

They run code of packages. Where this agent has control groups, each of them has one, which ends with it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from windrow.common.quantities import size

from windrow_agent.node import strays
from windrow_agent.node.kernel import apart

if TYPE_CHECKING:
    from windrow_agent.node.control_groups import ControlGroups, WorkerGroup

POLL_S = 0.05
FULL_S = 10.0
"""How long a process may go on that has started as many as it may."""
_ENTER = Path(strays.__file__).with_name("enter_group.py")


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
        groups: ControlGroups | None = None,
    ) -> None:
        """Starts the process. Raises OSError if it cannot."""
        self.limit = ""
        """What it lacked when it ended, of what its control group may use, in words; "" for nothing."""
        self._groups = groups
        self._group: WorkerGroup | None = None
        if groups is not None:
            self._group = groups.open_builder()
            command = [sys.executable, "-I", "-S", str(_ENTER), os.pathsep.join(self._group.entrances), *command]
        try:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env=dict(variables),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[] if kept_open is None else [kept_open],
                **apart(),
            )
        except BaseException:
            self._end_group()
            raise
        # Otherwise, reaping orphans would take its exit code.
        strays.AWAITED.add(self._process.pid)

    async def wait(self, is_wanted: Callable[[], bool]) -> int:
        """Waits for the exit code; kills the process if it is no longer wanted, or the wait is cancelled. Raises
        Abandoned.
        """
        try:
            full_since_s = None
            while (code := self._process.poll()) is None:
                if not is_wanted():
                    raise Abandoned
                if full_since_s is None and self._group is not None and self._group.was_full():
                    full_since_s = time.monotonic()
                elif full_since_s is not None and time.monotonic() - full_since_s > FULL_S:
                    # What has been refused processes for so long is a fork bomb, which does not end by itself.
                    self.kill()
                await asyncio.sleep(POLL_S)
            return code
        finally:
            if self._process.returncode is None:
                self.kill()
                self._process.wait()
            strays.AWAITED.discard(self._process.pid)
            self._end_group()

    def _end_group(self) -> None:
        """Ends what the process has left behind, and notes what it lacked."""
        group, self._group = self._group, None
        if group is None or self._groups is None:
            return
        if group.lacked_memory() and group.limits.memory is not None:
            self.limit = (
                f"all memory that the build of an environment may use on this node, {size(group.limits.memory)}"
            )
        elif group.was_full() and group.limits.processes is not None:
            self.limit = (
                "more processes and threads than the build of an environment may have on this node, "
                f"{group.limits.processes:,}"
            )
        group.kill()
        self._groups.leave(group)

    def kill(self) -> None:
        """Kills it, and all that it has started."""
        if self._group is not None:
            self._group.kill()
        if self._process.returncode is None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
