"""What this node reports to the master: what it holds, how much it wants, what its workers do."""

from __future__ import annotations

from time import monotonic_ns

from windrow.rpc.v1 import agent_service_pb2 as rpc
from windrow.rpc.v1 import node_pb2 as node_messages

from windrow_agent.fetching.fetcher import Fetcher
from windrow_agent.leases.ledger import Ledger
from windrow_agent.leases.pace import worth_reporting
from windrow_agent.node.resources import UsageMeter
from windrow_agent.outgoing.queue import OutgoingQueue
from windrow_agent.steps.step import Step, StepState
from windrow_agent.supervision.workforce import Workforce
from windrow_agent.workers.page import BUSY
from windrow_agent.workers.process import WorkerProcess

_SQUEEZED_NS = 1_000_000_000


class NodeStatus:
    """Reads the state that others keep; changes only `reported` of each step."""

    def __init__(
        self, ledger: Ledger, steps: dict[int, Step], workforce: Workforce, outgoing: OutgoingQueue, fetcher: Fetcher
    ) -> None:
        self._ledger = ledger
        self._steps = steps
        self._workforce = workforce
        self._outgoing = outgoing
        self._fetcher = fetcher

    def hello(self, node_id: str, node_incarnation: str) -> rpc.WorkHello:
        """The first message of a stream, which lists everything that this node holds. All capacities are sent again:
        they may have been lost with the last stream.
        """
        for step in self._steps.values():
            step.reported = None
        steps = [step for step in self._steps.values() if step.state is not StepState.ENDING]
        return rpc.WorkHello(
            node_id=node_id,
            node_incarnation=node_incarnation,
            held_leases=[
                rpc.HeldLease(
                    lease_id=lease.lease_id,
                    step_id=lease.step_id,
                    mini_batch_index=lease.mini_batch_index,
                    generation=lease.generation,
                    identity=lease.identity,
                )
                for lease in self._ledger
            ],
            step_ids=[step.step_id for step in steps],
            step_workers=[len(step.live) for step in steps],
        )

    def repeat_failures(self) -> None:
        """Sends again why steps were given up: the master has lost what it knew, as its state is an older one."""
        for step in self._steps.values():
            if step.given_up_for is not None:
                self._outgoing.fail(step.given_up_for)

    def send_capacities(self) -> None:
        """Sends how many leases of each step are wanted, if that has changed enough to matter."""
        blocked = self._outgoing.draining or self._outgoing.outbox.full
        for step in self._steps.values():
            if step.state is StepState.ENDING:
                continue
            workers = step.target
            given_up = step.given_up and not step.live
            if blocked or given_up or not step.takes_work:
                wanted = 0
            elif workers:
                wanted = workers * step.pace.depth
                if step.needs_fetching:
                    wanted += self._fetcher.ahead(step, workers)
            else:
                # Idle and without workers: one lease would wake it. Squeezed out by other steps: none.
                now = monotonic_ns()
                idle = now - step.active_ns > _SQUEEZED_NS and not self._workforce.is_shared_out(now)
                wanted = 1 if idle and self._has_room() else 0
            told = step.reported
            if told is None or told[1:] != (workers, given_up) or worth_reporting(told[0], wanted):
                step.reported = (wanted, workers, given_up)
                self._outgoing.capacity(step.step_id, wanted, workers, given_up=given_up)

    @property
    def has_plenty(self) -> bool:
        """Whether this node still has more than half of the leases that it wants ahead."""
        wanted = sum(step.reported[0] for step in self._steps.values() if step.reported is not None)
        return not self._outgoing.draining and 2 * self._ledger.unfinished > wanted

    def _has_room(self) -> bool:
        """Whether a step that wakes would find a slot: one that is free, or whose worker is idle."""
        workers = self._workforce.workers
        idle = (not self._ledger.of_worker(worker.key) for worker in workers.values())
        return len(workers) < self._workforce.node.slots or any(idle)

    def _is_working(self, worker: WorkerProcess) -> bool:
        """Whether a worker has a mini-batch, is not ready for one yet, or is about to end."""
        return not worker.free or worker.retiring or bool(self._ledger.of_worker(worker.key))

    def worker_statuses(self) -> list[node_messages.WorkerStatus]:
        """What each worker does, for a heartbeat."""
        now = monotonic_ns()
        statuses = []
        watch = self._workforce.gpu_watch
        for worker in self._workforce.workers.values():
            look = worker.look()
            begun = look.phase_start_ns or worker.spawned_ns
            phase = node_messages.WorkerPhase.ValueType(look.phase or node_messages.WORKER_PHASE_STARTING)
            is_working = self._is_working(worker)
            statuses.append(
                node_messages.WorkerStatus(
                    process_number=worker.process_number,
                    step_id=worker.step_id,
                    phase=phase,
                    lease_id=look.lease_id if look.phase in BUSY else 0,
                    phase_ms=max(0, now - begun) // 1_000_000,
                    rss_kib=UsageMeter.rss_kib(worker.pid),
                    gpu=None if watch is None else watch.of_worker(worker.key, now, is_working=is_working),
                )
            )
        for step in self._steps.values():
            if step.building_since_ns:
                statuses.append(
                    node_messages.WorkerStatus(
                        step_id=step.step_id,
                        phase=node_messages.WORKER_PHASE_BUILDING,
                        phase_ms=max(0, now - step.building_since_ns) // 1_000_000,
                    )
                )
        return statuses
