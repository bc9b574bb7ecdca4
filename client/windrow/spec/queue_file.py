"""The file of queues, as `windrow queue apply` takes it: what each project may have of the cluster.

queues:
  vision: {weight: 2, quota: 8, limit: 16}
  nightly: {priority: -10, pools: {gpu: {quota: 2, limit: 4}}}
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import NamedTuple

from windrow.common.queue_settings import (
    ADMITTED_JOBS,
    ADMITTED_JOBS_MAX,
    PRIORITY_MAX,
    SLOTS_MAX,
    UNBOUND,
    WEIGHT_MAX,
    WEIGHT_MIN,
    Bounds,
    QueueSettings,
)
from windrow.spec.naming.names import JOB_NAME
from windrow.spec.reading.context import Context
from windrow.spec.reading.keys import as_mapping, check_keys, read_scalar
from windrow.spec.reading.mapping_file import read_mapping_file
from windrow.spec.reading.nodes import Mapping, Node, Place, is_null
from windrow.spec.reading.problems import Problem
from windrow.spec.settings.fields import Field

_BOUNDS = {"quota": Field("number", 0, SLOTS_MAX, unit="slots"), "limit": Field("number", 0, SLOTS_MAX, unit="slots")}
_QUEUE = {
    "weight": Field("number", WEIGHT_MIN, WEIGHT_MAX),
    "priority": Field("int", -PRIORITY_MAX, PRIORITY_MAX),
    **_BOUNDS,
    "admitted_jobs": Field("int", 1, ADMITTED_JOBS_MAX),
    "pools": Field("node"),
}


class QueueFile(NamedTuple):
    """The content of a file of queues. `queues`: settings by the name of the project."""

    queues: dict[str, QueueSettings]
    warnings: tuple[Problem, ...]


def load_queue_file(path: str | os.PathLike[str]) -> QueueFile:
    """Read a file of queues. Raises JobFileError with all that is wrong."""
    root, context = read_mapping_file(path, "queues", "a file of queues is a mapping, with the key queues.")
    check_keys(root, {"queues": Field("node")}, "", context)
    if "queues" not in root.entries:
        context.problems.error(root, "queues", "is missing; write the settings of each project below it, by its name.")
    queues = {}
    for name, node, place in _entries(root.entries.get("queues"), "queues", context):
        key = f"queues.{name}"
        _check_name(name, "project", place, key, context)
        queue = None if is_null(node) else as_mapping(node, key, context)
        queues[name] = QueueSettings() if queue is None else _queue(queue, key, context)
    context.problems.raise_errors()
    return QueueFile(queues, tuple(context.problems.warnings))


def _queue(queue: Mapping, key: str, context: Context) -> QueueSettings:
    check_keys(queue, _QUEUE, key, context)
    weight = read_scalar(queue.entries.get("weight"), _QUEUE["weight"], f"{key}.weight", context)
    priority = read_scalar(queue.entries.get("priority"), _QUEUE["priority"], f"{key}.priority", context)
    admitted_jobs = read_scalar(
        queue.entries.get("admitted_jobs"), _QUEUE["admitted_jobs"], f"{key}.admitted_jobs", context
    )
    pools = {}
    for pool, node, place in _entries(queue.entries.get("pools"), f"{key}.pools", context):
        _check_name(pool, "pool", place, f"{key}.pools.{pool}", context)
        bounds = as_mapping(node, f"{key}.pools.{pool}", context)
        if bounds is not None:
            check_keys(bounds, _BOUNDS, f"{key}.pools.{pool}", context)
            pools[pool] = _bounds(bounds, f"{key}.pools.{pool}", context)
    return QueueSettings(
        1.0 if weight is None else float(weight),
        int(priority or 0),
        _bounds(queue, key, context),
        pools,
        ADMITTED_JOBS if admitted_jobs is None else int(admitted_jobs),
    )


def _bounds(mapping: Mapping, key: str, context: Context) -> Bounds:
    quota, limit = (
        read_scalar(mapping.entries.get(name), _BOUNDS[name], f"{key}.{name}", context) for name in ("quota", "limit")
    )
    bounds = Bounds(float(quota or 0), math.inf if limit is None else float(limit))
    if bounds.quota > bounds.limit:
        said = f"is more than the limit, {bounds.limit:g}. Lower it, or raise that."
        context.problems.error(mapping.entries["quota"], f"{key}.quota", said)
        return UNBOUND
    return bounds


def _entries(node: Node | None, key: str, context: Context) -> Iterator[tuple[str, Node, Place]]:
    """The entries of a mapping, each with the place of its key."""
    mapping = as_mapping(node, key, context)
    if mapping is not None:
        for name, entry in mapping.entries.items():
            yield name, entry, mapping.key_places[name]


def _check_name(name: str, what: str, place: Place, key: str, context: Context) -> None:
    if not JOB_NAME.fullmatch(name):
        allowed = "at most 64 letters, digits, _, . and -, starting with a letter or digit"
        context.problems.error(place, key, f'"{name}" is not a valid name of a {what}; use {allowed}.')
