"""Takes what worker processes send, and turns results of mini-batches into completions for the master."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic_ns
from zlib import crc32

from windrow.common.beneath import Folder, NotAFile, Refused
from windrow.common.journal import Repeated, say
from windrow.common.removal import discard_tree
from windrow.rpc.v1 import work_pb2 as work

from windrow_agent.leases.lease import Lease
from windrow_agent.leases.ledger import Ledger
from windrow_agent.outgoing import completions
from windrow_agent.outgoing.queue import OutgoingQueue
from windrow_agent.results.output_saves import OutputSaver, OutputSaves, failed_after_run
from windrow_agent.results.row_uploads import RowUploads
from windrow_agent.steps import error_log
from windrow_agent.steps.step import Step
from windrow_agent.workers import death, frames
from windrow_agent.workers.frames import FrameType, Result
from windrow_agent.workers.process import WorkerProcess
from windrow_agent.workers.process_log import LISTED_FROM_S

_OF_THE_NODE = frozenset(
    (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ESTALE, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
)
"""What a script does not bring about by what it puts in the place of its rows: the node is at fault."""

INIT_FAILED = "init() failed"
"""Why a worker is killed after it has reported that."""

NotReady = Callable[[Step, work.Cause.ValueType, str, str, int], None]
"""Takes cause, message, detail and number of a process that could not be made ready."""


_DAMAGED = (
    "The rows of a mini-batch do not have the checksum with which the worker process has sent them: something in that "
    "process has changed them. A script must not write into the channel of its worker. If it does not, check the "
    "memory of this node"
)


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
        self._claimed: set[int] = set()
        """Leases whose attempt is said to have failed because of the node, until they are handed in."""
        staged.mkdir(exist_ok=True)

    def take(self, step: Step, worker: WorkerProcess, results: list[Result]) -> None:
        """Takes the results of one worker, in order."""
        finish = self._ledger.finish
        outgoing = self._outgoing
        metrics_wait = not worker.metrics.pushed
        waiting: list[tuple[int, bytes]] = []
        files_wait = bool(step.spec.synced_paths)
        unsynced: list[work.Completion] = []
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
                claimed = kind == FrameType.FAILED and completions.claims_node_fault(result)
                if claimed or result.flags & frames.ROWS_IN_FILE or worker.outputs is not None:
                    self._take_slowly(step, worker, lease, result, claimed=claimed)
                    continue
                completion = _made(worker, result)
                worker.tell_start(completion)
                completions.tell_cache_use(lease, completion)
                if completion.cause:
                    error_log.note_attempt(step, number, lease, completion)
                if files_wait and not completion.cause:
                    unsynced.append(completion)
                elif metrics_wait:
                    waiting.append((result.lease_id, completion.SerializeToString()))
                else:
                    outgoing.outbox.add(result.lease_id, completion.SerializeToString())
            elif kind == FrameType.READY:
                if worker.ready:
                    continue  # sent by the script
                worker.note_ready(monotonic_ns())
                if worker.outputs is not None:
                    self.saving.init_done(step, worker, worker.outputs)
            elif kind == FrameType.INIT_FAILED:
                if worker.killed_for == INIT_FAILED:
                    continue
                worker.killed_for = worker.killed_for or INIT_FAILED
                _, message, detail = completions.failure_of(completions.side_of(result))
                self._not_ready(step, work.CAUSE_INIT_FAILED, message, detail, number)
                worker.kill()
            elif kind == FrameType.STOPPED:
                told, worker.stopped = worker.stopped, True
                if told or not result.side:
                    continue
                _, message, detail = completions.failure_of(completions.side_of(result))
                say(logging.WARNING, "shutdown() failed", step=step.step_id, process=number, why=message)
                step.note_shutdown_failure(number, message)
                error_log.note_worker(step, number, "shutdown_failed", message, detail)
        if unsynced:
            for completion in unsynced:
                # A disk that is slow must not let rows pile up in memory.
                outgoing.outbox.reserve(completion.lease_id, len(completion.rows))
            outgoing.files_first.hold(step.spec.synced_paths, partial(self._synced, worker, unsynced))
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

    def _take_slowly(self, step: Step, worker: WorkerProcess, lease: Lease, result: Result, *, claimed: bool) -> None:
        """Takes a result with large rows, or of a worker whose outputs go to a store: its completion waits for them.
        So does one that is `claimed` to be the node's fault: it waits until the agent has tried the disk.

        The file of large rows is moved away, since the worker's folder goes with the worker.
        """
        in_file = bool(result.flags & frames.ROWS_IN_FILE) and result.type == FrameType.DONE
        completion = _made(worker, result)
        worker.tell_start(completion)
        completions.tell_cache_use(lease, completion)
        kept = self._staged / f"{lease.lease_id:016x}" if in_file else None
        if claimed:
            self._claimed.add(lease.lease_id)
        elif completion.cause:
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
                if error.errno in _OF_THE_NODE:
                    completion = completions.failed_here(
                        lease.lease_id, f"The rows of a mini-batch were lost on this node: {error}"
                    )
                else:
                    message = (
                        f"The rows of a mini-batch are not where its worker process has said: {error}. A script must "
                        "not write to the folders and channels of its worker"
                    )
                    completion = completions.not_saved(completion, work.CAUSE_OUTPUT_FAILED, message)
        if worker.outputs is not None:
            self.saving.run_done(step, worker, worker.outputs, lease, completion, kept)
        else:
            self._hand_in(step, worker, lease, completion, kept)

    def _synced(self, worker: WorkerProcess, done: list[work.Completion], why: str) -> None:
        """The files of mini-batches are on disk, or `why` not."""
        if why:
            self._say_not_synced(worker.step_id, why)
            done = [completions.not_saved(completion, work.CAUSE_NODE_FAULT, why) for completion in done]
        for completion in done:
            self._outgoing.outbox.reserve(completion.lease_id, 0)
        hand_in = partial(
            self._outgoing.complete_all, [(completion.lease_id, completion.SerializeToString()) for completion in done]
        )
        if not worker.metrics.pushed:
            self._outgoing.metrics_first.hold(worker.metrics, hand_in)
        else:
            hand_in()

    def _say_not_synced(self, step_id: int, why: str) -> None:
        self._repeated.say(step_id, logging.ERROR, "files not on disk", step=step_id, why=why)

    def _hand_in(
        self, step: Step, worker: WorkerProcess, lease: Lease, completion: work.Completion, rows: Path | None
    ) -> None:
        """Hands in a completion, once its files are on disk, and its metrics with the master. `rows`: a file that is
        uploaded first.
        """
        if lease.lease_id in self._claimed:
            self._claimed.remove(lease.lease_id)
            judge = partial(self._hand_in_judged, step, worker, lease, completion)
            self._outgoing.claimed_faults.hold(worker.scratch.parent, judge)
            return
        if step.spec.synced_paths and not completion.cause:
            hand_in = partial(self._hand_in_synced, worker, lease, completion, rows)
            self._outgoing.files_first.hold(step.spec.synced_paths, hand_in)
        else:
            self._hand_in_after_metrics(worker, lease, completion, rows)

    def _hand_in_judged(
        self, step: Step, worker: WorkerProcess, lease: Lease, completion: work.Completion, why: str
    ) -> None:
        """`why`: what the agent has found to be wrong with its disk, in words."""
        # The worker has left its rows there, lest they make room and the disk looks well.
        with suppress(OSError), Folder.open(os.path.realpath(worker.scratch.parent)) as folder:
            folder.remove(f"{worker.scratch.name}/rows-{lease.lease_id}")
        completion = completions.judged(completion, why)
        error_log.note_attempt(step, worker.process_number, lease, completion)
        self._hand_in_after_metrics(worker, lease, completion, None)

    def _hand_in_synced(
        self, worker: WorkerProcess, lease: Lease, completion: work.Completion, rows: Path | None, why: str
    ) -> None:
        if why:
            self._say_not_synced(worker.step_id, why)
            completion, rows = failed_after_run(completion, work.CAUSE_NODE_FAULT, why, rows)
        self._hand_in_after_metrics(worker, lease, completion, rows)

    def _hand_in_after_metrics(
        self, worker: WorkerProcess, lease: Lease, completion: work.Completion, rows: Path | None
    ) -> None:
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


def _made(worker: WorkerProcess, result: Result) -> work.Completion:
    """The completion of a result, without the rows that it has in a file; of one whose rows are damaged, a failure.

    Where the kernel has killed a child of the worker for lack of memory, the failure that the script makes of that is
    told as what it is: it comes before the agent looks at the worker.
    """
    in_file = bool(result.flags & frames.ROWS_IN_FILE)
    completion = completions.from_result(result, worker.process_number, rows=b"" if in_file else None)
    if completion.cause == work.CAUSE_EXCEPTION and (why := death.of_its_child(worker.group, completion.message)):
        completion = completions.short_of_memory(completion, why)
    if not in_file and result.rows and crc32(result.rows) != result.rows_crc32:
        completion = completions.not_saved(completion, work.CAUSE_OUTPUT_FAILED, _DAMAGED)
    return completion


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
            # It may be large: not on this thread.
            asyncio.get_running_loop().run_in_executor(None, discard_tree, kept)
        else:
            kept.unlink()
        raise NotAFile(str(rows))
