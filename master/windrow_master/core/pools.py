"""Which nodes may work on a step: those of its pool, and at most `instance_count` of them at a time.

A node is in the pools that its agent names (`windrow agent --pool`). A node in no pool works on any step. A node in
pools works on steps that name one of them, and on those that name none. So a job file that names a `compute` runs
unchanged on nodes without pools; machines are kept apart where their agents are started. A pool is not the set of
worker processes of a node, which its agent calls the workforce.
Reference: docs/reference/azure-ml/parallel-job.md#parallel-steps (compute, resources.instance_count).
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from windrow_master.core.ids import NodeId
from windrow_master.core.needs import can_have
from windrow_master.core.state import CoreState, Node, Step

LABEL = "pool"
"""The label of a node that names its pools, with commas between them."""


def pools_of(labels: bytes) -> frozenset[str]:
    """The pools that a node's labels (a JSON object) name."""
    value = json.loads(labels or b"{}").get(LABEL, "")
    return frozenset(name.strip() for name in value.split(",") if name.strip())


def is_in_pool(node: Node, step: Step) -> bool:
    """Whether a node's pools allow it to work on a step."""
    wanted = step.settings.compute
    return not wanted or not node.pools or wanted in node.pools


def works_on(node: Node, step: Step) -> bool:
    """Whether a node is one of those that may get work of a step, as of the last `pick`."""
    return is_in_pool(node, step) and (step.settings.instance_count is None or node.node_id in step.nodes.chosen)


def working_nodes(state: CoreState, step: Step, serving: Mapping[NodeId, Node]) -> list[Node]:
    """The serving nodes that may get work of a step."""
    if step.settings.instance_count is None:
        return [node for node in serving.values() if is_in_pool(node, step)]
    return [serving[node_id] for node_id in sorted(choose_nodes(state, step, serving))]


def choose_nodes(state: CoreState, step: Step, serving: Mapping[NodeId, Node]) -> set[NodeId]:
    """The serving nodes that may get work of a step whose `instance_count` bounds their number.

    They stay the same for as long as they can serve (`StepNodes.chosen`): a node that holds leases of the step counts
    even while it is away. When one has gone or has given the step up, another takes its place: the one with the fewest
    leases, then with the fewest steps.
    """
    count = step.settings.instance_count or 0
    chosen = {state.leases[lease_id].node_id for lease_id in step.lease_ids}
    chosen |= {node_id for node_id in step.nodes.chosen if node_id in serving and _is_able(serving[node_id], step)}
    if len(chosen) < count:
        others = [node for node in serving.values() if node.node_id not in chosen and _is_able(node, step)]
        others.sort(key=lambda node: (len(node.lease_ids), len(node.offered)))
        chosen.update(node.node_id for node in others[: count - len(chosen)])
    return {node_id for node_id in chosen if node_id in serving and is_in_pool(serving[node_id], step)}


def _is_able(node: Node, step: Step) -> bool:
    able = is_in_pool(node, step) and can_have(node, step)
    return able and step.step_id not in node.given_up and step.step_id not in node.aside_for


def has_other_node(state: CoreState, step: Step, mini_batch: int) -> bool:
    """Whether there is a node for a step on which this mini-batch has not failed yet."""
    tries = step.mini_batches.tries.get(mini_batch)
    failed_on = tries.nodes if tries is not None else ()
    return any(
        node.serves
        and node.capacity.get(step.step_id, 1) > 0
        and works_on(node, step)
        and can_have(node, step)
        and node.node_id not in failed_on
        for node in state.nodes.values()
    )
