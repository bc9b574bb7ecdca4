"""What a worker has written, from the end of each of its calls to the store: who waits for that, and what it means.

States of a worker whose outputs lie in a store, and edges::

    STARTING ──init() done──► LOOKED AT ──► FREE ──a lease──► RUNNING ──DONE──► SAVING ──saved, or not──► FREE
                                             ▲                   └──FAILED──► PASSED OVER ──────────────────┘
    any of these ──shutdown() done──► LAST SAVE ──► (gone)         any of these ──died──► (gone, unsaved)

Invariants:

1. A completion that says "done" leaves this node only when all that the worker had written till then is in the store.
2. Nothing of an attempt that failed goes to the store, so that it never stands over what a later try has written.
3. While it is looked at or saved, a worker has no lease.
4. A step leaves this node when none of this is under way any more.
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

from windrow_agent import completions
from windrow_agent.leases.lease import Lease
from windrow_agent.outputs.folder import OutputFolder
from windrow_agent.outputs.saver import NotSaved, Saver
from windrow_agent.steps import Step
from windrow_agent.workers.process import WorkerProcess

HandIn = Callable[[Lease, work.Completion, Path | None], None]
"""Takes a completion, with the file of its rows where they are large."""


class Saving:
    """``on_free``: a worker may be given something; ``on_done``: something that was under way for a step is over."""

    def __init__(
        self, saver: Saver, hand_in: HandIn, on_free: Callable[[Step], None], on_done: Callable[[Step], None]
    ) -> None:
        self._saver = saver
        self._hand_in = hand_in
        self._on_free = on_free
        self._on_done = on_done
        self._repeated = Repeated()

    def init_done(self, step: Step, worker: WorkerProcess, folder: OutputFolder) -> None:
        """The worker is ready."""
        self._begin(step, worker, self._look(folder))

    def run_done(
        self,
        step: Step,
        worker: WorkerProcess,
        folder: OutputFolder,
        lease: Lease,
        done: work.Completion,
        rows: Path | None,
    ) -> None:
        """An attempt has ended, well or not; ``rows``: the file of what ``run()`` returned."""
        saved = self._begin(step, worker, self._after_run(step, folder, lease, done, rows))
        step.attempt_saves.add(saved)

        def ended(task: asyncio.Task[None]) -> None:
            step.attempt_saves.discard(task)
            why = "The step has ended before the files of a mini-batch were saved"
            if not task.cancelled():
                if (error := task.exception()) is None:
                    return
                why = f"The files of a mini-batch could not be saved on this node: {error!r}"
            self._hand_in(lease, *_failed(done, work.CAUSE_NODE_FAULT, why, rows))

        saved.add_done_callback(ended)

    def worker_gone(self, step: Step, worker: WorkerProcess, folder: OutputFolder) -> None:
        """The worker has ended; what it has left counts if its ``shutdown()`` has ended before."""
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

    async def _look(self, folder: OutputFolder) -> None:
        try:
            await self._saver.begin(folder)
        except NotSaved as error:
            # What it is will be told by the first attempt that wants to save it.
            say(logging.WARNING, "outputs were not looked at", why=str(error))

    async def _after_run(
        self, step: Step, folder: OutputFolder, lease: Lease, done: work.Completion, rows: Path | None
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
            done, rows = _failed(done, error.cause, str(error), rows)
        took_us = (time.monotonic_ns() - began_ns) // 1000
        done.elapsed_us += took_us
        step.pace.observe(done.elapsed_us / 1e6, 1)
        self._hand_in(lease, done, rows)

    async def _at_end(self, step: Step, worker: WorkerProcess, folder: OutputFolder) -> None:
        name = f"process{worker.process_number:03d}"
        try:
            if worker.stopped:
                await self._saver.save(folder, step.limits.load_s)
            elif worker.retiring:
                why = "its shutdown() did not come to its end; what it wrote there is not saved"
                say(logging.WARNING, why, step=step.step_id, process=name)
        except NotSaved as error:
            step.unsaved = f"What {name} wrote outside of run() is not in its store: {error}"
            say(logging.ERROR, step.unsaved, step=step.step_id)
        await self._saver.remove(folder)


def _failed(
    done: work.Completion, cause: work.Cause.ValueType, message: str, rows: Path | None
) -> tuple[work.Completion, None]:
    if rows is not None:
        with suppress(OSError):
            rows.unlink(missing_ok=True)
    return completions.not_saved(done, cause, message), None
