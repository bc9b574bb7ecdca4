"""Compares each decision about shares with one from scratch."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from unittest.mock import patch

from windrow_master.core import scheduling
from windrow_master.core.commands import Moment
from windrow_master.core.effects import SendShares
from windrow_master.core.ids import NodeId
from windrow_master.core.sharing.placing import Layout
from windrow_master.core.state import CoreState, Node, Step


@contextmanager
def compared_with_scratch() -> Iterator[list[bool]]:
    """Within, each decision must come out as it does for a core that remembers nothing of the earlier ones but what is
    owed. Gives whether something changed, for each decision.
    """
    decide, changed = scheduling.shares.decide, []

    def compared(state: CoreState, steps: Sequence[Step], serving: Mapping[NodeId, Node], now: Moment) -> None:
        fresh, same_steps, same_nodes = copy.deepcopy((state, steps, serving))
        fresh.shares.streams = []
        for group in fresh.shares.groups.values():
            group.layout = Layout()
        before = {node_id: dict(node.shares) for node_id, node in serving.items()}
        decide(fresh, same_steps, same_nodes, now)
        decide(state, steps, serving, now)
        for node_id, node in serving.items():
            other = same_nodes[node_id]
            assert (node.shares, node.shares_since) == (other.shares, other.shares_since), node_id
            assert node.shares_told == other.shares_told, node_id
        assert _told(state) == _told(fresh)
        assert state.shares.due_s == fresh.shares.due_s
        check_layouts(state)
        changed.append(any(before[node_id] != node.shares for node_id, node in serving.items()))

    with patch.object(scheduling.shares, "decide", compared):
        yield changed


def _told(state: CoreState) -> list[SendShares]:
    return sorted(effect for effect in state.effects if isinstance(effect, SendShares))


def check_layouts(state: CoreState) -> None:
    """Raise AssertionError if what is kept between decisions contradicts itself or the nodes."""
    for group in state.shares.groups.values():
        layout = group.layout
        on = {(step_id, node_id): count for step_id, crew in layout.crews.items() for node_id, count in crew.on.items()}
        assert all(sum(crew.on.values()) == crew.held for crew in layout.crews.values())
        there = {}
        for at in layout.places.values():
            assert at.workers is state.nodes[at.node_id].shares and at.needs.keys() == at.workers.keys()
            there.update({(step_id, at.node_id): count for step_id, count in at.workers.items()})
        assert there == on
