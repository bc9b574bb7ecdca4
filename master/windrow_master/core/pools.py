"""Which nodes may work on a step: those of its pool, and at most `instance_count` of them at a time.

A node is in the pools that its agent names (`windrow agent --pool`). A node in no pool works on any step. A node in
pools works on steps that name one of them, and on those that name none. So a job file that names a `compute` runs
unchanged on nodes without pools; machines are kept apart where their agents are started. A pool is not the set of
worker processes of a node, which its agent calls the workforce.
Reference: docs/reference/azure-ml/parallel-job.md#parallel-steps (compute, resources.instance_count).
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from windrow_master.core.state import CoreState, Node, Step
from windrow_master.core.states import NodeState

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


def working_nodes(state: CoreState, step: Step, serving: Iterable[Node]) -> list[Node]:
    """The serving nodes that may get work of a step.

    If their number is limited, they stay the same for as long as they can serve (`StepNodes.chosen`): a node that holds
    leases of the step counts even while it is away. When one has gone or has given the step up, another takes its
    place: the one with the fewest leases, then with the fewest steps.
    """
    nodes = [node for node in serving if is_in_pool(node, step)]
    count = step.settings.instance_count
    if count is None:
        return nodes
    able = [node for node in nodes if step.step_id not in node.given_up and step.step_id not in node.aside_for]
    chosen = {node.node_id for node in state.nodes.values() if node.held.get(step.step_id, 0) > 0}
    chosen.update(node.node_id for node in able if node.node_id in step.nodes.chosen)
    others = [node for node in able if node.node_id not in chosen]
    others.sort(key=lambda node: (len(node.lease_ids), len(node.offered)))
    chosen.update(node.node_id for node in others[: max(0, count - len(chosen))])
    return [node for node in nodes if node.node_id in chosen]


def has_other_node(state: CoreState, step: Step, mini_batch: int) -> bool:
    """Whether there is a node for a step on which this mini-batch has not failed yet."""
    tries = step.mini_batches.tries.get(mini_batch)
    failed_on = tries.nodes if tries is not None else ()
    return any(
        node.state == NodeState.READY
        and node.stream
        and not node.cordoned
        and node.capacity.get(step.step_id, 1) > 0
        and node.node_id in step.nodes.chosen
        and node.node_id not in failed_on
        for node in state.nodes.values()
    )
