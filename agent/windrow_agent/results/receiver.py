"""Takes what worker processes send: results of mini-batches become completions on their way to the master."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from time import monotonic_ns

from windrow.common.journal import Repeated, say
from windrow.rpc.v1 import work_pb2 as work

from windrow_agent.leases.lease import Lease
from windrow_agent.leases.ledger import Ledger
from windrow_agent.outgoing import completions
from windrow_agent.outgoing.queue import OutgoingQueue
from windrow_agent.results.output_saves import OutputSaver, OutputSaves
from windrow_agent.results.row_uploads import RowUploads
from windrow_agent.steps import error_log
from windrow_agent.steps.step import Step
from windrow_agent.workers import frames
from windrow_agent.workers.frames import FrameType, Result
from windrow_agent.workers.process import WorkerProcess
from windrow_agent.workers.process_log import TOLD_FROM_S

INIT_FAILED = "init() failed"
"""What a worker is killed for that has said so."""

NotReady = Callable[[Step, work.Cause.ValueType, str, str, int], None]
"""Takes the cause, message, detail and number of a process that could not be made ready."""


class ResultReceiver:
    """`on_change` is called when a step's pace has changed, or something that was saved for it is over."""

    def __init__(
        self,
        ledger: Ledger,
        outgoing: OutgoingQueue,
        staged: Path,
        uploads: RowUploads,
        saver: OutputSaver,
        pump: Callable[[Step], None],
        not_ready: NotReady,
        on_change: Callable[[Step], None],
    ) -> None:
        self._ledger = ledger
        self._outgoing = outgoing
        self._staged = staged
        self._uploads = uploads
        self.saving = OutputSaves(saver, self._hand_in, pump, on_change)
        """Of workers that write to a store; it has to be told of their ends."""
        self._not_ready = not_ready
        self._on_change = on_change
        self._repeated = Repeated()
        staged.mkdir(exist_ok=True)

    def take(self, step: Step, worker: WorkerProcess, results: list[Result]) -> None:
        """What has come from one worker, in its order."""
        finish = self._ledger.finish
        keep = self._outgoing.outbox.add
        key, number = worker.key, worker.process_number
        finished = untold = untold_us = 0
        ran = ran_us = 0
        told = worker.log.tells or (step.pace.duration_s or 1.0) >= TOLD_FROM_S
        for result in results:
            kind = result.type
            if kind in (FrameType.DONE, FrameType.FAILED):
                worker.received += 1
                lease = finish(key, result.lease_id)
                if lease is None:
                    self._repeated.say(
                        step.step_id, logging.WARNING, "result without a lease", process=number, lease=result.lease_id
                    )
                    continue
                finished += 1
                if kind == FrameType.DONE:
                    ran += 1
                    ran_us += result.elapsed_us
                if told or kind == FrameType.FAILED:
                    worker.log.add(lease, result, error_log.failed_by(result))
                else:
                    untold += 1
                    untold_us += result.elapsed_us
                if result.flags & frames.ROWS_IN_FILE or worker.outputs is not None:
                    self._take_slowly(step, worker, lease, result)
                    continue
                completion = completions.from_result(result, number)
                if completion.cause:
                    error_log.note_attempt(step, number, lease, completion)
                keep(result.lease_id, completion.SerializeToString())
            elif kind == FrameType.READY:
                worker.ready = True
                if worker.outputs is not None:
                    self.saving.init_done(step, worker, worker.outputs)
            elif kind == FrameType.INIT_FAILED:
                worker.killed_for = worker.killed_for or INIT_FAILED
                self._not_ready(step, *completions.failure_of(completions.side_of(result)), number)
                worker.kill()
            elif kind == FrameType.STOPPED:
                worker.stopped = True
                if not result.side:
                    continue
                _, message, detail = completions.failure_of(completions.side_of(result))
                say(logging.WARNING, "shutdown() failed", step=step.step_id, process=number, why=message)
                step.note_shutdown_failure(number, message)
                error_log.note_worker(step, number, "shutdown_failed", message, detail)
        if finished:
            worker.log.write()
            if untold:
                worker.log.count(untold, untold_us)
            self._outgoing.wake()
            step.failures = 0
            step.active_ns = monotonic_ns()
            depth = step.pace.depth
            if ran and not step.saves_outputs:
                # A failure says nothing of how long a mini-batch takes. A broken node, where all fail at once, must not
                # get more work for that.
                step.pace.observe(ran_us / 1e6, ran)
            if step.pace.depth != depth:
                self._on_change(step)

    def _take_slowly(self, step: Step, worker: WorkerProcess, lease: Lease, result: Result) -> None:
        """A result whose rows are large, or whose worker writes to a store: its completion waits for their way there.

        The file of large rows is kept apart from the worker's life.
        """
        in_file = bool(result.flags & frames.ROWS_IN_FILE)
        completion = completions.from_result(result, worker.process_number, rows=b"" if in_file else None)
        kept = self._staged / f"{lease.lease_id:016x}" if in_file else None
        if completion.cause:
            error_log.note_attempt(step, worker.process_number, lease, completion)
        if kept is not None:
            try:
                Path(result.rows.decode("utf-8", "surrogateescape")).rename(kept)
            except OSError as error:
                kept = None
                completion = completions.failed_here(
                    lease.lease_id, f"The rows of a mini-batch were lost on this node: {error}"
                )
        if worker.outputs is not None:
            self.saving.run_done(step, worker, worker.outputs, lease, completion, kept)
        else:
            self._hand_in(lease, completion, kept)

    def _hand_in(self, lease: Lease, completion: work.Completion, rows: Path | None) -> None:
        """`rows`: a file that is uploaded before the completion names it."""
        if rows is None:
            self._outgoing.complete(lease.lease_id, completion.SerializeToString())
        else:
            self._outgoing.outbox.reserve(lease.lease_id, completion.rows_length)
            self._uploads.stage(lease, completion, rows)
