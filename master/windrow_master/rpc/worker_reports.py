"""What nodes report of the workers of a step, added to the step's reason. The core knows leases, not what is done for
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from windrow.rpc.v1 import node_pb2

from windrow_master.core.commands import GpuUse, IdleWorker
from windrow_master.core.ids import LeaseId, NodeId, StepId
from windrow_master.core.reasons import AtWork, Code, Reason

LEASED = frozenset({Code.WORKERS_STARTING, Code.RUNNING, Code.NO_PROGRESS})
"""Codes of steps whose mini-batches are leased: what holds them up is in the workers."""
MAY_BE_BUILDING = frozenset({Code.WORKERS_STARTING, Code.NODES_ANSWER, Code.NODES_BUSY, Code.NODES_FULL})
"""Codes of steps whose nodes may be building the environment: such a node takes no lease."""
_PHASES = (
    ("returning", node_pb2.WORKER_PHASE_RETURNING),
    ("running", node_pb2.WORKER_PHASE_RUNNING),
    ("loading", node_pb2.WORKER_PHASE_LOADING),
    ("init", node_pb2.WORKER_PHASE_INIT),
    ("starting", node_pb2.WORKER_PHASE_STARTING),
    ("stopping", node_pb2.WORKER_PHASE_STOPPING),
)
"""Those nearest to a result first."""
_BEGUN = frozenset((node_pb2.WORKER_PHASE_LOADING, node_pb2.WORKER_PHASE_RUNNING, node_pb2.WORKER_PHASE_RETURNING))


class WorkerReport(NamedTuple):
    """What a node's last heartbeat says of one worker, or of a build."""

    node_id: NodeId
    status: node_pb2.WorkerStatus
    silent_s: float
    """Seconds since the heartbeat."""

    @property
    def for_s(self) -> float:
        """How long it has been in its phase by now, as it has most likely not left it."""
        return self.status.phase_ms / 1000 + self.silent_s


def gpu_uses(workers: Iterable[node_pb2.WorkerStatus]) -> list[GpuUse]:
    """What the workers of each step use of their GPUs, of those of a heartbeat."""
    found: dict[int, GpuUse] = {}
    for worker in workers:
        if worker.HasField("gpu") and (worker.gpu.HasField("memory_bytes") or worker.gpu.HasField("busy_percent")):
            use = found.get(worker.step_id) or GpuUse(StepId(worker.step_id), 0, 0, 0)
            found[worker.step_id] = GpuUse(
                use.step_id,
                max(use.peak_bytes, worker.gpu.memory_bytes),
                use.measured + worker.gpu.HasField("busy_percent"),
                use.busy_percent + round(worker.gpu.busy_percent),
            )
    return list(found.values())


def running_leases(workers: Iterable[node_pb2.WorkerStatus]) -> list[tuple[LeaseId, float]]:
    """The leases that workers have begun, each with for how long it has been in its phase, of those of a heartbeat."""
    return [
        (LeaseId(worker.lease_id), worker.phase_ms / 1000)
        for worker in workers
        if worker.lease_id and worker.phase in _BEGUN
    ]


def idle_workers(workers: Iterable[node_pb2.WorkerStatus]) -> list[IdleWorker]:
    """The workers that do not use the GPUs that they hold, of those of a heartbeat."""
    return [
        IdleWorker(
            StepId(worker.step_id),
            worker.process_number,
            worker.gpu.share * len(worker.gpu.places),
            worker.gpu.idle_ms / 1000,
            worker.gpu.is_working,
        )
        for worker in workers
        if worker.gpu.idle_ms
    ]


def reason_with_reports(reason: Reason, reports: Sequence[WorkerReport]) -> Reason:
    """The reason of a step, with what its workers do. `reports`: of that step."""
    at_work = tuple(_at_work(reports)) if reason.code in LEASED else ()
    if at_work:
        return reason._replace(at_work=at_work)
    builds = [report for report in reports if report.status.phase == node_pb2.WORKER_PHASE_BUILDING]
    if builds and reason.code in MAY_BE_BUILDING:
        nodes = tuple(sorted(report.node_id for report in builds))
        return Reason(reason.step, Code.BUILDING_ENVIRONMENT, nodes=nodes, for_s=max(report.for_s for report in builds))
    return reason


def _at_work(reports: Iterable[WorkerReport]) -> Iterable[AtWork]:
    for name, phase in _PHASES:
        found = [report.for_s for report in reports if report.status.phase == phase]
        if found:
            yield AtWork(name, len(found), max(found))
