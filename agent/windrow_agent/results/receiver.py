"""Takes what worker processes send, and turns results of mini-batches into completions for the master."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import monotonic_ns

from windrow.common.beneath import Folder, NotAFile, Refused
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
from windrow_agent.workers.process_log import LISTED_FROM_S

INIT_FAILED = "init() failed"
"""Why a worker is killed after it has reported that."""

NotReady = Callable[[Step, work.Cause.ValueType, str, str, int], None]
"""Takes cause, message, detail and number of a process that could not be made ready."""


class ResultReceiver:
    """`pump` is called when a worker may get more, `on_change` when a step's pace has changed or a save has ended."""

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
        """For workers whose outputs go to a store; it also has to hear of their ends."""
        self._not_ready = not_ready
        self._on_change = on_change
        self._repeated = Repeated()
        staged.mkdir(exist_ok=True)

    def take(self, step: Step, worker: WorkerProcess, results: list[Result]) -> None:
        """Takes the results of one worker, in order."""
        finish = self._ledger.finish
        outgoing = self._outgoing
        metrics_wait = not worker.metrics.pushed
        waiting: list[tuple[int, bytes]] = []
        key, number = worker.key, worker.process_number
        finished = counted = counted_us = 0
        ran = ran_us = 0
        listed = worker.log.lists_each or (step.pace.duration_s or 1.0) >= LISTED_FROM_S
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
                if listed or kind == FrameType.FAILED:
                    worker.log.add(lease, result, error_log.failed_by(result))
                else:
                    counted += 1
                    counted_us += result.elapsed_us
                if result.flags & frames.ROWS_IN_FILE or worker.outputs is not None:
                    self._take_large(step, worker, lease, result)
                    continue
                completion = completions.from_result(result, number)
                worker.tell_start(completion)
                if completion.cause:
                    error_log.note_attempt(step, number, lease, completion)
                if metrics_wait:
                    waiting.append((result.lease_id, completion.SerializeToString()))
                else:
                    outgoing.outbox.add(result.lease_id, completion.SerializeToString())
            elif kind == FrameType.READY:
                worker.note_ready(monotonic_ns())
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
        if waiting:
            outgoing.metrics_first.hold(worker.metrics, partial(outgoing.complete_all, waiting))
        if finished:
            worker.log.write()
            if counted:
                worker.log.count(counted, counted_us)
            outgoing.wake()
            step.failures = 0
            step.active_ns = monotonic_ns()
            depth = step.pace.depth
            if ran and not step.saves_outputs:
                # A failure does not show how long a mini-batch takes. A broken node, where all fail at once, must not
                # get more work because of that.
                step.pace.observe(ran_us / 1e6, ran)
            if step.pace.depth != depth:
                self._on_change(step)

    def _take_large(self, step: Step, worker: WorkerProcess, lease: Lease, result: Result) -> None:
        """Takes a result with large rows, or of a worker whose outputs go to a store: its completion waits for them.

        The file of large rows is moved away, since the worker's folder goes with the worker.
        """
        in_file = bool(result.flags & frames.ROWS_IN_FILE)
        completion = completions.from_result(result, worker.process_number, rows=b"" if in_file else None)
        worker.tell_start(completion)
        kept = self._staged / f"{lease.lease_id:016x}" if in_file else None
        if completion.cause:
            error_log.note_attempt(step, worker.process_number, lease, completion)
        if kept is not None:
            try:
                _keep_rows(Path(os.fsdecode(result.rows)), worker.scratch, kept)
            except Refused as error:
                # Not this node's fault: the script has put something else in the place of its rows.
                kept = None
                message = f"The rows of a mini-batch are not taken: {error}"
                completion = completions.not_saved(completion, work.CAUSE_OUTPUT_FAILED, message)
            except OSError as error:
                kept = None
                completion = completions.failed_here(
                    lease.lease_id, f"The rows of a mini-batch were lost on this node: {error}"
                )
        if worker.outputs is not None:
            self.saving.run_done(step, worker, worker.outputs, lease, completion, kept)
        else:
            self._hand_in(worker, lease, completion, kept)

    def _hand_in(self, worker: WorkerProcess, lease: Lease, completion: work.Completion, rows: Path | None) -> None:
        """Hands in a completion, once its metrics are with the master. `rows`: a file that is uploaded first."""
        if not worker.metrics.pushed:
            hand_in = partial(self._hand_in_now, lease, completion, rows)
            self._outgoing.metrics_first.hold(worker.metrics, hand_in)
        else:
            self._hand_in_now(lease, completion, rows)

    def _hand_in_now(self, lease: Lease, completion: work.Completion, rows: Path | None) -> None:
        if rows is None:
            self._outgoing.complete(lease.lease_id, completion.SerializeToString())
        else:
            self._outgoing.outbox.reserve(lease.lease_id, completion.rows_length)
            self._uploads.stage(lease, completion, rows)


def _keep_rows(rows: Path, scratch: Path, kept: Path) -> None:
    """Moves a file of large rows to `kept`, where no script writes. It comes from a process that a script has run in:
    only a plain file of the worker's own folder is taken. Raises OSError; Refused for anything else.
    """
    if rows.parent != scratch:
        raise Refused(errno.EPERM, f"{rows} is not in the folder of its worker")
    with Folder.open(os.path.realpath(scratch.parent)) as above, above.folder(scratch.name) as folder:
        os.rename(rows.name, kept, src_dir_fd=folder.descriptor)
    # Looked at here, where it cannot become something else any more.
    found = kept.lstat().st_mode
    if not stat.S_ISREG(found):
        if stat.S_ISDIR(found):
            shutil.rmtree(kept, ignore_errors=True)
        else:
            kept.unlink()
        raise NotAFile(str(rows))
