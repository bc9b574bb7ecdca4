"""What a worker needs of a node, and how many workers with such needs nodes can have.

A slot stands for a processor: a node has one for each processor that its agent may use, unless its agent is told
another number. A worker whose step says nothing takes a slot, and nothing else that is counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from windrow.common.device_packing import ROUNDING, is_fraction

from windrow_master.core.sharing.placing import Vector
from windrow_master.core.state import Node, Step

RESOURCES = ("cpus", "memory", "gpus")
"""The names of resources, in the order of a vector."""


class Shortage(NamedTuple):
    """That no node has what one worker needs of a resource."""

    resource: str
    """One of `RESOURCES`."""
    needed: float
    most: float
    """The most that one of the nodes has, or has free."""
    node_id: str
    """That node."""


def need_of(step: Step, *, is_wide: bool) -> Vector:
    """What a worker takes of a node, of each resource in its own unit. `is_wide`: memory and GPUs are counted, too."""
    settings = step.settings
    slots = 1.0 if settings.cpus_per_worker is None else settings.cpus_per_worker
    return (slots, float(settings.memory_per_worker), settings.gpus_per_worker) if is_wide else (slots,)


def total_of(node: Node, *, is_wide: bool) -> Vector:
    """What a node has of each resource."""
    slots = float(node.slots)
    return (slots, float(node.memory_bytes), float(node.gpu_count)) if is_wide else (slots,)


def most_on(node: Node, step: Step) -> int:
    """How many workers of a step a node can have, if it has no others; by what they need alone."""
    need, total = need_of(step, is_wide=True), total_of(node, is_wide=True)
    counts = [math.floor((all_ + ROUNDING) / each) for each, all_ in zip(need, total, strict=True) if each > 0]
    gpus = step.settings.gpus_per_worker
    if is_fraction(gpus):
        counts.append(node.gpu_count * math.floor(1 / gpus + ROUNDING))
    return max(0, min(counts))


def can_have(node: Node, step: Step) -> bool:
    """Whether a node has what a worker of a step needs."""
    return not step.settings.has_needs or most_on(node, step) > 0


def shortage(nodes: Iterable[Node], step: Step) -> Shortage | None:
    """What none of these nodes has for one worker of a step; None if one of them can have it, or none is short of a
    resource alone.
    """
    there = sorted(nodes, key=lambda node: node.node_id)
    if not there or any(can_have(node, step) for node in there):
        return None
    need = need_of(step, is_wide=True)
    found = None
    for at, resource in enumerate(RESOURCES):
        largest = max(there, key=lambda node: total_of(node, is_wide=True)[at])
        most = total_of(largest, is_wide=True)[at]
        if need[at] > most + ROUNDING:
            return Shortage(resource, need[at], most, largest.node_id)
        lacking = [node for node in there if need[at] > total_of(node, is_wide=True)[at] + ROUNDING]
        if found is None and lacking:
            # No node is short of this alone: each lacks something else.
            best = max(lacking, key=lambda node: total_of(node, is_wide=True)[at])
            found = Shortage(resource, need[at], total_of(best, is_wide=True)[at], best.node_id)
    return found
