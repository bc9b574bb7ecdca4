"""Nodes as clients see them: what the core knows, with the last reports of their agents."""

from __future__ import annotations

import time
from collections.abc import Container
from typing import TYPE_CHECKING

from windrow.rpc.v1 import node_pb2

from windrow_master.core.ids import NodeId, StepId
from windrow_master.core.states import NodeState
from windrow_master.identity.principals import caller
from windrow_master.rpc.views import node_message

if TYPE_CHECKING:
    from windrow.rpc.v1 import agent_service_pb2

    from windrow_master.core.state import CoreState, Node
    from windrow_master.rpc.worker_reports import WorkerReport
    from windrow_master.shell.standby import Standby


class NodeViews:
    """What the master knows of nodes. Use it on the event loop's thread."""

    def __init__(self, standby: Standby) -> None:
        self._standby = standby
        self._heartbeats: dict[NodeId, tuple[agent_service_pb2.HeartbeatRequest, float]] = {}

    def note(self, node_id: NodeId, heartbeat: agent_service_pb2.HeartbeatRequest) -> None:
        """Note the heartbeat of a node."""
        self._heartbeats[node_id] = (heartbeat, time.monotonic())

    def forget_others(self, node_ids: Container[NodeId]) -> None:
        """Forget the heartbeats of all nodes but these."""
        self._heartbeats = {name: heard for name, heard in self._heartbeats.items() if name in node_ids}

    def nodes(self) -> list[node_pb2.Node]:
        """All nodes as they are now, sorted by name; also those that are gone while their names are cordoned."""
        state = self._standby.state
        if state is None:
            return []
        return [self.node_view(node) for _, node in sorted({**state.nodes, **state.absent}.items())]

    def node_view(self, node: Node) -> node_pb2.Node:
        """One node as it is now."""
        state = self._standby.state
        heard = self._heartbeats.get(node.node_id) if node.state != NodeState.LOST else None
        heartbeat, heard_s = heard or (None, 0.0)
        leases = {} if state is None else state.leases
        message = node_message(node, heartbeat, heard_s, leases, lambda step_id: _sees(state, step_id))
        if state is not None:
            message.users.extend(users_of(state, node))
        return message

    def worker_reports(self) -> dict[int, list[WorkerReport]]:
        """What connected nodes last reported of their workers, by step."""
        from windrow_master.rpc.worker_reports import WorkerReport

        now_s = time.monotonic()
        state = self._standby.state
        found: dict[int, list[WorkerReport]] = {}
        for node_id, (heartbeat, heard_s) in self._heartbeats.items():
            node = None if state is None else state.nodes.get(node_id)
            if node is None or node.state == NodeState.LOST:
                continue
            if heartbeat.node_incarnation == node.node_incarnation:
                for worker in heartbeat.workers:
                    found.setdefault(worker.step_id, []).append(WorkerReport(node_id, worker, now_s - heard_s))
        return found


def _sees(state: CoreState | None, step_id: StepId) -> bool:
    """Whether the caller sees the job of a step. One that is gone is seen by who sees all jobs."""
    step = None if state is None else state.steps.get(step_id)
    if state is None or step is None:
        return not caller().project
    return caller().sees(state.jobs[step.job_key].queue)


def users_of(state: CoreState, node: Node) -> list[node_pb2.NodeUser]:
    """The steps that have live workers on a node, those with the most first. A caller who sees one project only is told
    of others' jobs no more than their project.
    """
    by, found = caller(), []
    for step_id, workers in node.workers.items():
        if workers and (step := state.steps.get(step_id)) is not None:
            job = state.jobs[step.job_key]
            user = node_pb2.NodeUser(project=job.queue, workers=workers)
            if by.sees(job.queue):
                user.job_id, user.step = job.job_id, step.settings.name
            found.append(user)
    return sorted(found, key=lambda user: (-user.workers, user.project, user.job_id, user.step))
