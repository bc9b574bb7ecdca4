"""Nodes whose end is known: an engine ends their allocation, and their agents say when (`windrow agent --lifetime`).

Such a node is leased a mini-batch only while its workers can be expected to finish one: the time that is left covers
the duration that nearly all mini-batches of the step keep to, and the start of a worker where none is ready. What is
cut off at the end is lost work, which is charged to nobody, but done twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from windrow_master.core.commands import Moment
from windrow_master.core.ids import LeaseId
from windrow_master.core.leases import Lease
from windrow_master.core.state import CoreState, Node, Step
from windrow_master.core.states import NodeState

NEARLY_ALL = 0.95
"""The share of a step's mini-batches whose duration counts."""

TWICE = 2.0
"""So many times as long as a mini-batch had run when it was cut off, a node must live that gets it next."""

_LONGER = 1.1
"""How much longer than what was cut off a node must live, while no mini-batch of the step has got through."""


def left_s(node: Node, now: Moment) -> float:
    """How long the node still lives, in seconds; inf if nothing is known to end it."""
    return max(0.0, node.ends_s - now.monotonic_s)


def wanted_s(node: Node, step: Step) -> float:
    """How long a worker on the node takes until it has finished its next mini-batch, in seconds, nearly always; 0.0
    while nobody knows. The start of a worker counts where none is known to be ready. As long as no mini-batch has got
    through, what ends of nodes have cut off says that it takes longer than that.
    """
    start_s = 0.0 if step.step_id in node.ready_steps else step.counters.mean_start_s()
    return start_s + longest_s(step) if step.counters.measured else max(start_s, longest_s(step))


def longest_s(step: Step) -> float:
    """How long nearly every mini-batch of a step takes, at most, in seconds; 0.0 while nobody knows."""
    if not step.counters.measured:
        return _LONGER * step.nodes.cut_off_s
    return step.counters.duration_s(NEARLY_ALL)


def life_s(step: Step) -> float:
    """How long a node must live that is to run any mini-batch of a step that waits, in seconds; 0.0 while nobody
    knows.
    """
    return max(longest_s(step), max(step.ready.long.values(), default=0.0))


def can_finish(node: Node, step: Step, now: Moment) -> bool:
    """Whether a worker that begins a mini-batch of the step on the node now can be expected to finish it there."""
    if node.ends_s == math.inf:
        return True
    if wanted_s(node, step) >= left_s(node, now):
        return False
    # What the node still runs of the step, it may finish.
    if not step.ready.has_only_long or node.held.get(step.step_id):
        return True
    return step.ready.least_life_s < left_s(node, now)


def note_lives(step: Step, nodes: Iterable[Node], now: Moment) -> None:
    """Note how long the nodes live that may have the step's mini-batches which need much time."""
    step.ready.longest_life_s = max((left_s(node, now) for node in nodes), default=0.0)


def leases_in_time(node: Node, step: Step, slots: int, now: Moment) -> float:
    """How many leases the workers of a node, so many, can be expected to finish one after the other; inf for a node
    that nothing is known to end.
    """
    if node.ends_s == math.inf:
        return math.inf
    if not can_finish(node, step, now):
        return 0
    each_s = step.counters.duration_s(NEARLY_ALL)
    if each_s <= 0:
        return math.inf
    return slots * math.floor((left_s(node, now) - wanted_s(node, step) + each_s) / each_s)


def note_begun(state: CoreState, node: Node, running: Iterable[tuple[LeaseId, float]], now: Moment) -> None:
    """Note since when workers of a node have run their mini-batches. `running`: for how long, by lease."""
    for lease_id, for_s in running:
        lease = state.leases.get(lease_id)
        if lease is not None and lease.node_id == node.node_id:
            begun_s = max(lease.granted_s, now.monotonic_s - for_s)
            lease.begun_s = begun_s if lease.begun_s is None else min(lease.begun_s, begun_s)


def note_cut_off(node: Node, step: Step, lease: Lease, now: Moment) -> None:
    """Note how long a lease has lasted that comes back without a result, if the end of its node's lifetime is why.

    A mini-batch that had run for longer than nearly all others of its step takes longer than these, nobody knows how
    long: it runs again where it has twice the time.
    """
    if node.ends_s == math.inf or not (node.state == NodeState.DRAINING or now.monotonic_s >= node.ends_s):
        return
    step.nodes.cut_off_s = max(step.nodes.cut_off_s, now.monotonic_s - lease.granted_s)
    if lease.begun_s is None or not step.counters.measured:
        return
    ran_s = now.monotonic_s - lease.begun_s
    if ran_s > step.counters.duration_s(NEARLY_ALL):
        step.ready.note_life(lease.mini_batch, TWICE * ran_s)
