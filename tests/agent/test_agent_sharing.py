"""How much is held ahead, and how steps share a node's slots: pure functions."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given
from windrow_agent.leases.pace import (
    DEPTH_MAX,
    RESULTS_GATHER_BYTES,
    Pace,
    depth_for,
    may_gather,
    shares,
    worth_reporting,
)
from windrow_agent.node.capacity import Capacity, Need
from windrow_agent.supervision.allotment import Demand, allot


@pytest.mark.parametrize(
    ("duration_s", "depth"),
    [(None, 1), (5e-6, DEPTH_MAX), (1e-3, DEPTH_MAX), (0.01, 51), (0.05, 11), (0.5, 2), (1.0, 1), (60.0, 1)],
)
def test_depth_follows_the_duration(duration_s: float | None, depth: int) -> None:
    assert depth_for(duration_s) == depth


@given(st.floats(1e-7, 1e4), st.floats(1e-7, 1e4))
def test_longer_mini_batches_never_mean_more_ahead(a: float, b: float) -> None:
    assert depth_for(min(a, b)) >= depth_for(max(a, b)) >= 1


def test_a_sudden_slow_mini_batch_is_believed_at_once() -> None:
    """Else dozens of leases would sit behind items that take seconds."""
    pace = Pace()
    pace.observe(0.001, 100)
    assert pace.depth == DEPTH_MAX
    pace.observe(2.0, 1)
    assert pace.depth == 1


@pytest.mark.parametrize(
    ("duration_s", "ahead", "result_bytes", "gathers"),
    [
        (0.05, 10, 100, True),
        (0.05, 3, 100, False),  # it would run dry
        (0.05, 10, RESULTS_GATHER_BYTES, False),  # its channel would fill up
        (0.0005, DEPTH_MAX, 100, False),
        (0.5, 10, 100, False),  # nothing would come together
        (None, 10, 100, False),
        (0.0, 10, 100, False),
    ],
)
def test_results_gather_while_there_is_enough_to_do(
    duration_s: float | None, ahead: int, result_bytes: float, gathers: bool
) -> None:
    assert may_gather(duration_s, ahead, result_bytes) is gathers


@given(st.lists(st.integers(0, 150), max_size=8), st.integers(0, 500), st.integers(1, DEPTH_MAX))
def test_shares_are_even_and_within_bounds(loads: list[int], queued: int, depth: int) -> None:
    gets = shares(loads, queued, depth)
    assert len(gets) == len(loads) and sum(gets) <= queued and all(get >= 0 for get in gets)
    after = [load + get for load, get in zip(loads, gets, strict=True)]
    assert all(new <= max(depth, old) for new, old in zip(after, loads, strict=True))
    if loads:
        # Nobody idles while leases wait, and whoever got something has at most one more than the poorest.
        assert sum(gets) == queued or all(new >= depth for new in after)
        assert all(new <= min(after) + 1 for new, get in zip(after, gets, strict=True) if get)


@pytest.mark.parametrize(
    ("told", "wanted", "tells"), [(4, 4, False), (0, 1, True), (1, 0, True), (100, 110, False), (100, 125, True)]
)
def test_capacity_is_told_when_it_matters(told: int, wanted: int, tells: bool) -> None:
    assert worth_reporting(told, wanted) is tells


def demand(step: int, *, priority: int = 0, weight: int = 1, most: int = 8, explicit: bool = False) -> Demand:
    return Demand(step, priority, weight, most, explicit)


@pytest.mark.parametrize(
    ("slots", "demands", "expected"),
    [
        (4, [], {}),
        (4, [demand(1)], {1: 4}),
        (4, [demand(1), demand(2)], {1: 2, 2: 2}),
        (4, [demand(1, weight=3), demand(2)], {1: 3, 2: 1}),
        (4, [demand(1, most=1), demand(2)], {1: 1, 2: 3}),
        (4, [demand(1), demand(2, priority=1)], {1: 0, 2: 4}),
        (4, [demand(1), demand(2, priority=1, most=3)], {1: 1, 2: 3}),
        (2, [demand(1), demand(2), demand(3, weight=9)], {1: 1, 2: 0, 3: 1}),
        (4, [demand(1, weight=100), demand(2)], {1: 3, 2: 1}),
        (2, [demand(1, most=8, explicit=True)], {1: 8}),
        (2, [demand(1, most=8, explicit=True), demand(2, most=2)], {1: 6, 2: 2}),
        (4, [demand(1, most=0), demand(2)], {1: 0, 2: 4}),
    ],
)
def test_slots_go_by_priority_then_weight(slots: int, demands: list[Demand], expected: dict[int, int]) -> None:
    assert allot(Capacity(slots), demands) == expected


@pytest.mark.parametrize(
    ("demands", "expected"),
    [
        ([Demand(1, 0, 1, 8, need=Need(4.0))], {1: 2}),
        ([Demand(1, 0, 1, 99, need=Need(0.25))], {1: 32}),
        ([Demand(1, 0, 1, 8), Demand(2, 0, 1, 8, need=Need(6.0))], {1: 2, 2: 1}),
        ([Demand(1, 0, 1, 8, need=Need(None, 30)), Demand(2, 0, 1, 8)], {1: 3, 2: 5}),
        ([Demand(1, 0, 1, 8, need=Need(None, 0, 1)), Demand(2, 0, 1, 8, need=Need(None, 0, 0.5))], {1: 1, 2: 2}),
        ([Demand(1, 0, 1, 8, need=Need(None, 0, 3))], {1: 0}),
    ],
)
def test_a_node_alone_gives_no_more_than_it_has(demands: list[Demand], expected: dict[int, int]) -> None:
    assert allot(Capacity(8, 100, 2), demands) == expected


@given(
    st.integers(1, 16),
    st.lists(
        st.builds(Demand, st.integers(1, 9), st.integers(0, 2), st.integers(1, 5), st.integers(0, 20), st.just(False)),
        unique_by=lambda d: d.step_id,
        max_size=6,
    ),
)
def test_no_slot_is_wasted_and_none_is_invented(slots: int, demands: list[Demand]) -> None:
    result = allot(Capacity(slots), demands)
    assert sum(result.values()) == min(slots, sum(d.workers_max for d in demands))
    for d in demands:
        assert result[d.step_id] <= d.workers_max
        if any(other.priority > d.priority and result[other.step_id] < other.workers_max for other in demands):
            assert result[d.step_id] == 0
