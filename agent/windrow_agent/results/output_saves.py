"""Outputs of workers on their way to a store: which calls they wait for, the deadlines, and what a failure means.

A process of the agent's own writes to the store (`windrow_agent.fetch_process`), apart from the one that fetches, so
that neither waits for the other. Each save ends within its limit: with everything in the store, or with a failure.

States of a worker whose outputs go to a store::

    STARTING ──init() done──► LISTED ──► FREE ──a lease──► RUNNING ──DONE──► SAVING ──saved, or not──► FREE
                                          ▲                   └──FAILED──► PASSED OVER ──────────────────┘
    any of these ──shutdown() done──► LAST SAVE ──► (gone)         any of these ──died──► (gone, unsaved)

Invariants:

1. A completion that says "done" leaves this node only when everything that the worker had written is in the store.
2. Nothing of a failed attempt goes to the store, so that it never overwrites what a later try has written.
3. A worker has no lease while its outputs are listed or saved.
4. A step leaves this node only when all of this has ended.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

from windrow.common.journal import Repeated, say
from windrow.rpc.v1 import work_pb2 as work

from windrow_agent.fetch_process.client import FetchProcess, NotRunning
from windrow_agent.leases.lease import Lease
from windrow_agent.outgoing import completions
from windrow_agent.steps.step import Step
from windrow_agent.workers.output_folder import Listing, OutputFolder
from windrow_agent.workers.process import WorkerProcess

HandIn = Callable[[Step, WorkerProcess, Lease, work.Completion, Path | None], None]
"""Takes a completion, and the file of its rows if they are large."""

_CHANGES_MAX = 6
_FIRST_PAUSE_S = 0.05

_CAUSES = {"node_fault": work.CAUSE_NODE_FAULT, "timeout": work.CAUSE_TIMEOUT}


class NotSaved(Exception):
    """Outputs of a script are not in the store; the text says why."""

    def __init__(self, message: str, cause: work.Cause.ValueType = work.CAUSE_OUTPUT_FAILED) -> None:
        super().__init__(message)
        self.cause = cause


class OutputSaver:
    """Brings new files of output folders to their stores."""

    def __init__(self) -> None:
        self._process = FetchProcess("The process that writes to remote storage")

    async def begin(self, folder: OutputFolder) -> None:
        """`init()` has ended: its files go to the store with the next save. Raises NotSaved."""
        async with folder.lock:
            folder.owe(await self._list(folder))

    async def save(self, folder: OutputFolder, limit_s: float) -> None:
        """Saves what is new in a folder to the store. Raises NotSaved; the new files are then passed over."""
        async with folder.lock:
            listing = await self._list(folder)
            try:
                async with asyncio.timeout(limit_s):
                    listing = await self._until_at_rest(folder, listing)
            except TimeoutError as error:
                folder.passed_over(listing)
                raise NotSaved(
                    f"Saving the script's outputs to their store took longer than {limit_s:g} s "
                    "(--task_overhead_timeout)",
                    work.CAUSE_TIMEOUT,
                ) from error
            except (NotSaved, asyncio.CancelledError):
                folder.passed_over(listing)
                raise
            folder.saved(listing)

    async def pass_over(self, folder: OutputFolder) -> None:
        """A `run()` has failed: its files are not saved. Raises NotSaved."""
        async with folder.lock:
            folder.passed_over(await self._list(folder))

    async def remove(self, folder: OutputFolder) -> None:
        """Removes the folder."""
        async with folder.lock:
            await asyncio.to_thread(folder.remove)

    def close(self) -> None:
        """Ends the process; the agent ends."""
        self._process.close()

    async def _list(self, folder: OutputFolder) -> Listing:
        try:
            return await asyncio.to_thread(folder.list_files)
        except OSError as error:
            raise NotSaved(f"The script's outputs could not be listed on this node: {error}") from error

    async def _until_at_rest(self, folder: OutputFolder, listing: Listing) -> Listing:
        """Saves what is new, again if something changed meanwhile. Returns the listing of which all is in the store."""
        pause = _FIRST_PAUSE_S
        for _ in range(_CHANGES_MAX):
            if listing.refused:
                raise NotSaved(listing.refused)
            if not listing.new:
                return listing
            answer = await self._ask(
                {"folder": folder.place, "device": folder.device, "saves": [list(save) for save in listing.new]}
            )
            if "cause" not in answer:
                return listing
            if answer["cause"] != "changed":
                raise NotSaved(answer["message"], _CAUSES.get(answer["cause"], work.CAUSE_OUTPUT_FAILED))
            await asyncio.sleep(pause)
            pause *= 2
            listing = await self._list(folder)
        raise NotSaved(
            f"{answer['message']}. A script's outputs must be complete when run() returns: nothing may write to them "
            "afterwards"
        )

    async def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Asks the process. If it dies, the next one is asked: a store can take the same file twice."""
        try:
            return await self._process.ask(request)
        except NotRunning as error:
            raise NotSaved(str(error), work.CAUSE_NODE_FAULT) from error


class OutputSaves:
    """Who waits for a save. `on_free`: a worker may be given work; `on_done`: a save for a step is over."""

    def __init__(
        self, saver: OutputSaver, hand_in: HandIn, on_free: Callable[[Step], None], on_done: Callable[[Step], None]
    ) -> None:
        self._saver = saver
        self._hand_in = hand_in
        self._on_free = on_free
        self._on_done = on_done
        self._repeated = Repeated()

    def init_done(self, step: Step, worker: WorkerProcess, folder: OutputFolder) -> None:
        """A worker is ready: lists what `init()` has written."""
        self._begin(step, worker, self._list(folder))

    def run_done(
        self,
        step: Step,
        worker: WorkerProcess,
        folder: OutputFolder,
        lease: Lease,
        done: work.Completion,
        rows: Path | None,
    ) -> None:
        """An attempt has ended, well or not. `rows`: the file of large rows."""
        saved = self._begin(step, worker, self._after_run(step, worker, folder, lease, done, rows))
        step.attempt_saves.add(saved)

        def ended(task: asyncio.Task[None]) -> None:
            step.attempt_saves.discard(task)
            why = "The step ended before the outputs of a mini-batch were saved"
            if not task.cancelled():
                if (error := task.exception()) is None:
                    return
                why = f"The outputs of a mini-batch could not be saved on this node: {error!r}"
            self._hand_in(step, worker, lease, *failed_after_run(done, work.CAUSE_NODE_FAULT, why, rows))

        saved.add_done_callback(ended)

    def worker_gone(self, step: Step, worker: WorkerProcess, folder: OutputFolder) -> None:
        """The worker has ended; its last files count if its `shutdown()` has ended."""
        self._begin(step, worker, self._at_end(step, worker, folder))

    def _begin(self, step: Step, worker: WorkerProcess, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        worker.saving = True
        task = asyncio.create_task(coroutine)
        step.saves.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            step.saves.discard(task)
            worker.saving = False
            if not task.cancelled() and (error := task.exception()) is not None:
                say(logging.ERROR, "outputs were not saved", step=step.step_id, why=repr(error))
            self._on_free(step)
            self._on_done(step)

        task.add_done_callback(ended)
        return task

    async def _list(self, folder: OutputFolder) -> None:
        try:
            await self._saver.begin(folder)
        except NotSaved as error:
            # The first attempt that saves reports the reason.
            say(logging.WARNING, "outputs could not be listed", why=str(error))

    async def _after_run(
        self,
        step: Step,
        worker: WorkerProcess,
        folder: OutputFolder,
        lease: Lease,
        done: work.Completion,
        rows: Path | None,
    ) -> None:
        began_ns = time.monotonic_ns()
        try:
            if done.cause:
                with suppress(NotSaved):
                    await self._saver.pass_over(folder)
            else:
                await self._saver.save(folder, step.limits.load_s)
        except NotSaved as error:
            self._repeated.say(
                step.step_id, logging.WARNING, "not saved", step=step.step_id, lease=lease.lease_id, why=str(error)
            )
            done, rows = failed_after_run(done, error.cause, str(error), rows)
        took_us = (time.monotonic_ns() - began_ns) // 1000
        done.elapsed_us += took_us
        step.pace.observe(done.elapsed_us / 1e6, 1)
        self._hand_in(step, worker, lease, done, rows)

    async def _at_end(self, step: Step, worker: WorkerProcess, folder: OutputFolder) -> None:
        name = f"process{worker.process_number:03d}"
        try:
            if worker.stopped:
                await self._saver.save(folder, step.limits.load_s)
            elif worker.retiring:
                why = "its shutdown() did not finish; what it wrote there is not saved"
                say(logging.WARNING, why, step=step.step_id, process=name)
        except NotSaved as error:
            step.unsaved = f"What {name} wrote outside of run() is not in its store: {error}"
            say(logging.ERROR, step.unsaved, step=step.step_id)
        await self._saver.remove(folder)


def failed_after_run(
    done: work.Completion, cause: work.Cause.ValueType, message: str, rows: Path | None
) -> tuple[work.Completion, None]:
    """The completion of an attempt whose `run()` has returned, and that fails all the same; its rows are removed."""
    if rows is not None:
        with suppress(OSError):
            rows.unlink(missing_ok=True)
    return completions.not_saved(done, cause, message), None
