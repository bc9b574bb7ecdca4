"""Carries out what the master says, looks after everything at each tick, and ends it all.

Everything runs on the event loop's thread and never blocks.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterable
from itertools import zip_longest
from pathlib import Path
from time import monotonic_ns
from typing import TYPE_CHECKING

from windrow.common.interpreter import NoInterpreter
from windrow.common.journal import Repeated, say
from windrow.rpc.v1 import agent_service_pb2 as rpc
from windrow.rpc.v1 import work_pb2 as work

from windrow_agent.control.ended_steps import EndedSteps
from windrow_agent.control.status import NodeStatus
from windrow_agent.control.step_environments import StepEnvironments
from windrow_agent.fetching.fetcher import Fetcher, NotFetched
from windrow_agent.leases.lease import Lease, LeaseState
from windrow_agent.leases.ledger import Ledger
from windrow_agent.link import Link
from windrow_agent.node.resources import shortage_of_shared_memory
from windrow_agent.outgoing import completions
from windrow_agent.outgoing.queue import OutgoingQueue
from windrow_agent.results.output_saves import OutputSaver
from windrow_agent.results.row_uploads import RowUploads
from windrow_agent.steps import error_log
from windrow_agent.steps.code_cache import CodeSums, CodeUnavailable
from windrow_agent.steps.lineages import Lineages
from windrow_agent.steps.step import BadStep, Step, StepState
from windrow_agent.supervision.distributor import LeaseDistributor
from windrow_agent.supervision.supervisor import Supervisor
from windrow_agent.supervision.workforce import Shares, Workforce
from windrow_agent.workers.deadlines import due_ns as worker_due_ns
from windrow_agent.workers.process import WorkerProcess

if TYPE_CHECKING:
    from windrow_agent.environments.provider import Environments
    from windrow_agent.fetching.data_cache import CacheCounts, CacheSettings
    from windrow_agent.node.gpu_watch import GpuWatch

URGENT_S, BUSY_S, QUIET_S = 0.05, 0.5, 1.0
"""Seconds between ticks: while something has to be retried; while leases are held; otherwise."""
_TICK_LATE_NS = 2_000_000_000
_JUST_AFTER_NS = 1_000_000
_SLOW_NS = 150_000_000
_SLOWER_NS = 1_000_000_000
_LOG_NS = 2_000_000_000
_SHORT_RUN_S = 0.005
"""With mini-batches this short, workers run out of work between two ticks."""
_MANY_STEPS = 50
_REST_S = 0.0001
"""With many steps, each adds this much to the pause before all are gone through: some ten times what that costs."""
_INPUT = "AZURE_ML_INPUT_"
"""How the variables begin that say where the inputs of a step are."""
_ANY_GENERATION = 0
_LAST_LOOKS = 3
"""Looks for orphans at the end: the kernel's list of children may miss one while others die."""

Unpack = Callable[[str, Path], Awaitable[CodeSums]]
"""Makes the folder a fresh copy of the code with this digest. Raises CodeUnavailable, OSError."""


class Controller:
    """`outgoing`: what waits for the master. `uploads`: takes over completions whose rows are large. `link` waits for a
    connection over which the node is admitted.
    """

    def __init__(
        self,
        workforce: Workforce,
        outgoing: OutgoingQueue,
        folder: Path,
        unpack: Unpack,
        uploads: RowUploads,
        link: Callable[[], asyncio.Future[Link]],
        fetched_bytes_max: int,
        make_environments: Callable[[], Environments] | None = None,
        cache: CacheSettings | None = None,
    ) -> None:
        """`make_environments`: called when a step asks for one. If None, all scripts run in the node's own Python.
        `cache`: of data that was fetched; None: there is none.
        """
        self.ledger = Ledger()
        self.steps: dict[int, Step] = {}
        self.ended_steps = EndedSteps(outgoing, self._run_aside, workforce.leave_outputs)
        self._workforce = workforce
        self._outgoing = outgoing
        self._folder = folder
        self._unpack = unpack
        self._distributor = LeaseDistributor(self.ledger, self.steps, workforce, outgoing)
        self._saver = OutputSaver()
        self._supervisor = Supervisor(
            self._distributor,
            workforce,
            outgoing,
            folder / "staged",
            uploads,
            link,
            self._saver,
            self._changed,
            self._renew_code,
        )
        self._environments = StepEnvironments(make_environments)
        self._fetcher = Fetcher(fetched_bytes_max, self._fetched, self._not_fetched, workforce.reach_of_copies, cache)
        self.status = NodeStatus(self.ledger, self.steps, workforce, outgoing, self._fetcher)
        self._allotting: asyncio.TimerHandle | None = None
        self._allot_failed: Exception | None = None
        self.at_work = asyncio.Event()
        """Set while there are steps, or logs of steps, on this node; cleared once the logs are pushed."""
        self.stirred: Callable[[], None] = lambda: None
        """Called when the next tick may be due sooner than planned."""
        self._planned_ns = monotonic_ns()
        self._stalled_ns = 0
        self._slow_ns = self._slower_ns = self._log_ns = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._lineages = Lineages()
        self._repeated = Repeated()

    # What the master says.

    def take(self, response: rpc.WorkResponse) -> None:
        """Carries out one message of the Work stream."""
        for spec in response.steps:
            self._take_step(spec)
        if response.HasField("shares"):
            self._take_shares(response.shares)
        self._outgoing.acknowledge_failures(response.worker_failures_acknowledged)
        for acknowledgement in response.acknowledgements:
            self._acknowledged(acknowledgement)
        if response.assignments:
            steps = [step for group in response.assignments if (step := self._take_assignments(group)) is not None]
            if not all(step.live for step in steps):
                self.allot()
            for step in steps:
                self._distributor.pump(step)
        if response.revoked_lease_ids:
            self._distributor.revoke(response.revoked_lease_ids)
            for worker in list(self._workforce.workers.values()):
                self._supervisor.kill_revoked(worker, worker.look())
        for recall in response.recalls:
            self._distributor.recall(recall.step_id, recall.count, frozenset(recall.kept_lease_ids))
        for step_id, generation in zip_longest(
            response.ended_step_ids, response.ended_step_generations, fillvalue=_ANY_GENERATION
        ):
            step = self.steps.get(step_id)
            if step is not None and (generation == _ANY_GENERATION or step.spec.generation <= generation):
                step.asked_generation = generation
                self._end_step(step)
            else:
                self.ended_steps.ask(step_id, generation)
        if response.revoked_lease_ids or response.recalls or response.ended_step_ids:
            self._distributor.pump_all()
        self.stirred()

    def _take_shares(self, shares: rpc.NodeShares) -> None:
        reclaim_after = shares.reclaim_after.seconds * 1_000_000_000 + shares.reclaim_after.nanos
        self._workforce.shares = Shares({share.step_id: share.workers for share in shares.steps}, reclaim_after)
        self.allot()

    def lose_master(self) -> None:
        """Notes that the master is away: what it has decided holds for a while."""
        shares = self._workforce.shares
        if shares is not None and not shares.away_since_ns:
            shares.away_since_ns = monotonic_ns()

    def _take_assignments(self, group: work.StepAssignments) -> Step | None:
        """Takes the leases; returns their step, or None if they are given back."""
        step_id, generation = group.step_id, group.generation
        step = self.steps.get(step_id)
        if (
            step is None
            or step.state is StepState.ENDING
            or generation != step.spec.generation
            or self._outgoing.draining
            or (step.given_up and not step.live)
        ):
            self._outgoing.release([a.lease_id for a in group.assignments if self.ledger.get(a.lease_id) is None])
            return None
        step.active_ns = monotonic_ns()
        new = self.ledger.receive(
            (
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
                    step.spec.identity,
                    completions.split_order(a.split) if a.HasField("split") else b"",
                )
                for a in group.assignments
            ),
            fetch=step.needs_fetching,
        )
        if step.cache_use is not None and new:
            new[0].cache_use, step.cache_use = step.cache_use, None
        for lease in new if step.needs_fetching else ():
            self._fetcher.add(lease, step)
        return step

    def _fetched(self, step: Step, lease: Lease, recipe: bytes) -> None:
        """A mini-batch's data is on this node."""
        if self.ledger.fetched(lease.lease_id, recipe):
            self._distributor.pump(step)

    def _not_fetched(self, step: Step, lease: Lease, completion: work.Completion) -> None:
        """A mini-batch's data cannot be fetched."""
        self._repeated.say(
            step.step_id,
            logging.WARNING,
            "not fetched",
            step=step.step_id,
            lease=lease.lease_id,
            why=completion.message,
        )
        if self.ledger.fail(lease.lease_id):
            self._outgoing.complete(lease.lease_id, completion.SerializeToString())

    def _unfinished(self, lease_id: int) -> bool:
        lease = self.ledger.get(lease_id)
        return lease is not None and lease.state is not LeaseState.FINISHED

    def _acknowledged(self, acknowledgement: work.Acknowledgement) -> None:
        outbox = self._outgoing.outbox
        was_full = outbox.full
        self.ledger.acknowledge(acknowledgement.lease_ids)
        outbox.acknowledge(acknowledgement.lease_ids)
        if acknowledgement.verdict != work.VERDICT_ACCEPTED:
            say(
                logging.INFO,
                "completions not counted",
                verdict=acknowledgement.verdict,
                leases=list(acknowledgement.lease_ids[:20]),
            )
        if was_full and not outbox.full:
            self._distributor.pump_all()
            self.status.send_capacities()

    # Steps.

    def _take_step(self, spec: work.StepSpec) -> None:
        old = self.steps.get(spec.step_id)
        if old is not None and old.state is not StepState.ENDING and spec.generation <= old.spec.generation:
            return
        self.ended_steps.replace(spec.step_id)
        if old is not None:
            del self.steps[spec.step_id]
            old.replaced = True
            self._end_step(old, at_once=True)
        if self._outgoing.draining:
            return
        in_use = {*self.steps, *(step.step_id for step in self.ended_steps.kept())}
        lineage = self._lineages.of(spec.step_id, in_use)
        try:
            node = self._workforce.node
            step = Step.open(spec, self._folder, node.node_id, node.slots, monotonic_ns(), lineage)
        except (BadStep, OSError) as error:
            text = f"This node cannot serve step {spec.step_name!r}: {error}"
            say(logging.ERROR, text, step=spec.step_id)
            number = lineage.number()
            self._outgoing.fail(completions.worker_failure(spec.step_id, work.CAUSE_NODE_FAULT, text, "", number))
            self._outgoing.capacity(spec.step_id, 0, 0, given_up=True)
            return
        self._environments.begin(step)
        self.steps[spec.step_id] = step
        self.at_work.set()
        self.allot()
        self._run_aside(self._prepare(step))

    def held_steps(self) -> list[rpc.HeldStep]:
        """Every step of which anything is left on this node, ended ones included."""
        steps = [*self.steps.values(), *self.ended_steps.kept()]
        return [rpc.HeldStep(step_id=step.step_id, identity=step.spec.identity) for step in steps if not step.foreign]

    def forget(self, step_ids: Iterable[int]) -> None:
        """Drops steps that the master's state does not have, or has with another identity.

        The master may give their ids to other steps, so neither results nor logs of these may reach it. Their leases go
        with their workers; finished leases go with the master's next answer.
        """
        for step_id in step_ids:
            say(
                logging.WARNING,
                "the master's state does not have this step: dropping it here",
                step=step_id,
            )
            self.ended_steps.forget(step_id)
            self._outgoing.forget(step_id)
            if (step := self.steps.pop(step_id, None)) is not None:
                step.replaced = step.foreign = True
                self._end_step(step, at_once=True)
            self._lineages.forget_logs(step_id)

    async def _prepare(self, step: Step) -> None:
        """Gets the code, the environment and the side inputs, then starts workers without waiting for an assignment."""
        failure = None
        text = await self._with_users(self._workforce.take_user, step)
        text = text or await self._unpack_code(step, 1)
        if not text and step.spec.HasField("environment"):
            failure = await self._environments.provide(step)
        try:
            for side in step.spec.side_inputs if not text and failure is None else ():
                place = await self._fetcher.fetch_input(step, side.name, side.address, writable=side.writable)
                step.side_inputs[side.name] = place
        except NotFetched as error:
            text = f"An input of step {step.spec.step_name!r} could not be fetched to this node: {error}"
        if not text and failure is None:
            text = await asyncio.to_thread(self._changed_models, step)
        text = text or shortage_of_shared_memory(step.spec.shared_memory_bytes, step.spec.step_name)
        if not text and failure is None and step.state is StepState.PREPARING:
            text = await self._with_users(self._workforce.open_to_user, step)
        if step.state is not StepState.PREPARING:
            await asyncio.to_thread(self._workforce.leave_outputs, step)
            await asyncio.to_thread(step.drop_work)
        elif text or failure is not None:
            self._give_up(step, text, failure)
        else:
            step.state = StepState.SERVING
            self.allot()

    def _changed_models(self, step: Step) -> str:
        """What is wrong with the registered models that a step has as inputs, in words. Blocks."""
        for path in step.spec.read_paths:
            if why := self._workforce.kept_models.changed(path):
                given = step.spec.environment_variables.items()
                names = [
                    name.removeprefix(_INPUT) for name, value in given if value == path and name.startswith(_INPUT)
                ]
                which = f"input {names[0]!r}" if names else "an input"
                return (
                    f"The registered model at {path}, which is {which} of step {step.spec.step_name!r}, is not what "
                    f"was registered: {why}"
                )
        return ""

    async def _with_users(self, look: Callable[[Step], str], step: Step) -> str:
        """What one of the workforce's looks at the users of jobs finds; "" where jobs have none."""
        if self._workforce.users is None:
            return ""
        try:
            return await asyncio.to_thread(look, step)
        except NoInterpreter as error:
            return str(error)

    async def drop(self, step: Step) -> None:
        """Removes the folder of an ended step, whose logs the master has."""
        self.ended_steps.ended.remove(step)
        await asyncio.to_thread(step.drop)
        if self._workforce.users is not None:
            await asyncio.to_thread(self._workforce.dropped, step)

    async def _unpack_code(self, step: Step, number: int) -> str:
        """Makes copy `number` of the step's code; returns why it could not be made, "" on success."""
        try:
            step.code_sums = await self._unpack(step.spec.code_digest, step.code_copy(number))
            if step.user is not None:
                await asyncio.to_thread(self._workforce.give_code, step, step.code_copy(number))
        except CodeUnavailable as error:
            return str(error)
        except OSError as error:
            return f"The code of step {step.spec.step_name!r} could not be unpacked on this node: {error}"
        step.code_copies = number
        return ""

    def _give_up(self, step: Step, text: str, failure: rpc.WorkerFailure | None = None) -> None:
        """Gives the step up: this node cannot serve it. `failure`: the report to the master, if that says more than
        the text.
        """
        if failure is None:
            failure = completions.worker_failure(step.step_id, work.CAUSE_NODE_FAULT, text, "", 0)
            self._repeated.say("not prepared", logging.ERROR, text, step=step.step_id)
        failure.process_number = step.lineage.number()
        step.given_up_for = failure
        self._outgoing.fail(failure)
        error_log.note_preparation(step, failure)
        self._distributor.release_queued(step.step_id)
        self.status.send_capacities()

    def _renew_code(self, step: Step) -> None:
        """A worker has found the step's code changed: the next ones get a fresh copy, once."""
        if not step.takes_work or step.state is not StepState.SERVING:
            return
        step.failures = 0
        if step.code_copies > 1:
            step.code_sums = None
            return
        step.takes_work = False
        self._run_aside(self._unpack_again(step))

    async def _unpack_again(self, step: Step) -> None:
        text = await self._unpack_code(step, step.code_copies + 1)
        step.takes_work = True
        if step.state is not StepState.SERVING:
            await asyncio.to_thread(step.drop_code)
        elif text:
            self._give_up(step, text)
        else:
            self.allot()

    def _end_step(self, step: Step, *, at_once: bool = False) -> None:
        """`at_once`: another step replaces this one, so what still runs is useless."""
        if step.state is StepState.ENDING and not at_once:
            return
        step.state = StepState.ENDING
        step.target = 0
        for worker in list(step.workers.values()):
            self._distributor.take_back(worker)
            if at_once or not worker.ready or self.ledger.of_worker(worker.key):
                # Results of an ended step no longer count.
                self._supervisor.kill_and_release(worker, "the step has ended")
            else:
                worker.ask_to_stop()
        # Nor do mini-batches whose outputs are still being saved.
        for save in list(step.saves if at_once else step.attempt_saves):
            save.cancel()
        self._distributor.release_queued(step.step_id)
        self._settle(step)

    def _settle(self, step: Step) -> None:
        """Drops an ended step once its last worker is gone and its outputs are saved."""
        if (
            step.state is StepState.ENDING
            and not step.workers
            and not step.saves
            and step not in self.ended_steps.ended
        ):
            if self.steps.get(step.step_id) is step:
                del self.steps[step.step_id]
            self.ended_steps.add(step)

    # Workers.

    def _changed(self, step: Step) -> None:
        self._settle(step)
        self.allot()

    def allot(self) -> None:
        """Gives every step its number of workers: starts missing ones, stops surplus ones.

        It goes through all steps, so with many of them it gathers changes for a moment.
        """
        if len(self.steps) <= _MANY_STEPS:
            self._allot_now()
        elif self._allotting is None:
            self._allotting = asyncio.get_running_loop().call_later(len(self.steps) * _REST_S, self._allot_gathered)

    def _allot_gathered(self) -> None:
        try:
            self._allot_now()
        except Exception as error:
            # A timer has no caller: the next tick raises it, where it is reported.
            self._allot_failed = error

    def _allot_now(self) -> None:
        if self._allotting is not None:
            self._allotting.cancel()
            self._allotting = None
        if self._outgoing.draining:
            return
        exclusive = self.ledger.exclusive_waiting
        # While an exclusive lease waits, its step goes first: it must not wait for a slot of the others.
        first = exclusive.step_id if exclusive is not None else None
        self._workforce.allot(self.steps, self.ledger.steps_held(), monotonic_ns(), first=first)
        for step in self.steps.values():
            excess = len(step.live) - step.target
            if excess > 0 and step.state is StepState.SERVING:
                by_load = sorted(step.live, key=self._worth_keeping)
                for worker in by_load[:excess]:
                    self._distributor.take_back(worker)
                    worker.yields_since_ns = monotonic_ns()
                    worker.ask_to_stop()
            if not step.target and not step.live and self._workforce.is_shared_out(monotonic_ns()):
                # Another node runs them.
                self._distributor.release_queued(step.step_id)
        for worker in self._workforce.in_the_way(self.steps):
            self._distributor.take_back(worker)
            worker.yields_since_ns = monotonic_ns()
            worker.ask_to_stop()
        # Large needs first: small ones find room in what these leave.
        for step in sorted(self.steps.values(), key=lambda step: (-step.spec.priority, -step.spec.gpus_per_worker)):
            if step.state is StepState.SERVING:
                while len(step.live) < step.target and step.may_start and self._workforce.may_start(step, self.steps):
                    if not self._supervisor.start(step):
                        break
        self.status.send_capacities()

    def _worth_keeping(self, worker: WorkerProcess) -> tuple[int, int, int]:
        """A worker with a lower value ends first: one with little to do, then one that does not use its GPU, then a
        late one.
        """
        watch = self._workforce.gpu_watch
        idle_ms = 0 if watch is None else watch.idle_ms(worker.key, monotonic_ns())
        return len(self.ledger.of_worker(worker.key)), -idle_ms, -worker.key

    def end_beyond_share(self, key: int, why: str) -> None:
        """Ends a worker that uses the memory of others on a GPU."""
        worker = self._workforce.workers.get(key)
        if worker is not None:
            self._supervisor.kill_beyond_share(worker, why)
            self.stirred()

    def note_gpus(self, keys: Iterable[int]) -> None:
        """GPUs have gone or come back. `keys`: the workers that had one that has gone; none is to blame for it."""
        watch = self._workforce.gpu_watch
        for key in keys:
            worker = self._workforce.workers.get(key)
            if worker is not None and watch is not None:
                self._distributor.take_back(worker)
                self._supervisor.kill_and_release(worker, watch.why_lost(key))
        self.allot()

    def _reclaim(self, now_ns: int) -> None:
        """Kills workers that have had their time to leave their place to a step that waits for it: those first whose
        mini-batches have run least.
        """
        if not self._workforce.is_shared_out(now_ns):
            return
        lacking = sum(
            max(0, step.target - len(step.live))
            for step in self.steps.values()
            if step.state is StepState.SERVING and step.may_start
        )
        if not any(step.has_needs for step in self.steps.values()):
            lacking -= max(0, self._workforce.room(self.steps))
        for worker in self._workforce.yielding(now_ns):
            if lacking <= 0:
                return
            self._supervisor.kill_and_release(worker, "another step needs its place")
            lacking -= 1

    def plan_tick(self) -> float:
        """Seconds until the next tick is due; inf if there is nothing to look after."""
        now = monotonic_ns()
        if not self.steps and not self._workforce.workers and not self.ledger.unfinished:
            self._planned_ns = 0
            return math.inf
        wait_ns = int((BUSY_S if self.ledger.unfinished else QUIET_S) * 1e9)
        if self._is_urgent():
            wait_ns = int(URGENT_S * 1e9)
        due_ns = now + wait_ns
        for step in self.steps.values():
            for worker in step.workers.values():
                deadline_ns = worker_due_ns(
                    worker.last_look,
                    step.limits,
                    spawned_ns=worker.spawned_ns,
                    stalled_ns=self._stalled_ns - max(0, worker.stall_mark_ns),
                )
                if deadline_ns is not None and deadline_ns > now:
                    due_ns = min(due_ns, deadline_ns + _JUST_AFTER_NS)
        self._planned_ns = due_ns
        return (due_ns - now) / 1e9

    def _is_urgent(self) -> bool:
        """Whether something has to be retried soon, and no event says when."""
        return (
            self._outgoing.outbox.full
            or self.ledger.exclusive_waiting is not None
            or any(worker.killed_for or worker.overrun for worker in self._workforce.workers.values())
            or (
                self.ledger.unfinished > 0
                and any((step.pace.duration_s or 1.0) < _SHORT_RUN_S for step in self.steps.values())
            )
        )

    def tick(self) -> None:
        """Handles everything that no event announces: deadlines, revoked leases, idle workers, log sizes."""
        now = monotonic_ns()
        late = now - self._planned_ns if self._planned_ns else 0
        if late > _TICK_LATE_NS:
            # The machine, or this process, stalled: that time must not count against the workers.
            self._stalled_ns += late
            say(logging.WARNING, "this agent stalled; it counts against no worker", seconds=round(late / 1e9, 1))
        for step in [*self.steps.values()]:
            for worker in list(step.workers.values()):
                self._supervisor.watch(worker, step, now, self._stalled_ns)
        self._fetcher.look_after(self._unfinished, now)
        if self._outgoing.outbox.full:
            # Too much waits for the master's answer already: start nothing more.
            for worker in list(self._workforce.workers.values()):
                if len(self.ledger.of_worker(worker.key)) > 1:
                    self._distributor.take_back(worker)
        else:
            self._distributor.pump_exclusive()
            for step in self.steps.values():
                self._distributor.pump(step)
                self._distributor.rebalance(step)
        if now - self._slow_ns >= _SLOW_NS:
            self._slow_ns = now
            self._reclaim(now)
            for step in self.steps.values():
                for log in step.logs:
                    log.file.bound()
            self.allot()
        if now - self._slower_ns >= _SLOWER_NS:
            self._slower_ns = now
            self._workforce.end_orphans()
        if now - self._log_ns >= _LOG_NS:
            self._log_ns = now
            for worker in self._workforce.workers.values():
                worker.log.flush()
        failed, self._allot_failed = self._allot_failed, None
        if failed is not None:
            raise failed

    # The end.

    def drain(self) -> None:
        """Takes nothing new, and hands back what has not started."""
        if self._outgoing.draining:
            return
        self._outgoing.drain()
        workers = list(self._workforce.workers.values())
        for worker in workers:
            self._distributor.take_back(worker)
        self._distributor.release_queued()
        for worker in workers:
            if worker.ready:
                worker.ask_to_stop()
            else:
                self._supervisor.kill_and_release(worker, "the node is leaving")
        self.status.send_capacities()

    def abandon(self) -> None:
        """Kills what runs and releases its leases uncharged: the grace period is over, or the leases have ended."""
        for worker in list(self._workforce.workers.values()):
            self._distributor.take_back(worker)
            if self.ledger.of_worker(worker.key) or self._outgoing.draining:
                self._supervisor.kill_and_release(worker, "the node gives its work back")
        self._distributor.release_queued()

    def kill_all(self) -> None:
        """Kills all workers, since the agent ends now and none may outlive it."""
        if self._allotting is not None:
            self._allotting.cancel()
        self._environments.close()
        self._fetcher.close()
        self._saver.close()
        self._supervisor.close()
        workers = list(self._workforce.workers.values())
        for worker in workers:
            self._supervisor.forget(worker)
            worker.kill()
        for worker in workers:
            self._workforce.bury(None, worker)
        for _ in range(_LAST_LOOKS):
            self._workforce.end_orphans()

    @property
    def idle(self) -> bool:
        """Whether no lease is held, no worker runs, and no step is being prepared."""
        return not (
            self.ledger.count
            or self._workforce.workers
            or any(step.state is StepState.PREPARING for step in self.steps.values())
        )

    @property
    def is_busy(self) -> bool:
        """Whether a lease is held, or a step or a worker is being made ready."""
        return bool(
            self.ledger.count
            or any(step.state is StepState.PREPARING for step in self.steps.values())
            or any(not worker.ready for worker in self._workforce.workers.values())
        )

    @property
    def protection(self) -> str:
        """What confines the workers of this node, in words."""
        return self._workforce.protection

    @property
    def data_cache(self) -> CacheCounts | None:
        """What the data cache has been good for; None: there is none."""
        return self._fetcher.cache

    def start_cache(self) -> None:
        """Has the data cache looked after from now on, if there is one."""
        self._fetcher.start_cache()

    @property
    def gpu_watch(self) -> GpuWatch | None:
        """What watches the GPUs of this node, if it has some."""
        return self._workforce.gpu_watch

    @property
    def gpu_trouble(self) -> str:
        """Why GPUs of this node cannot be seen, used or measured, in words; "" if they can, or there are none."""
        return self._workforce.gpu_trouble

    @property
    def workers_alive(self) -> int:
        """Number of worker processes that have not ended yet."""
        return len(self._workforce.workers)

    @property
    def saving(self) -> bool:
        """Whether outputs are being saved to a store."""
        return any(step.saves for step in self.steps.values())

    def _run_aside(self, coroutine: Awaitable[None]) -> None:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Future[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            say(logging.ERROR, "a task of the agent failed", why=repr(error))
