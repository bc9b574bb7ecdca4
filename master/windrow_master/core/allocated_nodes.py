"""Nodes that run in an allocation of a fleet (`windrow agent --allocation`).

A node names its allocation when it registers. A fleet names the node's allocation when it reports what the engine says.
Either may come first, so both look for the other.

What a node held that an engine has ended is lost work, charged to nobody: the engine took the node, no mini-batch did.
The node may be lost before the engine's word comes; then the charges are taken back (`note_charged`, `take_back`).
Where the engine says that the allocation failed, they stay: a mini-batch that brings down its node may have done it.

What a node names is a claim: whoever has a join token may name any allocation. So nobody takes an allocation from the
agent that serves in it, except the one that its fleet started: that is called as the allocation.

Invariants:
1. A node is linked to the allocation that it named last, and to no other: the end of an earlier one does not touch it.
2. No allocation that has ended gets a node.
3. Only the node to which an allocation is linked changes it, or is changed by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windrow_master.core.budgets import uncount_failure
from windrow_master.core.commands import Moment
from windrow_master.core.ids import NodeId
from windrow_master.core.refused import Refused
from windrow_master.core.state import Charge, CoreState, Node, Step
from windrow_master.core.states import AllocationState, Cause, MiniBatchState, NodeState, StepState

if TYPE_CHECKING:
    from windrow_master.core.allocations import Allocation

CHARGES_KEPT = 1_000
"""Of one allocation. A node does not hold that many mini-batches that have begun."""
ALLOCATIONS_CHARGED = 1_000
"""So many allocations are remembered whose nodes were lost before the engine said what became of them."""
LEFT = "Its agent has left."


def why_not_admitted(state: CoreState, allocation: str, node_id: NodeId, node_incarnation: str) -> Refused | None:
    """Why an agent may not join in an allocation; None if it may. One that had left, as it seemed, may come back."""
    known = state.allocations.get(allocation)
    if known is not None and (other := _in_the_way(state, known, node_id)) is not None:
        return Refused(
            "ALLOCATION_TAKEN",
            f"The node {other.node_id} serves in the allocation {allocation} of the fleet {known.fleet}, which holds "
            f"one agent. {node_id} joins once that one has left or is lost; its agent tries again. If it was started "
            "by hand, leave out --allocation.",
        )
    ended = state.ended_allocations.get(allocation)
    came_back = node_id, node_incarnation
    if ended is None or (
        ended.state == AllocationState.COMPLETED and (ended.node_id, ended.node_incarnation) == came_back
    ):
        return None
    why = f" ({ended.brief_reason.rstrip('.')})" if ended.brief_reason else ""
    return Refused(
        "ALLOCATION_ENDED",
        f"The allocation {allocation} of the fleet {ended.fleet} is {ended.state.name.lower()}{why}, so no agent may "
        "join in it. The fleet asks its engine for another one where agents are needed: windrow fleet show "
        f"{ended.fleet}",
    )


def _in_the_way(state: CoreState, known: Allocation, node_id: NodeId) -> Node | None:
    """Another node that serves in an allocation, and that this one does not replace; None if there is none."""
    other = node_of(state, known)
    if other is None or other.node_id == node_id or other.state == NodeState.LOST or node_id == known.name:
        return None
    return other


def link(state: CoreState, node: Node, now: Moment) -> None:
    """Note in a node's allocation that its agent has joined. One that no fleet has reported is linked when it is."""
    known = state.allocations.get(node.allocation)
    if known is None or _in_the_way(state, known, node.node_id) is not None:
        return
    linked = known
    if known.state != AllocationState.STARTED:
        linked = known.become(AllocationState.STARTED, now.wall_s)
    linked = linked._replace(
        node_id=node.node_id,
        node_incarnation=node.node_incarnation,
        join_time=known.join_time or now.wall_s,
    )
    if linked != known:
        state.touch_allocation(linked)


def node_of(state: CoreState, allocation: Allocation) -> Node | None:
    """The node that runs in an allocation now; None if there is none."""
    node = state.nodes.get(NodeId(allocation.node_id))
    if node is None or node.allocation != allocation.name:
        return None
    return node if node.node_incarnation == allocation.node_incarnation else None


def note_left(state: CoreState, node: Node, now: Moment) -> None:
    """Complete the allocation of a node whose agent has left by itself, whether or not its engine has said so yet."""
    known = state.allocations.get(node.allocation)
    if known is not None and node_of(state, known) is node:
        state.touch_allocation(known.become(AllocationState.COMPLETED, now.wall_s)._replace(reason=LEFT))


def note_charged(state: CoreState, node: Node, charges: list[Charge]) -> None:
    """Note what was charged when a node was lost, until the engine says what became of its allocation, which its fleet
    need not have reported yet.
    """
    if not charges or not node.allocation or node.allocation in state.ended_allocations:
        return
    allocation = state.allocations.get(node.allocation)
    if allocation is not None and node_of(state, allocation) is not node:
        return  # another node's allocation
    known = state.fleet_view.charged.setdefault(node.allocation, [])
    known += charges[: max(0, CHARGES_KEPT - len(known))]
    if len(state.fleet_view.charged) > ALLOCATIONS_CHARGED:
        del state.fleet_view.charged[next(iter(state.fleet_view.charged))]


def take_back(state: CoreState, allocation: Allocation) -> None:
    """Take back what was charged for the loss of an allocation's node, now that the engine says that it ended it."""
    charges = state.fleet_view.charged.pop(allocation.name, ())
    if allocation.state == AllocationState.FAILED:
        return
    for charge in charges:
        step = state.steps.get(charge.step_id)
        if step is None or step.state != StepState.RUNNING:
            continue
        if state.jobs[step.job_key].generation == charge.generation:
            with state.contained(step):
                _uncharge(state, step, charge, f"{of(allocation)}.")


def _uncharge(state: CoreState, step: Step, charge: Charge, message: str) -> None:
    mini_batch, table = charge.mini_batch, step.mini_batches
    tries = table.tries.get(mini_batch)
    if table.states[mini_batch] == MiniBatchState.FAILED or tries is None:
        return
    tries.lost_lease_ids.discard(charge.lease_id)
    uncount_failure(tries, Cause.NODE_LOST)
    if charge.kind in tries.kinds:
        tries.kinds.remove(charge.kind)
    step.counters.take_back_failure(Cause.NODE_LOST, charge.kind)
    state.abandon_failed(step, mini_batch, charge.lease_id, Cause.PREEMPTED, message)
    state.touch_step(step)


def of(allocation: Allocation) -> str:
    """What became of an allocation, in words."""
    became = {
        AllocationState.COMPLETED: "has ended",
        AllocationState.PREEMPTED: "was preempted",
        AllocationState.EXPIRED: "has come to the end of its time",
        AllocationState.CANCELLED: "was cancelled",
        AllocationState.FAILED: "has failed",
        AllocationState.LOST: "is gone: its engine does not know it",
    }
    why = f" ({allocation.brief_reason.rstrip('.')})" if allocation.brief_reason else ""
    return f"The allocation {allocation.name} of the fleet {allocation.fleet} {became[allocation.state]}{why}"
