"""What nodes report of workers that are not ready yet, added to the reason of their step. The core knows only who is
ready.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from windrow.rpc.v1 import node_pb2

from windrow_master.core.ids import NodeId
from windrow_master.core.reasons import Code, Reason, Starting

MAY_BE_STARTING = frozenset({Code.WORKERS_STARTING, Code.NODES_ANSWER, Code.NODES_BUSY, Code.NODES_FULL})
"""Codes of steps whose nodes may be building the environment, or starting workers."""
_PHASES = (("init", node_pb2.WORKER_PHASE_INIT), ("starting", node_pb2.WORKER_PHASE_STARTING))


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


def reason_with_reports(reason: Reason, reports: Sequence[WorkerReport]) -> Reason:
    """The reason of a step, with what its workers do. `reports`: of that step."""
    starting = tuple(_starting(reports)) if reason.code == Code.WORKERS_STARTING else ()
    if starting:
        return reason._replace(starting=starting)
    builds = [report for report in reports if report.status.phase == node_pb2.WORKER_PHASE_BUILDING]
    if builds:
        nodes = tuple(sorted(report.node_id for report in builds))
        return Reason(reason.step, Code.BUILDING_ENVIRONMENT, nodes=nodes, for_s=max(report.for_s for report in builds))
    return reason


def _starting(reports: Iterable[WorkerReport]) -> Iterable[Starting]:
    """What the workers do that are not ready, those nearest to it first."""
    for name, phase in _PHASES:
        found = [report.for_s for report in reports if report.status.phase == phase]
        if found:
            yield Starting(name, len(found), max(found))
