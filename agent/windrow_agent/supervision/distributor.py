"""Distributes leases: from the queue into workers' channels, back out, and from a worker with many to one with none.

Everything runs on the event loop's thread and never blocks.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Set
from functools import partial
from pathlib import Path
from zlib import crc32

from windrow.rpc.v1 import work_pb2 as work

from windrow_agent.leases.lease import Lease
from windrow_agent.leases.ledger import Ledger
from windrow_agent.leases.pace import shares
from windrow_agent.outgoing import completions
from windrow_agent.outgoing.queue import OutgoingQueue
from windrow_agent.steps.step import Step, StepState
from windrow_agent.supervision.workforce import Workforce
from windrow_agent.workers import frames
from windrow_agent.workers.page import BUSY
from windrow_agent.workers.process import PACKET_RECIPE_MAX, WorkerProcess


class LeaseDistributor:
    """Moves leases between the ledger's queues and the workers. `steps`: the controller's, by step id."""

    def __init__(self, ledger: Ledger, steps: dict[int, Step], workforce: Workforce, outgoing: OutgoingQueue) -> None:
        self.ledger = ledger
        self.steps = steps
        self._workforce = workforce
        self._outgoing = outgoing

    def pump(self, step: Step) -> None:
        """Moves queued leases into the channels of the step's workers, evenly."""
        ledger = self.ledger
        if ledger.exclusive_waiting is not None:
            self.pump_exclusive()
            return
        queued = ledger.queued(step.step_id)
        if not queued or step.state is not StepState.SERVING or self._outgoing.outbox.full:
            return
        live = step.live
        workers = [worker for worker in live if worker.free]
        if not workers:
            if step.saves_outputs:
                # Outputs of init() can be distinguished from those of run() only while nothing runs.
                return
            # A starting worker gets its first lease ahead; only workers that are known to work get more.
            for worker in live:
                if not ledger.of_worker(worker.key):
                    self._hand(step, worker, ledger.give(step.step_id, worker.key, 1))
            return
        loads = [len(ledger.of_worker(worker.key)) for worker in workers]
        counts = shares(loads, queued, step.depth)
        # What stands first takes longest: idle workers begin with these, and none of them waits behind another.
        for at, worker in enumerate(workers):
            if counts[at] and not loads[at]:
                self._hand(step, worker, ledger.give(step.step_id, worker.key, 1))
                counts[at] -= 1
        for worker, count in zip(workers, counts, strict=True):
            if count:
                self._hand(step, worker, ledger.give(step.step_id, worker.key, count))

    def pump_all(self) -> None:
        """Pumps every step."""
        for step in self.steps.values():
            self.pump(step)

    def pump_exclusive(self) -> None:
        """Runs an exclusive lease once nothing else runs: takes back what has not begun, and waits for the rest."""
        ledger = self.ledger
        lease = ledger.exclusive_waiting
        if lease is None or self._outgoing.outbox.full or ledger.exclusive_out:
            return
        if ledger.out:
            for worker in self._workforce.workers.values():
                given = len(ledger.of_worker(worker.key))
                if given > 1 or (given and worker.look().phase not in BUSY):
                    self.take_back(worker)
            if ledger.out:
                return
        step = self.steps.get(lease.step_id)
        chosen = next((worker for worker in step.live if worker.free), None) if step is not None else None
        if step is not None and chosen is not None and (given_ := ledger.give_exclusive(chosen.key)) is not None:
            self._hand(step, chosen, [given_])

    def rebalance(self, step: Step) -> None:
        """If a worker is idle and the queue is empty, gives it leases that another worker has not begun."""
        ledger = self.ledger
        if step.state is not StepState.SERVING or ledger.queued(step.step_id) or ledger.exclusive_waiting is not None:
            return
        live = step.live
        if not any(worker.free and not ledger.of_worker(worker.key) for worker in live):
            return

        def spare(worker: WorkerProcess) -> int:
            return len(ledger.of_worker(worker.key)) - (1 if worker.ready else 0)

        richest = max(live, key=spare)
        if spare(richest) > 0:
            self.take_back(richest)
            self.pump(step)

    def take_back(self, worker: WorkerProcess) -> None:
        """Takes all unread leases out of a worker's channel: queued again, or released if they were revoked."""
        unread = [lease_id for packet in worker.read_back() if (lease_id := frames.packet_lease(packet))]
        for lease_id in unread:
            lease = self.ledger.get(lease_id)
            if lease is None or len(lease.recipe) > PACKET_RECIPE_MAX:
                _recipe_path(worker.scratch, lease_id).unlink(missing_ok=True)
        self._outgoing.release(self.ledger.take_back(worker.key, unread))
        if worker.retiring:
            # The packet that asks it to stop was unread too.
            worker.ask_to_stop()

    def revoke(self, lease_ids: Iterable[int]) -> None:
        """Gives leases up. The supervisor kills workers that are working on one."""
        revocation = self.ledger.revoke(lease_ids)
        self._outgoing.release(revocation.released)
        for key in revocation.take_back:
            worker = self._workforce.workers.get(key)
            if worker is not None:
                self.take_back(worker)

    def recall(self, step_id: int, count: int, kept: Set[int] = frozenset()) -> None:
        """Releases up to `count` leases of a step that have not begun, other than the `kept` ones: those that would
        begin last.
        """
        released = self.ledger.release_last(step_id, count, kept)
        if len(released) < count and (step := self.steps.get(step_id)) is not None:
            # Take those after the one in progress; those of starting workers last.
            live = sorted(step.live, key=lambda worker: not worker.ready)
            for worker in live:
                if len(self.ledger.of_worker(worker.key)) > worker.ready:
                    self.take_back(worker)
            released += self.ledger.release_last(step_id, count - len(released), kept)
        self._outgoing.release(released)

    def release_queued(self, step_id: int | None = None) -> None:
        """Releases all waiting leases of one step, or of all."""
        self._outgoing.release(self.ledger.release_queued(step_id))

    def _hand(self, step: Step, worker: WorkerProcess, leases: list[Lease]) -> None:
        """Writes leases into the worker's channel; those that do not fit go back to the queue."""
        for position, lease in enumerate(leases):
            try:
                if worker.send(packet_of(lease, worker.scratch)):
                    continue
                self.ledger.withdraw(worker.key, leases[position:])
            except OSError as error:
                # A long recipe could not be written: the lease ends here. The folder is the script's, too.
                self.ledger.withdraw(worker.key, leases[position:])
                self.ledger.fail(lease.lease_id)
                message = f"The recipe of a mini-batch could not be passed to a worker on this node: {error}"
                judge = partial(self._fail, lease.lease_id, completions.not_passed(lease, message))
                self._outgoing.claimed_faults.hold(worker.scratch.parent, judge)
            return

    def _fail(self, lease_id: int, failed: work.Completion, why: str) -> None:
        """`why`: what the agent has found to be wrong with its disk, in words."""
        self._outgoing.complete(lease_id, completions.judged(failed, why).SerializeToString())


def packet_of(lease: Lease, scratch: Path) -> bytes:
    """The packet of a lease for a worker with this scratch folder. Raises OSError (disk full)."""
    packet = _packet_of_all_items(lease, scratch)
    return frames.split_packet(packet, lease.order) if lease.order else packet


def _packet_of_all_items(lease: Lease, scratch: Path) -> bytes:
    recipe = lease.recipe
    if len(recipe) <= PACKET_RECIPE_MAX:
        return frames.run_packet(
            lease.attempt, lease.lease_id, lease.mini_batch_index, lease.item_first, lease.item_count, recipe
        )
    path = _recipe_path(scratch, lease.lease_id)
    # The folder is the script's, too: a link that it lays there is not followed.
    path.unlink(missing_ok=True)
    holder = scratch.stat()
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        if holder.st_uid != os.geteuid():
            # The worker is another user's.
            os.fchown(file.fileno(), holder.st_uid, holder.st_gid)
        file.write(recipe)
    return frames.run_packet_with_file(
        lease.attempt,
        lease.lease_id,
        lease.mini_batch_index,
        lease.item_first,
        lease.item_count,
        str(path).encode(),
        crc32(recipe),
    )


def _recipe_path(scratch: Path, lease_id: int) -> Path:
    return scratch / f"recipe-{lease_id:016x}"
