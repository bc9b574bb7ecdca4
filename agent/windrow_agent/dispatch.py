"""Joins the ledger and the workers: assignments into channels, results into the outbox, deadlines, deaths.

Everything here runs on the event loop's thread and never waits. The hot path is ``_on_results`` and ``_pump``: one
wake-up of the loop handles all frames that have come, and all that follows from them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from windrow.rpc.v1 import agent_service_pb2 as rpc
from windrow.rpc.v1 import node_pb2 as node_messages
from windrow.rpc.v1 import work_pb2 as work

from windrow_agent import completions
from windrow_agent.code_cache import CodeUnavailable
from windrow_agent.journal import say
from windrow_agent.leases.holding import DEPTH_MAX, shares, worth_telling
from windrow_agent.leases.ledger import Lease, Ledger, Revocation
from windrow_agent.node.resources import UsageMeter
from windrow_agent.pool import NoInterpreter, Pool, SpawnFailed, now_ns
from windrow_agent.session.upward import Upward
from windrow_agent.steps import BadStep, Step, StepState
from windrow_agent.workers import death, frames
from windrow_agent.workers.deadlines import Limits, judge
from windrow_agent.workers.frames import BadFrame, FrameType, Result
from windrow_agent.workers.oom import OomCounter
from windrow_agent.workers.page import BUSY, Phase
from windrow_agent.workers.process import PACKET_RECIPE_MAX, WorkerProcess

TICK_S = 0.05
_TICK_LATE_NS = 2_000_000_000
_CLOSED_PATIENCE_NS = 1_000_000_000
_UNREAD_PATIENCE_NS = 60_000_000_000
_SHORT_S = 0.0002
"""Below this duration a worker that idles for a moment is not worth taking another's leases for; the tick sees to it."""
_STDERR_TAIL = 8 << 10

StageRows = Callable[[Lease, work.Completion, Path], None]
"""Uploads the rows in a file, then hands the completion in."""

Unpack = Callable[[str, Path], Awaitable[None]]
"""Makes a folder a fresh copy of the code of a digest. Raises CodeUnavailable, OSError."""


class Dispatcher:
    """``upward``: what the master is to be told. ``stage``: takes over completions whose rows are large."""

    def __init__(self, pool: Pool, upward: Upward, folder: Path, unpack: Unpack, stage: StageRows) -> None:
        self.ledger = Ledger()
        self.steps: dict[int, Step] = {}
        self.ended_logs: list[Step] = []
        self.draining = False
        self._pool = pool
        self._upward = upward
        self._folder = folder
        self._unpack = unpack
        self._stage = stage
        self._oom = OomCounter()
        self._loop = asyncio.get_running_loop()
        self._staged_folder = folder / "staged"
        self._staged_folder.mkdir(exist_ok=True)
        self._last_tick_ns = now_ns()
        self._stalled_ns = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._ticks = 0
        # Process numbers go on when a step comes back with a later generation.
        self._next_process: dict[int, int] = {}

    # From the master.

    def take(self, response: rpc.WorkResponse) -> None:
        """One message of the Work stream."""
        for spec in response.steps:
            self._take_step(spec)
        fresh: set[int] = set()
        for group in response.assignments:
            self._take_assignments(group)
            fresh.add(group.step_id)
        for acknowledgement in response.acknowledgements:
            self._acknowledged(acknowledgement)
        if response.revoked_lease_ids:
            self._give_up(self.ledger.revoke(response.revoked_lease_ids))
            self._kill_revoked()
        if response.recalled_lease_ids:
            self._give_up(self.ledger.recall(response.recalled_lease_ids))
            self._upward.release(self.ledger.release(response.recalled_lease_ids))
        for step_id in response.ended_step_ids:
            if (step := self.steps.get(step_id)) is not None:
                self._end_step(step)
        for step_id in fresh:
            if (step := self.steps.get(step_id)) is not None:
                self._pump(step)
        if response.revoked_lease_ids or response.recalled_lease_ids or response.ended_step_ids:
            for step in list(self.steps.values()):
                self._pump(step)

    def hello(self, node_id: str, node_incarnation: str) -> rpc.WorkHello:
        """All that is held, for the first message of a stream. All capacities are told anew after it."""
        for step in self.steps.values():
            step.told = None
        return rpc.WorkHello(
            node_id=node_id,
            node_incarnation=node_incarnation,
            held_leases=[
                rpc.HeldLease(
                    lease_id=lease.lease_id,
                    step_id=lease.step_id,
                    mini_batch_index=lease.mini_batch_index,
                    generation=lease.generation,
                )
                for lease in self.ledger
            ],
            step_ids=[step.step_id for step in self.steps.values() if step.state is not StepState.ENDING],
        )

    def tell_capacities(self) -> None:
        """Says how much of each step is wanted, where that has changed enough to matter."""
        blocked = self.draining or self._upward.outbox.full
        for step in self.steps.values():
            if step.state is StepState.ENDING:
                continue
            workers = min(step.target, step.workers_max)
            if blocked or (step.given_up and not step.live):
                wanted = 0
            elif workers:
                wanted = workers * step.pace.depth
            else:
                # Idle and without workers: one lease would wake it. Squeezed out by others: nothing.
                wanted = 1 if now_ns() - step.active_ns > 1_000_000_000 and self._has_room() else 0
            told = step.told
            if told is None or told[1] != workers or worth_telling(told[0], wanted):
                step.told = (wanted, workers)
                self._upward.capacity(step.step_id, wanted, workers)

    def _has_room(self) -> bool:
        """Whether a slot could be freed for a step that wakes: some worker idles, or none is there."""
        return len(self._pool.workers) < self._pool.node.slots or any(
            not self.ledger.of_worker(worker.key) for worker in self._pool.workers.values()
        )

    def worker_statuses(self) -> list[node_messages.WorkerStatus]:
        """For a heartbeat."""
        now = now_ns()
        statuses = []
        for worker in self._pool.workers.values():
            look = worker.look()
            begun = look.phase_start_ns or worker.spawned_ns
            statuses.append(
                node_messages.WorkerStatus(
                    process_number=worker.process_number,
                    step_id=worker.step_id,
                    phase=look.phase or node_messages.WORKER_PHASE_STARTING,  # type: ignore[arg-type]
                    lease_id=look.lease_id if look.phase in BUSY else 0,
                    phase_ms=max(0, now - begun) // 1_000_000,
                    rss_kib=UsageMeter.rss_kib(worker.pid),
                )
            )
        return statuses

    # Steps.

    def _take_step(self, spec: work.StepSpec) -> None:
        old = self.steps.get(spec.step_id)
        if old is not None and old.state is not StepState.ENDING:
            if spec.generation <= old.spec.generation:
                return
            self._end_step(old, at_once=True)
        if self.draining:
            return
        try:
            step = Step.open(spec, self._folder, self._pool.node.node_id, self._pool.node.slots, now_ns())
        except (BadStep, OSError) as error:
            say(logging.ERROR, "step cannot be served", step=spec.step_id, why=str(error))
            self._upward.fail(completions.worker_failure(spec.step_id, work.CAUSE_NODE_FAULT, str(error), "", 0))
            return
        step.next_process = self._next_process.get(step.step_id, 0)
        self.steps[spec.step_id] = step
        self.allot()
        self._spawn(self._prepare(step))

    async def _prepare(self, step: Step) -> None:
        """Fetches the code, then lets the first workers start: nobody waits for an assignment."""
        try:
            await self._unpack(step.spec.code_digest, step.code)
        except (CodeUnavailable, OSError) as error:
            if step.state is StepState.PREPARING:
                step.given_up = True
                text = str(error)
                if isinstance(error, OSError):
                    text = f"The code of step {step.spec.step_name!r} could not be unpacked on this node: {error}"
                say(logging.ERROR, "code unavailable", step=step.step_id, why=text)
                self._upward.fail(completions.worker_failure(step.step_id, work.CAUSE_NODE_FAULT, text, "", 0))
                self._upward.release(self.ledger.release_queued(step.step_id))
                self.tell_capacities()
            return
        if step.state is StepState.PREPARING:
            step.state = StepState.SERVING
            self.allot()

    def _end_step(self, step: Step, *, at_once: bool = False) -> None:
        """``at_once``: what still runs is of no use to anyone (a later generation has begun)."""
        if step.state is StepState.ENDING:
            return
        step.state = StepState.ENDING
        step.target = 0
        self._upward.release(self.ledger.release_queued(step.step_id))
        for worker in list(step.workers.values()):
            self._take_back(worker)
            self._upward.release(self.ledger.release_queued(step.step_id))
            if at_once or not worker.ready or self.ledger.of_worker(worker.key):
                # Nothing that an ended step still runs can count.
                for lease in self.ledger.of_worker(worker.key).values():
                    lease.revoked = True
                self._kill(worker, "the step has ended")
            else:
                worker.ask_to_stop()
        self._settle_ended(step)

    def _settle_ended(self, step: Step) -> None:
        if step.state is StepState.ENDING and not step.workers:
            if self.steps.get(step.step_id) is step:
                del self.steps[step.step_id]
            self.ended_logs.append(step)
            self._spawn(asyncio.to_thread(step.drop_work))
            self.allot()

    # Leases.

    def _take_assignments(self, group: work.StepAssignments) -> None:
        step_id, generation = group.step_id, group.generation
        step = self.steps.get(step_id)
        if (
            step is None
            or step.state is StepState.ENDING
            or generation != step.spec.generation
            or self.draining
            or (step.given_up and not step.live)
        ):
            self._upward.release([a.lease_id for a in group.assignments if self.ledger.get(a.lease_id) is None])
            return
        step.active_ns = now_ns()
        self.ledger.receive(
            Lease(
                a.lease_id,
                step_id,
                generation,
                a.mini_batch_index,
                a.item_first,
                a.item_count,
                a.recipe,
                a.attempt,
                a.exclusive,
            )
            for a in group.assignments
        )
        if not step.live:
            self.allot()

    def _acknowledged(self, acknowledgement: work.Acknowledgement) -> None:
        outbox = self._upward.outbox
        was_full = outbox.full
        self.ledger.acknowledge(acknowledgement.lease_ids)
        outbox.acknowledge(acknowledgement.lease_ids)
        if acknowledgement.verdict != work.VERDICT_ACCEPTED:
            say(
                logging.INFO,
                "completions not counted",
                verdict=work.Verdict.Name(acknowledgement.verdict),
                leases=list(acknowledgement.lease_ids[:20]),
            )
        if was_full and not outbox.full:
            for step in self.steps.values():
                self._pump(step)
            self.tell_capacities()

    def _pump(self, step: Step) -> None:
        """Queued leases into the channels of the step's workers, evenly."""
        ledger = self.ledger
        if ledger.exclusive_waiting is not None:
            self._pump_exclusive()
            return
        queued = ledger.queued(step.step_id)
        if not queued or step.state is not StepState.SERVING or self._upward.outbox.full:
            return
        workers = step.live
        depth = step.pace.depth
        loads = [len(ledger.of_worker(worker.key)) for worker in workers]
        ready = any(worker.ready for worker in workers)
        for index, worker in enumerate(workers):
            # One that still starts gets its first lease ahead; more only goes to workers that are known to work.
            if not worker.ready and (ready or loads[index] >= 1):
                loads[index] = max(loads[index], depth if ready else 1)
        for worker, count in zip(workers, shares(loads, queued, depth), strict=True):
            if count:
                self._give(step, worker, count if worker.ready else 1)

    def _give(self, step: Step, worker: WorkerProcess, count: int) -> None:
        leases = self.ledger.give(step.step_id, worker.key, count)
        for position, lease in enumerate(leases):
            try:
                sent = worker.send(self._packet(step, worker, lease))
            except OSError as error:
                # The recipe could not be written: the node's fault, and the lease's end here.
                self.ledger.withdraw(worker.key, leases[position:])
                self._fail_here(
                    lease, f"The recipe of a mini-batch could not be handed to a worker on this node: {error}"
                )
                return
            if not sent:
                self.ledger.withdraw(worker.key, leases[position:])
                return

    def _fail_here(self, lease: Lease, message: str) -> None:
        if self.ledger.fail(lease.lease_id):
            self._upward.complete(lease.lease_id, completions.failed_here(lease, message).SerializeToString())

    def _packet(self, step: Step, worker: WorkerProcess, lease: Lease) -> bytes:
        recipe = lease.recipe
        if len(recipe) <= PACKET_RECIPE_MAX:
            return frames.run_packet(
                lease.attempt, lease.lease_id, lease.mini_batch_index, lease.item_first, lease.item_count, recipe
            )
        path = _recipe_path(worker, lease.lease_id)
        path.write_bytes(recipe)
        return frames.run_packet_with_file(
            lease.attempt,
            lease.lease_id,
            lease.mini_batch_index,
            lease.item_first,
            lease.item_count,
            str(path).encode(),
        )

    def _pump_exclusive(self) -> None:
        """An exclusive lease runs when nothing else does: what has not started is taken back, the rest is waited for."""
        lease = self.ledger.exclusive_waiting
        if lease is None or self._upward.outbox.full:
            return
        if self.ledger.out:
            if not self.ledger.exclusive_out:
                for worker in list(self._pool.workers.values()):
                    if len(self.ledger.of_worker(worker.key)) > 1 or worker.look().phase not in BUSY:
                        self._take_back(worker)
            if self.ledger.out:
                return
        step = self.steps.get(lease.step_id)
        worker_ = next((w for w in step.live if w.ready), None) if step is not None else None
        if step is None or worker_ is None:
            return
        given = self.ledger.give_exclusive(worker_.key)
        if given is not None and not worker_.send(self._packet(step, worker_, given)):
            self.ledger.withdraw(worker_.key, [given])

    def _take_back(self, worker: WorkerProcess) -> None:
        """Reads everything unread out of a worker's channel; it is queued again (or released, where it was revoked)."""
        unread = [lease_id for packet in worker.read_back() if (lease_id := frames.packet_lease(packet))]
        self._upward.release(self.ledger.take_back(worker.key, unread))
        for lease_id in unread:
            lease = self.ledger.get(lease_id)
            if lease is None or len(lease.recipe) > PACKET_RECIPE_MAX:
                _recipe_path(worker, lease_id).unlink(missing_ok=True)
        if worker.retiring:
            worker.ask_to_stop()

    def _rebalance(self, step: Step) -> None:
        """A worker has nothing and the queue is empty: takes what another has not begun."""
        ledger = self.ledger
        if step.state is not StepState.SERVING or ledger.queued(step.step_id) or ledger.exclusive_waiting is not None:
            return
        live = step.live
        if not any(worker.ready and not ledger.of_worker(worker.key) for worker in live):
            return

        def spare(worker: WorkerProcess) -> int:
            return len(ledger.of_worker(worker.key)) - (1 if worker.ready else 0)

        richest = max(live, key=spare)
        if spare(richest) > 0:
            self._take_back(richest)
            self._pump(step)

    def _give_up(self, revocation: Revocation) -> None:
        self._upward.release(revocation.released)
        for key in revocation.take_back:
            worker = self._pool.workers.get(key)
            if worker is not None:
                self._take_back(worker)

    def _kill_revoked(self) -> None:
        """Ends workers that work on a revoked lease."""
        for worker in list(self._pool.workers.values()):
            given = self.ledger.of_worker(worker.key)
            if any(lease.revoked for lease in given.values()):
                look = worker.look()
                lease = given.get(look.lease_id)
                if lease is not None and lease.revoked and look.phase in BUSY:
                    self._kill(worker, "the master has taken the lease back")

    # Workers.

    def allot(self) -> None:
        """Gives every step its number of workers: starts what is missing, sends away what is too many."""
        self._pool.allot(self.steps, self.ledger.held, now_ns())
        for step in self.steps.values():
            excess = len(step.live) - step.target
            if excess > 0 and step.state is StepState.SERVING:
                by_load = sorted(step.live, key=lambda worker: (len(self.ledger.of_worker(worker.key)), -worker.key))
                for worker in by_load[:excess]:
                    self._take_back(worker)
                    worker.ask_to_stop()
        for step in sorted(self.steps.values(), key=lambda step: -step.spec.priority):
            if step.state is StepState.SERVING and not step.given_up:
                while len(step.live) < step.target and self._pool.room(self.steps) > 0 and not step.given_up:
                    if not self._start(step):
                        break
        self.tell_capacities()

    def _start(self, step: Step) -> bool:
        number = step.next_process
        self._next_process[step.step_id] = number + 1
        try:
            worker = self._pool.start(step)
        except (SpawnFailed, NoInterpreter) as error:
            self._not_ready(step, work.CAUSE_NODE_FAULT, str(error), "", number)
            return False
        self._loop.add_reader(worker.channels.result.fileno(), self._on_results, step, worker)
        self._loop.add_reader(worker.pidfd, self._on_death, step, worker)
        self._pump(step)
        return True

    def _not_ready(
        self, step: Step, cause: work.Cause.ValueType, message: str, detail: str, process_number: int
    ) -> None:
        """A worker that could not be made ready: counted, told, and too many of them are the end of trying."""
        step.failures += 1
        if step.failures >= step.failures_max and not step.given_up:
            step.given_up = True
            message += (
                f". This node starts no more workers for this step: {step.failures} in a row could not be made ready"
            )
        say(logging.WARNING, "worker not ready", step=step.step_id, process=process_number, why=message)
        self._upward.fail(completions.worker_failure(step.step_id, cause, message, detail, process_number))
        if detail:
            step.log_file(rpc.LOG_KIND_ERROR, process_number).write(f"{message}\n{detail}\n".encode())
        if step.given_up and not step.live:
            self._upward.release(self.ledger.release_queued(step.step_id))

    def _on_results(self, step: Step, worker: WorkerProcess) -> None:
        try:
            results = worker.read_results()
        except BadFrame as error:
            self._spoilt(worker, error)
            return
        if not worker.result_open:
            self._loop.remove_reader(worker.channels.result.fileno())
        if results:
            self._take_results(step, worker, results)
            self._pump(step)
            if not self.ledger.of_worker(worker.key) and (step.pace.duration_s or 1.0) >= _SHORT_S:
                self._rebalance(step)

    def _take_results(self, step: Step, worker: WorkerProcess, results: list[Result]) -> None:
        finish = self.ledger.finish
        keep = self._upward.outbox.add
        key, number = worker.key, worker.process_number
        elapsed_us = 0
        finished = 0
        for result in results:
            kind = result.type
            if kind in (FrameType.DONE, FrameType.FAILED):
                lease = finish(key, result.lease_id)
                if lease is None:
                    say(
                        logging.WARNING,
                        "result for a lease the worker does not have",
                        process=number,
                        lease=result.lease_id,
                    )
                    continue
                finished += 1
                elapsed_us += result.elapsed_us
                if result.flags & frames.ROWS_IN_FILE:
                    self._stage_result(step, worker, lease, result)
                    continue
                completion = completions.from_result(result, number)
                if completion.detail:
                    self._note_error(step, number, lease, completion)
                keep(result.lease_id, completion.SerializeToString())
            elif kind == FrameType.READY:
                worker.ready = True
                self._pump(step)
            elif kind == FrameType.INIT_FAILED:
                cause, message, detail = completions.failure_of(completions.side_of(result))
                worker.killed_for = "init() failed"
                self._not_ready(step, cause, message, detail, number)
                worker.kill()
            elif kind == FrameType.STOPPED:
                worker.stopped = True
        if finished:
            self._upward.wake()
            step.failures = 0
            step.active_ns = now_ns()
            depth = step.pace.depth
            step.pace.observe(elapsed_us / 1e6, finished)
            if step.pace.depth != depth:
                self.tell_capacities()

    def _stage_result(self, step: Step, worker: WorkerProcess, lease: Lease, result: Result) -> None:
        """Large rows: their file is kept apart from the worker's life, and uploaded before the completion names it."""
        completion = completions.from_result(result, worker.process_number, rows=b"")
        kept = self._staged_folder / f"{lease.lease_id:016x}"
        try:
            Path(result.rows.decode("utf-8", "surrogateescape")).rename(kept)
        except OSError as error:
            failed = completions.failed_here(lease, f"The rows of a mini-batch were lost on this node: {error}")
            self._upward.complete(lease.lease_id, failed.SerializeToString())
            return
        self._upward.outbox.reserve(lease.lease_id, result.rows_length)
        self._stage(lease, completion, kept)

    def _note_error(self, step: Step, number: int, lease: Lease, completion: work.Completion) -> None:
        """logs/user/error/<node>/processNNN.txt (reference 7.1)."""
        step.log_file(rpc.LOG_KIND_ERROR, number).write(
            f"mini-batch {lease.mini_batch_index}, try {lease.attempt}: {completion.message}\n{completion.detail}\n".encode()
        )

    def _spoilt(self, worker: WorkerProcess, error: BadFrame) -> None:
        self._loop.remove_reader(worker.channels.result.fileno())
        self._kill(
            worker,
            f"Something other than results came through the worker's own channel ({error}); a script must not write there",
        )

    def _kill(self, worker: WorkerProcess, why: str) -> None:
        worker.killed_for = worker.killed_for or why
        worker.kill()

    def _on_death(self, step: Step, worker: WorkerProcess) -> None:
        """The worker process has ended: what it had done counts, what it had begun is charged, the rest is queued again."""
        self._loop.remove_reader(worker.pidfd)
        self._loop.remove_reader(worker.channels.result.fileno())
        # Children that hold its channels must not speak for it.
        worker.kill()
        try:
            self._take_results(step, worker, worker.drain_results())
        except BadFrame as error:
            worker.killed_for = (
                worker.killed_for or f"Something other than results came through the worker's own channel ({error})"
            )
        init_failed = worker.killed_for == "init() failed"
        self._take_back(worker)
        look = worker.look()
        begun = look.lease_id if look.phase in BUSY else 0
        in_hand = self.ledger.of_worker(worker.key)
        if worker.overrun is not None and begun not in in_hand:
            # It had finished when the deadline struck.
            worker.overrun = None
        exit_ = self._pool.bury(step, worker)
        loss = self.ledger.lose(worker.key, begun)
        self._upward.release(loss.released)
        oom = exit_.signal == 9 and worker.overrun is None and worker.killed_for is None and self._oom.rose()
        if loss.charged is not None:
            found = death.explain(exit_, look.phase, overrun=worker.overrun, oom=oom, killed_for=worker.killed_for)
            detail = _stderr_tail(worker)
            completion = completions.of_dead_worker(
                loss.charged,
                found.cause,
                found.message,
                detail,
                look,
                worker.process_number,
                in_run=look.phase is Phase.RUNNING,
            )
            step.failures = 0
            self._note_error(step, worker.process_number, loss.charged, completion)
            self._upward.complete(loss.charged.lease_id, completion.SerializeToString())
        elif not init_failed and not worker.retiring and step.state is not StepState.ENDING and not loss.released:
            found = death.explain(exit_, look.phase, overrun=worker.overrun, oom=oom, killed_for=worker.killed_for)
            script = look.phase >= Phase.INIT and found.cause != work.CAUSE_NODE_FAULT
            cause = work.CAUSE_INIT_FAILED if script else work.CAUSE_NODE_FAULT
            if look.completed == 0 or not worker.ready:
                self._not_ready(step, cause, found.message, _stderr_tail(worker), worker.process_number)
        say(
            logging.INFO,
            "worker ended",
            step=step.step_id,
            process=worker.process_number,
            exit=exit_,
            charged=loss.charged.lease_id if loss.charged else None,
            requeued=len(loss.requeued),
        )
        self._settle_ended(step)
        self.allot()
        for each in self.steps.values():
            self._pump(each)

    def tick(self) -> None:
        """Looks after everything that no event announces: deadlines, revoked work, idle workers, log sizes."""
        now = now_ns()
        late = now - self._last_tick_ns - int(TICK_S * 1e9)
        if late > _TICK_LATE_NS:
            # The machine (or this process) stood still: what ran then must not pay for it.
            self._stalled_ns += late
        self._last_tick_ns = now
        self._ticks += 1
        for worker in list(self._pool.workers.values()):
            self._watch(worker, now)
        if self.ledger.exclusive_waiting is not None:
            self._pump_exclusive()
        else:
            for step in self.steps.values():
                self._pump(step)
                self._rebalance(step)
        if self._ticks % 4 == 0:
            for step in self.steps.values():
                for log in step.logs:
                    log.file.bound()
            self.allot()
            self._pool.reap_adopted()

    def _watch(self, worker: WorkerProcess, now: int) -> None:
        look = worker.look()
        if look != worker.last_look:
            worker.last_look = look
            worker.stall_mark_ns = self._stalled_ns
            worker.idle_since_ns = now
        if worker.killed_for is not None or worker.overrun is not None:
            worker.kill()
            return
        limits = self._limits_of(worker)
        if limits is None:
            return
        overrun = judge(
            look,
            limits,
            now_ns=now,
            spawned_ns=worker.spawned_ns,
            stalled_ns=self._stalled_ns - worker.stall_mark_ns,
        )
        given = self.ledger.of_worker(worker.key)
        if overrun is not None:
            say(logging.WARNING, "deadline passed", process=worker.process_number, why=overrun.text)
            worker.overrun = overrun
            worker.kill()
        elif not worker.result_open and now - worker.result_closed_ns > _CLOSED_PATIENCE_NS:
            self._kill(
                worker,
                "The script has closed or replaced file descriptors that are not its own; results could not be sent. "
                "Close only what the script has opened itself",
            )
        elif look.phase is Phase.IDLE and given and now - worker.idle_since_ns > _UNREAD_PATIENCE_NS:
            self._kill(worker, "The worker process does not take the mini-batches that wait for it")
        elif look.phase in BUSY and (lease := given.get(look.lease_id)) is not None and lease.revoked:
            self._kill(worker, "the master has taken the lease back")

    def _limits_of(self, worker: WorkerProcess) -> Limits | None:
        step = self.steps.get(worker.step_id)
        return step.limits if step is not None else None

    # The end.

    def drain(self) -> None:
        """Takes nothing new; what has not started is handed back."""
        if self.draining:
            return
        self.draining = True
        self._upward.drain()
        for worker in list(self._pool.workers.values()):
            self._take_back(worker)
        self._upward.release(self.ledger.release_queued())
        for worker in list(self._pool.workers.values()):
            worker.ask_to_stop()
        self.tell_capacities()

    def abandon(self) -> None:
        """Ends what runs and gives it back, charged to nobody: the grace period is over, or the leases are."""
        self._upward.release(self.ledger.release_queued())
        for worker in list(self._pool.workers.values()):
            self._take_back(worker)
            for lease in self.ledger.of_worker(worker.key).values():
                lease.revoked = True
            if self.ledger.of_worker(worker.key) or self.draining:
                self._kill(worker, "the node gives its work back")
        self._upward.release(self.ledger.release_queued())

    def kill_all(self) -> None:
        """The agent ends now: no worker may outlive it."""
        for worker in list(self._pool.workers.values()):
            self._loop.remove_reader(worker.pidfd)
            self._loop.remove_reader(worker.channels.result.fileno())
            worker.kill()
        for worker in list(self._pool.workers.values()):
            step = self.steps.get(worker.step_id)
            if step is not None:
                self._pool.bury(step, worker)

    @property
    def workers_alive(self) -> int:
        """Worker processes that have not ended yet."""
        return len(self._pool.workers)

    def _spawn(self, work_: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work_)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            say(logging.ERROR, "a task of the agent failed", why=repr(error))


def _recipe_path(worker: WorkerProcess, lease_id: int) -> Path:
    return worker.scratch / f"recipe-{lease_id:016x}"


def _stderr_tail(worker: WorkerProcess) -> str:
    tail = worker.stderr.tail(_STDERR_TAIL).decode("utf-8", "replace").strip()
    return f"The end of its stderr:\n{tail}" if tail else ""


__all__ = ["DEPTH_MAX", "TICK_S", "Dispatcher"]
