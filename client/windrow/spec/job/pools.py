"""The pool of nodes that a step runs on.

Reference: docs/reference/azure-ml/parallel-job.md#pipelines, #parallel-steps.
"""

from __future__ import annotations

from windrow.spec.job.pipeline_settings import read_compute
from windrow.spec.reading.context import Context, origin_of
from windrow.spec.reading.keys import Resolve, read_text, read_texts
from windrow.spec.reading.nodes import Mapping, Node, Scalar, is_null, shown


def step_pool(entries: dict[str, Node], key: str, context: Context, resolve: Resolve) -> str:
    """The pool of a step with these `entries`; "" for any node. `compute` names it, else the pipeline's default one,
    else `resources.instance_type`, if the cluster has a pool of that name. Warns of an `instance_type` that names none.
    """
    compute = read_compute(entries.get("compute"), f"{key}.compute", context, resolve)
    compute = context.default_compute if compute is None else compute
    resources = entries.get("resources")
    node = resources.entries.get("instance_type") if isinstance(resources, Mapping) else None
    if node is None or is_null(node):
        return compute
    named = _instance_types(node, f"{key}.resources.instance_type", context, resolve)
    if not named or compute in named:
        return compute
    if not compute:
        known = context.pools()
        pool = next((name for name in named if known is not None and name in known), "")
        if pool:
            context.origins[f"{key}.compute"] = origin_of(node)
            return pool
    why = f"the step runs in the pool {compute}, which its compute names" if compute else _no_pool(named[0], context)
    context.problems.warn(node, f"{key}.resources.instance_type", f"{shown(node)} has no effect: {why}.")
    return compute


def _instance_types(node: Node, key: str, context: Context, resolve: Resolve) -> list[str]:
    """The names that are given: one, or a list of those that would do."""
    if isinstance(node, Scalar):
        text = read_text(node, key, context, resolve)
        return [] if text is None or not text.strip() else [text.strip()]
    return read_texts(node, key, context)


def _no_pool(name: str, context: Context) -> str:
    size = "it is a size of machines, and Windrow does not create machines"
    if context.pools() is None:
        return f"{size}; a run on this machine uses this machine. On a cluster, it means the pool of that name"
    return (
        f"{size}. No agent is in a pool of that name, so the step runs on any node. To choose its nodes, name their "
        f"pool by compute, or start their agents with --pool {name}"
    )
