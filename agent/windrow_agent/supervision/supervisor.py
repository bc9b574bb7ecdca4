"""Supervises worker processes: reads their results, checks their deadlines, explains their deaths.

The hot path is `_on_results`: one wake-up of the event loop takes all frames that a worker has sent, and does
everything that follows from them, without a timer or a task. If the worker has enough work ahead, the supervisor then
stops listening to it for a moment, so that its next results arrive together.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from windrow.common.interpreter import NoInterpreter
from windrow.common.journal import Repeated, say
from windrow.common.removal import discard_tree
from windrow.rpc.v1 import work_pb2 as work

from windrow_agent.leases.lease import Lease
from windrow_agent.leases.pace import RESULTS_GATHER_S, may_gather
from windrow_agent.link import Link
from windrow_agent.node.oom import OomCounter
from windrow_agent.outgoing import completions
from windrow_agent.outgoing.queue import OutgoingQueue
from windrow_agent.results.output_saves import OutputSaver
from windrow_agent.results.receiver import INIT_FAILED, ResultReceiver
from windrow_agent.results.row_uploads import RowUploads
from windrow_agent.steps import error_log
from windrow_agent.steps.code_cache import sums_of
from windrow_agent.steps.step import Step, StepState
from windrow_agent.supervision.distributor import LeaseDistributor
from windrow_agent.supervision.workforce import Workforce
from windrow_agent.workers import death, stack_dump
from windrow_agent.workers.deadlines import judge
from windrow_agent.workers.frames import BadFrame
from windrow_agent.workers.page import BUSY, NOTHING, Look, Phase
from windrow_agent.workers.process import SpawnFailed, WorkerProcess

if TYPE_CHECKING:
    from windrow_agent.results.script_requests import ScriptRequests

_CLOSED_PATIENCE_NS = 1_000_000_000
_UNREAD_PATIENCE_NS = 60_000_000_000
_MISSING_PATIENCE_NS = 3_000_000_000
_WHERE_PATIENCE_NS = 200_000_000
"""How long a worker that will be killed has to write its stack."""
_SHORT_S = 0.0002
"""With mini-batches shorter than this, a worker that idles is not worth rebalancing for; the next tick does it."""
_LOOK_FROM_S = 0.02
"""With shorter mini-batches, it would cost too much to look after each one whether the worker can start processes."""
_STDERR_TAIL = 8 << 10
_CLOSED = (
    "The script has closed or replaced file descriptors that are not its own; results could not be sent. "
    "Close only what the script has opened itself"
)

_MISSING = (
    "A result of the worker process was lost: something else was written into the worker's own channel, or its code "
    "was changed; a script must not touch either"
)

_PAGE_SPOILT = (
    "The page by which the worker process shows what it does was cut or overwritten; a script must not write to files "
    "that are not its own"
)


_TOGETHER_S = 1.0
"""Signals to all processes of a batch job arrive within this time."""


class Supervisor:
    """`on_change` is called when a worker has ended or its step's pace has changed: shares may change. `renew_code` is
    called when a worker has found its step's code changed on the disk.

    Not the embedded mode's `Supervisor`, which keeps master and agent alive.
    """

    def __init__(
        self,
        distributor: LeaseDistributor,
        workforce: Workforce,
        outgoing: OutgoingQueue,
        staged: Path,
        uploads: RowUploads,
        link: Callable[[], asyncio.Future[Link]],
        saver: OutputSaver,
        on_change: Callable[[Step], None],
        renew_code: Callable[[Step], None],
    ) -> None:
        self._distributor = distributor
        self._ledger = distributor.ledger
        self._workforce = workforce
        self._outgoing = outgoing
        self._results = ResultReceiver(
            self._ledger, outgoing, staged, uploads, saver, distributor.pump, self._not_ready, on_change
        )
        self._on_change = on_change
        self._renew_code = renew_code
        self._link = link
        self._oom = OomCounter()
        self._repeated = Repeated()
        self._loop = asyncio.get_running_loop()
        self._gathering: list[tuple[Step, WorkerProcess]] = []
        """Workers that are not being listened to for a moment."""

    # Start.

    def start(self, step: Step) -> bool:
        """Starts the step's next worker. Returns False, and reports why to the master, if it could not be started."""
        number = step.lineage.next_process
        try:
            worker = self._workforce.start(step)
        except (SpawnFailed, NoInterpreter) as error:
            self._not_ready(step, work.CAUSE_NODE_FAULT, str(error), "", number)
            return False
        self._listen(step, worker)
        self._loop.add_reader(worker.pidfd, self._on_death, step, worker)
        self._loop.add_reader(worker.requests.listening.fileno(), self._on_request, step, worker)
        self._distributor.pump(step)
        return True

    @cached_property
    def requests(self) -> ScriptRequests:
        """What scripts ask for; most ask for nothing."""
        from windrow_agent.results.script_requests import ScriptRequests

        return ScriptRequests(self._link, self._workforce.may_show_model, self._workforce.kept_models.changed)

    def _on_request(self, step: Step, worker: WorkerProcess) -> None:
        self.requests.accept(step.step_id, worker.requests.listening, worker.pid, step.user)

    def _not_ready(
        self,
        step: Step,
        cause: work.Cause.ValueType,
        message: str,
        detail: str,
        process_number: int,
        *,
        hopeless: bool = False,
    ) -> None:
        """Counts and reports a worker that could not be made ready; after too many, no more are started.

        `hopeless`: this one is enough.
        """
        step.failures += 1
        gives_up = (hopeless or step.failures >= step.failures_max) and not step.given_up
        if gives_up:
            from windrow.common.failure_kinds import NO_MORE_STARTS

            message += NO_MORE_STARTS + ("" if hopeless else f": {step.failures} in a row could not be made ready")
        say(logging.WARNING, "worker not ready", step=step.step_id, process=process_number, why=message)
        failure = completions.worker_failure(step.step_id, cause, message, detail, process_number)
        if gives_up:
            step.given_up_for = failure
        self._outgoing.fail(failure)
        error_log.note_worker(step, process_number, error_log.cause_name(cause), message, detail)
        if step.given_up and not step.live:
            self._distributor.release_queued(step.step_id)

    # Results.

    def _listen(self, step: Step, worker: WorkerProcess) -> None:
        self._loop.add_reader(worker.channels.result.fileno(), self._on_results, step, worker)

    def _on_results(self, step: Step, worker: WorkerProcess) -> None:
        try:
            results = worker.read_results()
        except BadFrame as error:
            self._loop.remove_reader(worker.channels.result.fileno())
            self._results.take(step, worker, error.before)
            worker.spoilt = True
            self.kill(worker, _spoilt(error))
            return
        if not worker.result_open:
            self._loop.remove_reader(worker.channels.result.fileno())
        if results:
            self._results.take(step, worker, results)
            if (
                worker.group is not None
                and results[-1].lease_id
                and (step.pace.duration_s or 1.0) >= _LOOK_FROM_S
                and worker.killed_for is None
                and worker.group.was_full()
            ):
                # It could not run the next one, which is not to blame.
                self._kill_full(worker, results[-1].lease_id)
                return
            self._distributor.pump(step)
            held = len(self._ledger.of_worker(worker.key))
            if not held and (step.pace.duration_s or 1.0) >= _SHORT_S:
                self._distributor.rebalance(step)
            elif worker.result_open and may_gather(step.pace.duration_s, held - 1, worker.read_bytes / len(results)):
                self._let_gather(step, worker)

    def _let_gather(self, step: Step, worker: WorkerProcess) -> None:
        self._loop.remove_reader(worker.channels.result.fileno())
        if not self._gathering:
            self._loop.call_later(RESULTS_GATHER_S, self._take_gathered)
        self._gathering.append((step, worker))

    def _take_gathered(self) -> None:
        gathering, self._gathering = self._gathering, []
        for step, worker in gathering:
            if worker.key in self._workforce.workers and worker.result_open:
                self._listen(step, worker)
                self._on_results(step, worker)

    # Deadlines.

    def watch(self, worker: WorkerProcess, step: Step, now: int, stalled_ns: int) -> None:
        """Kills a worker that has passed a deadline, works on a revoked lease, or cannot continue.

        `stalled_ns`: how long this machine has stalled since the agent started.
        """
        self._oom.look(now)
        if worker.killed_for is not None or worker.overrun is not None:
            if worker.killed_for is not None or now - worker.overrun_ns > _WHERE_PATIENCE_NS:
                worker.kill()
            return
        look = worker.look()
        if worker.stall_mark_ns < 0:
            worker.stall_mark_ns = stalled_ns
            worker.idle_since_ns = now
        if look != worker.last_look:
            if look.phase > Phase.INIT:
                # Start and init() share one deadline, and stalls in either count against neither.
                worker.stall_mark_ns = stalled_ns
            worker.last_look = look
            worker.idle_since_ns = now
        if look.spoilt:
            self.kill(worker, _PAGE_SPOILT)
            return
        overrun = judge(
            look,
            step.limits,
            now_ns=now,
            spawned_ns=worker.spawned_ns,
            stalled_ns=stalled_ns - worker.stall_mark_ns,
        )
        given = self._ledger.of_worker(worker.key)
        if overrun is not None:
            self._repeated.say(
                step.step_id, logging.WARNING, "deadline passed", process=worker.process_number, why=overrun.text()
            )
            worker.overrun = overrun
            worker.overrun_ns = now
            worker.killed_over = look.lease_id if look.phase in BUSY else 0
            worker.ask_where()
        elif not worker.result_open and now - worker.result_closed_ns > _CLOSED_PATIENCE_NS:
            self.kill(worker, _CLOSED)
        elif (
            look.phase is Phase.IDLE and (given or worker.retiring) and now - worker.idle_since_ns > _UNREAD_PATIENCE_NS
        ):
            self.kill(worker, "The worker process does not read the mini-batches that wait in its channel")
        elif worker.group is not None and worker.group.lacked_memory():
            # A child of it, else it would be dead itself. The script might wait for that child without end.
            worker.killed_over = look.lease_id if look.phase in BUSY else 0
            worker.kill()
        elif worker.group is not None and worker.group.was_full():
            self._kill_full(worker, look.lease_id if look.phase in BUSY else 0)
        elif given and self._results_missing(step, worker, look, now):
            worker.spoilt = True
            self.kill(worker, _MISSING)
        else:
            self.kill_revoked(worker, look)

    def _results_missing(self, step: Step, worker: WorkerProcess, look: Look, now: int) -> bool:
        """Whether the page says that a result was sent which has not arrived after a while."""
        if look.completed <= worker.received:
            worker.missing_since_ns = 0
            return False
        if not worker.missing_since_ns:
            worker.missing_since_ns = now
        if now - worker.missing_since_ns <= _MISSING_PATIENCE_NS or not worker.result_open:
            return False
        # This process itself may have stalled: read what is in the channel now.
        received = worker.received
        self._on_results(step, worker)
        if worker.received != received:
            worker.missing_since_ns = 0
        return worker.received == received and worker.killed_for is None

    def _kill_full(self, worker: WorkerProcess, lease_id: int) -> None:
        """Kills a worker whose processes have reached their number. `lease_id`: over which it did; 0 for none."""
        assert worker.group is not None
        worker.killed_over = lease_id
        self.kill(
            worker,
            f"The script has started more processes and threads than a worker may have on this node, "
            f"{worker.group.limits.processes:,}, and was ended with all of them. If it needs so many, let workers of "
            "this node have more (windrow agent --worker-processes)",
        )

    def kill_beyond_share(self, worker: WorkerProcess, why: str) -> None:
        """Kills a worker that uses the memory of others on a GPU."""
        if worker.killed_for is None and worker.overrun is None:
            look = worker.look()
            worker.killed_over = look.lease_id if look.phase in BUSY else 0
            worker.lacked_gpu_memory = True
            self.kill(worker, why)

    def kill_revoked(self, worker: WorkerProcess, look: Look) -> None:
        """Kills a worker that works on a revoked lease."""
        lease = self._ledger.of_worker(worker.key).get(look.lease_id)
        if lease is not None and lease.revoked and look.phase in BUSY:
            worker.killed_over = lease.lease_id
            self.kill(worker, "the master has taken the lease back")

    def kill(self, worker: WorkerProcess, why: str) -> None:
        """Kills a worker and its process group. The user reads `why` if that costs a mini-batch a try."""
        worker.killed_for = worker.killed_for or why
        worker.kill()

    def kill_and_release(self, worker: WorkerProcess, why: str) -> None:
        """Kills a worker and releases its leases uncharged; its end does not count as a failure."""
        worker.retiring = True
        for lease in self._ledger.of_worker(worker.key).values():
            lease.revoked = True
        self.kill(worker, why)

    # Deaths.

    def _on_death(self, step: Step, worker: WorkerProcess) -> None:
        """A worker has died."""
        self.forget(worker)
        if worker.died_of() == signal.SIGTERM and not self._outgoing.draining:
            # Batch schedulers that end a job send SIGTERM to all of its processes, this one as well, in any order.
            self._loop.call_later(_TOGETHER_S, self._bury, step, worker)
        else:
            self._bury(step, worker)

    def _bury(self, step: Step, worker: WorkerProcess) -> None:
        """What a dead worker had finished counts, what it had started is charged, the rest is queued again."""
        if worker.died_of() == signal.SIGTERM and self._outgoing.draining:
            # Whoever makes the agent leave has ended the worker too: its script is not to blame.
            self.kill_and_release(worker, "the node is leaving")
        # Children that hold its channels must not send results in its name.
        worker.kill()
        try:
            # After bytes that were no frame, nothing is trusted.
            self._results.take(step, worker, [] if worker.spoilt else worker.drain_results())
        except BadFrame as error:
            self._results.take(step, worker, error.before)
            worker.spoilt = True
            worker.killed_for = worker.killed_for or _spoilt(error)
        self._distributor.take_back(worker)
        look = worker.look()
        begun = look.lease_id if look.phase in BUSY else 0
        if look.completed > worker.received and not worker.spoilt:
            worker.spoilt = True
            worker.killed_for = worker.killed_for or _MISSING
        if look.spoilt and not worker.spoilt:
            worker.spoilt = True
            worker.killed_for = worker.killed_for or _PAGE_SPOILT
        if worker.spoilt:
            # Results arrive in order, so the first missing one belongs to the mini-batch that spoilt them.
            begun = next(iter(self._ledger.of_worker(worker.key)), 0)
        if worker.killed_over and begun != worker.killed_over:
            # The mini-batch that it was killed for had just finished; the one begun since is not to blame.
            begun = 0
        if worker.overrun is not None and look.phase in BUSY and begun not in self._ledger.of_worker(worker.key):
            # It had finished when the deadline passed.
            worker.overrun = None
        lacked_memory = worker.group is not None and worker.group.lacked_memory()
        memory_max = None
        if worker.group is not None and worker.group.reached_own_memory_limit():
            memory_max = worker.group.limits.memory
        exit_ = self._workforce.bury(step, worker)
        # What it was writing may be large: not on this thread.
        self._loop.run_in_executor(None, discard_tree, worker.scratch)
        if worker.temporary is not None:
            self._loop.run_in_executor(None, discard_tree, worker.temporary)
        may_have_changed = worker.checks_code and not (worker.overrun or worker.killed_for)
        changed = death.changed_code(exit_, sums_of(worker.code)) if may_have_changed else ""
        # Scripts can write to the code, so this says nothing about the node. Nor is the mini-batch to blame: it runs
        # again. After the second copy, no worker compares anything, so this comes to an end.
        loss = self._ledger.lose(worker.key, 0 if changed else begun)
        spent = completions.of_killed_worker(begun, look, worker.process_number) if begun in loss.released else None
        self._outgoing.release(loss.released, spent)
        oom = exit_.signal == 9 and worker.overrun is None and worker.killed_for is None
        oom = oom and (lacked_memory if worker.group is not None else self._oom.rose())
        stderr = worker.stderr.tail(_STDERR_TAIL).decode("utf-8", "replace").strip()
        found = (
            death.of_changed_code(changed, again=step.code_copies > 1 and worker.code == step.code)
            if changed
            else death.explain(
                exit_,
                look.phase,
                overrun=worker.overrun,
                oom=oom,
                memory_max=memory_max,
                killed_for=worker.killed_for,
                lacked_gpu_memory=worker.lacked_gpu_memory,
                place=stack_dump.place(stderr, worker.code),
            )
        )
        detail = f"The end of its stderr:\n{stack_dump.for_users(stderr, worker.code)}" if stderr else ""
        if loss.charged is not None:
            self._charge(step, worker, loss.charged, found, look, detail)
        elif not (worker.retiring or loss.released or worker.killed_for == INIT_FAILED) and (
            # One that has worked before and died between two mini-batches is replaced without a report.
            step.state is not StepState.ENDING
            and (changed or max(look.completed, worker.received) == 0 or not worker.ready)
        ):
            if changed:
                step.failures = 0
            # If all workers are stuck in init(), more tries would not help.
            stuck = worker.overrun is not None and not any(other.ready for other in step.live)
            script = (look.phase >= Phase.INIT or look.spoilt) and found.cause != work.CAUSE_NODE_FAULT
            cause = work.CAUSE_INIT_FAILED if script else work.CAUSE_NODE_FAULT
            self._not_ready(step, cause, found.message, detail, worker.process_number, hopeless=stuck)
        if changed and worker.code == step.code:
            self._renew_code(step)
        if look.phase is Phase.STOPPING and not worker.stopped and worker.killed_for is None:
            step.note_shutdown_failure(worker.process_number, found.message)
        if worker.outputs is not None:
            self._results.saving.worker_gone(step, worker, worker.outputs)
        how = f"signal {exit_.signal}" if exit_.signal else f"exit code {exit_.code}"
        why = found.message if worker.overrun else worker.killed_for
        worker.log.end(f"{how} ({why})" if why else how)
        # Not earlier: the lines just written about its end belong to its logs.
        step.end_logs(worker.process_number)
        if step.given_up and not step.live:
            # The leases of the last worker have just come back, and no worker on this node will run them.
            self._distributor.release_queued(step.step_id)
        say(
            logging.INFO,
            "worker ended",
            step=step.step_id,
            process=worker.process_number,
            exit_code=exit_.code,
            signal=exit_.signal,
            killed_for=why,
            charged=loss.charged.lease_id if loss.charged else None,
            requeued=len(loss.requeued),
        )
        self._on_change(step)
        self._distributor.pump_all()

    def _charge(
        self, step: Step, worker: WorkerProcess, lease: Lease, found: death.Death, look: Look, detail: str
    ) -> None:
        """Makes the completion of the mini-batch over which a worker died."""
        if look.lease_id != lease.lease_id:
            look = NOTHING  # the page names a later one
        completion = completions.of_dead_worker(
            lease,
            found.cause,
            found.message,
            detail,
            look,
            worker.process_number,
            in_run=look.phase is Phase.RUNNING,
        )
        worker.tell_start(completion)
        completions.tell_cache_use(lease, completion)
        step.failures = 0
        error_log.note_attempt(step, worker.process_number, lease, completion)
        worker.log.add_death(lease, completion, error_log.cause_name(completion.cause))
        self._outgoing.complete(lease.lease_id, completion.SerializeToString())

    def close(self) -> None:
        """Answers no script any more, as the agent ends."""
        if "requests" in self.__dict__:
            self.requests.cancel()

    def forget(self, worker: WorkerProcess) -> None:
        """Stops listening to a worker."""
        self._loop.remove_reader(worker.pidfd)
        self._loop.remove_reader(worker.channels.result.fileno())
        self._loop.remove_reader(worker.requests.listening.fileno())


def _spoilt(error: BadFrame) -> str:
    return (
        f"Something other than results came through the worker's own channel ({error}); "
        "a script must not write to file descriptors that it did not open"
    )
