"""Who gets what: run once a group of commands, never inside a handler."""

from __future__ import annotations

from windrow_master.core import effects as fx
from windrow_master.core.commands import Moment
from windrow_master.core.leases import Lease
from windrow_master.core.pools import working_nodes
from windrow_master.core.settings import NODE_LOSSES_UNTIL_EXCLUSIVE
from windrow_master.core.state import CoreState, Node, Step
from windrow_master.core.states import JobState, MiniBatchState, NodeState, StepState


def pick(state: CoreState, now: Moment) -> None:
    """Offer steps to nodes and hand out leases: by priority, then age; among nodes evenly, the emptiest first."""
    if state.held or not state.scheduling_wanted or not _settled(state, now):
        return
    state.scheduling_wanted = False
    serving = [
        node for node in state.nodes.values() if node.state == NodeState.READY and node.stream and not node.cordoned
    ]
    if not serving:
        return
    steps = [step for step in state.steps.values() if _may_be_leased(state, step)]
    steps.sort(key=lambda step: (-state.jobs[step.job_key].priority, step.job_key, step.ordinal))
    for step in steps:
        nodes = working_nodes(state, step, serving)
        step.node_ids = {node.node_id for node in nodes}
        for node in nodes:
            if step.step_id not in node.offered:
                node.offered.add(step.step_id)
                step.sent_to.add(node.node_id)
                if step.offered_s is None:
                    step.offered_s = now.monotonic_s
                state.effects.append(fx.SendStep(node.node_id, node.stream, step.step_id))
        _hand_out(state, step, nodes, now)


def _may_be_leased(state: CoreState, step: Step) -> bool:
    """Whether mini-batches of this step may be leased: it is planned to a part at least, and its job runs."""
    return (
        step.state == StepState.RUNNING
        and step.reader is not None
        and state.jobs[step.job_key].state == JobState.RUNNING
    )


def _settled(state: CoreState, now: Moment) -> bool:
    """After a start, whether the nodes known from before have said what they hold (or had their time to)."""
    if not state.settle_until_s:
        return True
    if now.monotonic_s < state.settle_until_s and any(not node.greeted for node in state.nodes.values()):
        return False
    state.settle_until_s = 0.0
    return True


def _hand_out(state: CoreState, step: Step, serving: list[Node], now: Moment) -> None:
    ready = step.ready.ready_count(now.monotonic_s)
    if not ready:
        _recall(state, step, serving)
        return
    step_id = step.step_id
    wanting: list[tuple[int, int, Node]] = []
    for at, node in enumerate(serving):
        held = node.held.get(step_id, 0)
        room = node.capacity.get(step_id, 0) - held
        if room > 0:
            wanting.append((held, at, node))
    wanting.sort()
    for position, (held, _, node) in enumerate(wanting):
        if not ready:
            break
        room = node.capacity[step_id] - held
        share = min(room, -(-ready // (len(wanting) - position)))
        leases = _grant(state, step, node, step.ready.take(share, now.monotonic_s), now)
        ready -= len(leases)
        state.effects.append(fx.SendAssignments(node.node_id, node.stream, step_id, leases))


def _grant(state: CoreState, step: Step, node: Node, mini_batches: list[int], now: Moment) -> list[Lease]:
    """Lease mini-batches to a node; on the hot path, so what they have in common is looked up once."""
    step_id, node_id, granted_s = step.step_id, node.node_id, now.monotonic_s
    generation = state.jobs[step.job_key].generation
    table = step.mini_batches
    states, attempts, troubles, leased = table.states, table.attempts, table.tries, MiniBatchState.LEASED
    leases: list[Lease] = []
    for lease_id, mini_batch in zip(state.next_lease_ids(len(mini_batches)), mini_batches, strict=True):
        lease = Lease(lease_id, step_id, mini_batch, generation, node_id, granted_s)
        states[mini_batch] = leased
        if mini_batch in attempts:
            lease.attempt += attempts[mini_batch]
        if mini_batch in troubles:
            lease.exclusive = troubles[mini_batch].node_losses >= NODE_LOSSES_UNTIL_EXCLUSIVE
        leases.append(lease)
    if step.start_time is None:
        step.start_time = now.wall_s
    state.touch_step(step)  # who watches the job sees it leased
    state.add_leases(leases, node, step)
    state.unstored.extend(lease.lease_id for lease in leases)
    return leases


def _recall(state: CoreState, step: Step, serving: list[Node]) -> None:
    """Nothing waits, yet a node is idle while another holds more than its workers run: ask for half of that back."""
    step_id = step.step_id
    idle = [node for node in serving if node.capacity.get(step_id, 0) > 0 and not node.held.get(step_id, 0)]
    if not idle:
        return
    hoarder = max(serving, key=lambda node: node.held.get(step_id, 0) - max(1, node.workers.get(step_id, 1)))
    surplus = hoarder.held.get(step_id, 0) - max(1, hoarder.workers.get(step_id, 1))
    if surplus <= 0:
        return
    mine = sorted(lease_id for lease_id in hoarder.lease_ids if state.leases[lease_id].step_id == step_id)
    newest = [lease_id for lease_id in mine if not state.leases[lease_id].recalled][-((surplus + 1) // 2) :]
    if newest:
        for lease_id in newest:
            state.leases[lease_id].recalled = True
        state.effects.append(fx.RevokeLeases(hoarder.node_id, hoarder.stream, newest, started_too=False))
