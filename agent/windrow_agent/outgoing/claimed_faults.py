"""An attempt is said to have failed because of the node: the agent looks for itself before it says so to the master.

Who says so is a process in which a script runs, and ten such faults in a row set the node aside for all jobs. So only
what the agent finds where no script can write is a fault of the node; everything else is a failure of the script.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from windrow.common.journal import log

from windrow_agent.node.disks import try_disk

Judge = Callable[[str], None]
"""Takes what is wrong with the disk, in words; "": nothing."""


class ClaimedFaults:
    """Holds failed attempts until the agent has tried the disk."""

    def __init__(self) -> None:
        self._held: dict[Path, list[Judge]] = {}
        """By folder: those that wait for the next trial there. A folder is in it while its disk is tried."""
        self._waiting = 0
        self._trials: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """How many times `hold` waits."""
        return self._waiting

    def hold(self, folder: Path, judge: Judge) -> None:
        """Calls `judge` once the disk of this folder has been tried. `folder`: of the agent's own."""
        self._waiting += 1
        if (held := self._held.get(folder)) is not None:
            held.append(judge)
            return
        self._held[folder] = [judge]
        trial = asyncio.create_task(self._try(folder))
        self._trials.add(trial)
        trial.add_done_callback(self._trials.discard)

    async def _try(self, folder: Path) -> None:
        try:
            while held := self._held[folder]:
                self._held[folder] = []
                why = ""
                try:
                    await asyncio.to_thread(try_disk, folder)
                except OSError as error:
                    why = str(error)
                for judge in held:
                    self._waiting -= 1
                    try:
                        judge(why)
                    except Exception:
                        # The others must not be lost with it.
                        log.exception("a result could not be handed in; please report this")
        finally:
            del self._held[folder]
