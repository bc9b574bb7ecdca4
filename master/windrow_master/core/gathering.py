"""Steps that begin on several nodes at once (`StepSettings.min_nodes`): all or nothing.

    waits ──enough is to be had──► holds ──a place on each, and they take work──► begun
      ▲                              │
      └──rested─── rests ◄──too long, or no longer to be had

1. A step that gathers has one worker on a node at most, and leases none of its mini-batches before it has begun.
2. It holds places only while its share of the cluster is enough for all of them, and nobody before it gathers on the
   same nodes. So two steps never hold what the other one lacks. Others that gather, and hold nothing, do not lessen
   its share.
3. What it holds is released after `HOLD_S` if it is not all. Then it rests, unless all that it needs is free.

All of this is about the start. Once it has begun, a step is like all others. Volatile: a new master lets those gather
anew of which nothing has run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from windrow.common.device_packing import ROUNDING

from windrow_master.core.commands import Moment
from windrow_master.core.ids import NodeId
from windrow_master.core.needs import can_have, need_of, total_of
from windrow_master.core.state import CoreState, Node, Step

HOLD_S = 60.0
"""How long places are held that are not all that the step needs."""

REST_S = 60.0
"""How long a step that has released what it held holds nothing."""


def gathers(step: Step) -> bool:
    """Whether it has to have several nodes at once, and has not begun."""
    return step.settings.min_nodes > 1 and not step.gathering.is_done


def needed(step: Step) -> int:
    """On how many nodes it begins: no more than it has mini-batches."""
    if not step.plan.is_done:
        return step.settings.min_nodes
    return max(1, min(step.settings.min_nodes, step.counters.planned - step.counters.ended))


@dataclass(slots=True)
class Gatherers:
    """Decides, in one decision about shares, which of the steps that gather may hold places. Ask in their order."""

    state: CoreState
    now: Moment
    taken: set[NodeId] = field(default_factory=set)
    """Where one that was asked about before holds some."""

    def may_hold(self, step: Step, nodes: Iterable[Node], entitled: Callable[[int], int]) -> bool:
        """Whether a step may hold places. `nodes`: those that may have its workers. `entitled`: how many workers it is
        entitled to if it can use so many.
        """
        known, need = step.gathering, needed(step)
        able = [node for node in nodes if can_have(node, step) and step.step_id not in node.given_up]
        known.able, known.entitled = len(able), None
        known.is_behind = not self.taken.isdisjoint(node.node_id for node in able)
        if len(able) < need:
            self.state.shares.awaited.update(node.node_id for node in able)
        rests = self.now.monotonic_s < known.rests_until_s and not self._is_all_free(step, able, need)
        if len(able) < need or known.is_behind or rests:
            self._release(step, rests=rests)
            return False
        known.entitled = entitled(need)
        if known.entitled < need:
            self._release(step, rests=False)
            return False
        known.rests_until_s = -math.inf
        self.taken |= {node.node_id for node in able}
        return True

    def _release(self, step: Step, *, rests: bool) -> None:
        if step.gathering.since_s is not None and not rests:
            step.gathering.rests_until_s = self.now.monotonic_s + REST_S
        step.gathering.since_s, step.gathering.nodes = None, 0

    def _is_all_free(self, step: Step, able: Collection[Node], need: int) -> bool:
        return sum(_is_free(self.state, node, step) for node in able) >= need


def _is_free(state: CoreState, node: Node, step: Step) -> bool:
    """Whether a node has room for one worker of a step beside those of others."""
    left = list(total_of(node, is_wide=True))
    for step_id, count in node.shares.items():
        if step_id != step.step_id and (other := state.steps.get(step_id)) is not None:
            left = [room - count * each for room, each in zip(left, need_of(other, is_wide=True), strict=True)]
    return all(each <= room + ROUNDING for each, room in zip(need_of(step, is_wide=True), left, strict=True))


def note_places(step: Step, nodes: int, now: Moment) -> bool:
    """Note on how many nodes a step that may hold places has one now. Return whether it has held too few for too long:
    then it rests.
    """
    known = step.gathering
    known.nodes = nodes
    if nodes >= needed(step) or not nodes:
        known.since_s = None
    elif known.since_s is None:
        known.since_s = now.monotonic_s
    elif now.monotonic_s - known.since_s >= HOLD_S:
        known.since_s, known.rests_until_s = None, now.monotonic_s + REST_S
        return True
    return False


def due_s(step: Step, now: Moment) -> float:
    """When (monotonic) time alone changes what a step may hold; inf: it does not."""
    known = step.gathering
    moments = [known.rests_until_s, math.inf if known.since_s is None else known.since_s + HOLD_S]
    return min((moment for moment in moments if moment > now.monotonic_s), default=math.inf)


def nodes_that_take_work(step: Step, nodes: Iterable[Node]) -> int:
    """On how many nodes the step has a place and would begin: its code and environment are there."""
    return sum(bool(node.shares.get(step.step_id)) and node.capacity.get(step.step_id, 0) > 0 for node in nodes)
