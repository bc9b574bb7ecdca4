"""Brings what workers have written to the store, and tells when it is there; the deadlines, and what is tried again.

A process of the agent's own does it (``windrow_agent.fetching``), apart from the one that fetches, so that neither
waits for the other. Each save ends within its limit: with everything in the store, or with a failure.
"""

from __future__ import annotations

import asyncio
from typing import Any

from windrow.rpc.v1 import work_pb2 as work

from windrow_agent.fetching.process import FetchProcess, NotRunning
from windrow_agent.outputs.folder import Look, OutputFolder

_CHANGES_MAX = 6
_FIRST_PAUSE_S = 0.05

_CAUSES = {"node_fault": work.CAUSE_NODE_FAULT, "timeout": work.CAUSE_TIMEOUT}


class NotSaved(Exception):
    """What a script has written is not in the store; the text says why."""

    def __init__(self, message: str, cause: work.Cause.ValueType = work.CAUSE_OUTPUT_FAILED) -> None:
        super().__init__(message)
        self.cause = cause


class Saver:
    """All saves of one agent."""

    def __init__(self) -> None:
        self._process = FetchProcess("The process that writes to remote storage")

    async def begin(self, folder: OutputFolder) -> None:
        """``init()`` has ended: what it has left goes to the store with what comes next. Raises NotSaved."""
        async with folder.lock:
            folder.owe(await self._look(folder))

    async def save(self, folder: OutputFolder, limit_s: float) -> None:
        """Bring to the store what is new in a folder. Raises NotSaved; what was new is passed over then."""
        async with folder.lock:
            look = await self._look(folder)
            try:
                async with asyncio.timeout(limit_s):
                    look = await self._until_at_rest(folder, look)
            except TimeoutError as error:
                folder.passed_over(look)
                raise NotSaved(
                    f"Bringing what the script has written to its store took longer than {limit_s:g} s "
                    "(--task_overhead_timeout)",
                    work.CAUSE_TIMEOUT,
                ) from error
            except (NotSaved, asyncio.CancelledError):
                folder.passed_over(look)
                raise
            folder.saved(look)

    async def pass_over(self, folder: OutputFolder) -> None:
        """A ``run()`` has failed: what it has left is not brought to the store. Raises NotSaved."""
        async with folder.lock:
            folder.passed_over(await self._look(folder))

    async def remove(self, folder: OutputFolder) -> None:
        """The folder is done with."""
        async with folder.lock:
            await asyncio.to_thread(folder.remove)

    def close(self) -> None:
        """The agent ends."""
        self._process.close()

    async def _look(self, folder: OutputFolder) -> Look:
        try:
            return await asyncio.to_thread(folder.look)
        except OSError as error:
            raise NotSaved(f"What the script has written could not be listed on this node: {error}") from error

    async def _until_at_rest(self, folder: OutputFolder, look: Look) -> Look:
        """Saves what is new; again, where something changed meanwhile. The look of which all is in the store."""
        pause = _FIRST_PAUSE_S
        for _ in range(_CHANGES_MAX):
            if look.refused:
                raise NotSaved(look.refused)
            if not look.new:
                return look
            answer = await self._ask(
                {"folder": str(folder.root), "device": folder.device, "saves": [list(save) for save in look.new]}
            )
            if "cause" not in answer:
                return look
            if answer["cause"] != "changed":
                raise NotSaved(answer["message"], _CAUSES.get(answer["cause"], work.CAUSE_OUTPUT_FAILED))
            await asyncio.sleep(pause)
            pause *= 2
            look = await self._look(folder)
        raise NotSaved(
            f"{answer['message']}. What the script has written must be at rest when run() returns: nothing else may "
            "still write there"
        )

    async def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """A process that has died over it is followed by another: a store takes the same file twice."""
        try:
            return await self._process.ask(request)
        except NotRunning as error:
            raise NotSaved(str(error), work.CAUSE_NODE_FAULT) from error
