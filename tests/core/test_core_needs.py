"""What workers need, against what nodes have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from core_driver import CoreDriver
from core_shares import check_layouts, compared_with_scratch
from hypothesis import given, settings
from hypothesis import strategies as st
from windrow.common.device_packing import choose, is_fraction, pack, take
from windrow.common.queue_settings import Bounds, QueueSettings
from windrow_master.core.commands import SetQueues
from windrow_master.core.forecasts import forecast
from windrow_master.core.ids import JobKey, NodeId, StepId
from windrow_master.core.queue_reasons import reason_of_queue
from windrow_master.core.queues import uses
from windrow_master.core.settings import StepSettings
from windrow_master.core.shares import DECISION_S
from windrow_master.core.sharing.placing import Crew, Place, place

GB = 1 << 30
NEAR = 1e-6


class Has(NamedTuple):
    """What a node has."""

    slots: int = 8
    memory_gb: int = 64
    gpus: int = 0


def join(driver: CoreDriver, *nodes: Has) -> None:
    for number, has in enumerate(nodes):
        name = f"n{number}"
        driver.register(name, slots=has.slots, memory_bytes=has.memory_gb * GB, gpus=has.gpus)
        driver.open(name)


def job(driver: CoreDriver, number: int, mini_batches: int = 1000, project: str = "default", **more: Any) -> None:
    """A job of one step, whose id is its number."""
    driver.submit(StepSettings("step", **more), job_id=f"j{number}", request_id=str(number), project=project)
    driver.plan(number, [1] * mini_batches)


def workers(driver: CoreDriver) -> list[dict[int, int]]:
    """What each node was told last."""
    nodes = sorted(driver.core.state.nodes.values(), key=lambda node: node.node_id)
    assert all(node.shares_told == node.shares for node in nodes)
    return [{int(step_id): count for step_id, count in node.shares.items()} for node in nodes]


def count(driver: CoreDriver, step_id: int) -> int:
    return sum(there.get(step_id, 0) for there in workers(driver))


def decide(driver: CoreDriver) -> None:
    for node in driver.core.state.nodes.values():
        driver.beat(node.node_id)
    driver.now_s += DECISION_S
    driver.tick(0.25)


def check_capacity(driver: CoreDriver, nodes: Sequence[Has]) -> None:
    """No node was told to have more than it has of anything."""
    steps = driver.core.state.steps
    for has, there in zip(nodes, workers(driver), strict=True):
        slots, memory = 0.0, 0
        gpus: list[float] = []
        for step_id, workers_ in there.items():
            needs = steps[StepId(step_id)].settings
            cpus, most = needs.cpus_per_worker, needs.max_concurrency_per_instance
            if cpus is None:
                shares_slots = not needs.has_needs and most is not None and most > has.slots
                cpus = has.slots / most if shares_slots and most else 1.0
            assert most is None or workers_ <= most
            slots += workers_ * cpus
            memory += workers_ * needs.memory_per_worker
            gpus += [needs.gpus_per_worker] * workers_
        assert slots <= has.slots + NEAR
        assert memory <= has.memory_gb * GB
        assert pack(has.gpus, gpus) is not None


def test_processors_of_a_worker_are_slots_of_its_node() -> None:
    driver = CoreDriver()
    join(driver, Has(8), Has(3))
    job(driver, 1, cpus_per_worker=2.5)
    assert workers(driver) == [{1: 3}, {1: 1}]


def test_workers_that_take_part_of_a_processor_are_more_than_slots() -> None:
    driver = CoreDriver()
    join(driver, Has(2))
    job(driver, 1, cpus_per_worker=0.25)
    assert workers(driver) == [{1: 8}]


def test_memory_bounds_workers_where_slots_do_not() -> None:
    driver = CoreDriver()
    join(driver, Has(8, 64), Has(8, 20), Has(8, 4))
    job(driver, 1, memory_per_worker=10 * GB)
    assert workers(driver) == [{1: 6}, {1: 2}, {}]
    job(driver, 2)
    check_capacity(driver, [Has(8, 64), Has(8, 20), Has(8, 4)])
    assert workers(driver)[2] == {2: 8}


def test_whole_gpus_and_parts_of_one() -> None:
    driver = CoreDriver()
    join(driver, Has(8, gpus=4), Has(8))
    job(driver, 1, gpus_per_worker=2)
    assert workers(driver) == [{1: 2}, {}]
    driver.cancel("j1")
    job(driver, 2, gpus_per_worker=1 / 3, max_concurrency_per_instance=7)
    assert workers(driver) == [{2: 7}, {}]


def test_parts_of_a_gpu_are_packed_so_that_whole_ones_stay_free() -> None:
    driver = CoreDriver()
    join(driver, Has(8, gpus=1), Has(8, gpus=1), Has(8, gpus=1))
    job(driver, 1, mini_batches=1, gpus_per_worker=0.5, max_concurrency_per_instance=1)
    job(driver, 2, mini_batches=1, gpus_per_worker=0.5)
    job(driver, 3, gpus_per_worker=1)
    for _ in range(10):
        decide(driver)
    assert count(driver, 3) == 2
    check_capacity(driver, [Has(8, gpus=1)] * 3)


def test_parts_of_several_gpus_are_no_whole_one() -> None:
    driver = CoreDriver()
    join(driver, Has(8, gpus=2))
    job(driver, 1, mini_batches=2, gpus_per_worker=0.6)
    job(driver, 2, mini_batches=5, gpus_per_worker=0.4)
    assert workers(driver) == [{1: 2, 2: 2}], "0.6 + 0.4 on each; a third of 0.4 has no device"


def test_what_a_project_is_entitled_to_is_told_in_slots_whatever_its_workers_need_most() -> None:
    driver = CoreDriver()
    join(driver, Has(8, gpus=4))
    job(driver, 1, project="slots", cpus_per_worker=2, gpus_per_worker=0.5)
    job(driver, 2, project="gpus", cpus_per_worker=1, gpus_per_worker=1)
    decide(driver)
    fair = {name: use.fair for name, use in uses(driver.core.state).items()}
    # Two thirds of the slots, and two thirds of the GPUs, with a third of the slots.
    assert fair == {"slots": pytest.approx(16 / 3), "gpus": pytest.approx(8 / 3)}
    found = reason_of_queue(driver.core.state, "gpus", driver.now)
    assert (found.fair, found.wanted) == (pytest.approx(8 / 3), 4)


def test_a_job_that_no_node_can_serve_stands_in_no_line() -> None:
    driver = CoreDriver()
    join(driver, Has(2))
    job(driver, 1)
    job(driver, 2, cpus_per_worker=64)
    assert forecast(driver.core.state, driver.now).jobs[JobKey(2)].place == 0


def test_a_worker_that_is_larger_than_its_share_gets_its_turn() -> None:
    driver = CoreDriver()
    join(driver, Has(8))
    job(driver, 1)
    job(driver, 2, cpus_per_worker=8)
    seen = []
    for _ in range(80):
        decide(driver)
        seen.append(count(driver, 2))
        check_capacity(driver, [Has(8)])
    assert 0 < sum(seen) < len(seen), "both have their time"


def test_a_large_worker_gets_its_room_from_pieces_on_several_nodes() -> None:
    places = {NodeId(name): Place(NodeId(name), 8.0, (8.0,)) for name in ("n0", "n1")}
    crews = [Crew(StepId(1), 4, (1.0,)), Crew(StepId(2), 4, (1.0,)), Crew(StepId(3), 1, (6.0,), is_fixed=True)]
    for crew in crews[:2]:
        for at in places.values():
            crew.change(at, 2, 0.0)
    place(crews, places, 5.0)
    assert [crew.held for crew in crews] == [4, 4, 1], "two have moved, and nobody has less"
    assert sorted(sum(at.workers.values()) for at in places.values()) == [3, 6]


def test_parts_of_gpus_are_taken_over_from_a_step_on_one_node_after_the_other() -> None:
    nodes = [NodeId("n0"), NodeId("n1")]
    places = {name: Place(name, 8.0, (8.0, 0.0, 2.0)) for name in nodes}
    gpu = (1.0, 0.0, 0.6)
    victim, other, taker = Crew(StepId(1), 0, gpu), Crew(StepId(2), 2, gpu), Crew(StepId(3), 2, gpu, is_fixed=True)
    for at in places.values():
        victim.change(at, 1, 0.0)
        other.change(at, 1, 0.0)
    place([victim, other, taker], places, 100.0)
    assert (victim.on, other.on, taker.on) == ({}, dict.fromkeys(nodes, 1), dict.fromkeys(nodes, 1))


def test_small_workers_that_have_not_paid_for_their_start_are_not_moved() -> None:
    places = {NodeId(name): Place(NodeId(name), 8.0, (8.0,)) for name in ("n0", "n1")}
    small, large = Crew(StepId(1), 8, (1.0,), pays_s=10.0), Crew(StepId(2), 1, (6.0,), is_fixed=True)
    for at in places.values():
        small.change(at, 4, 0.0)
    place([small, large], places, 5.0)
    assert (small.held, large.held) == (8, 0) and set(small.on.values()) == {4}
    assert all(at.since == {1: 0.0} for at in places.values()), "what was tried is taken back"
    place([small, large], places, 10.0)
    assert (small.held, large.held) == (8, 1)


def test_limits_are_counted_in_slots_whatever_else_a_worker_needs() -> None:
    driver = CoreDriver()
    join(driver, Has(8, gpus=8))
    driver.do(SetQueues({"team": QueueSettings(cluster=Bounds(0.0, 4.0))}))
    job(driver, 1, project="team", cpus_per_worker=2, gpus_per_worker=1)
    assert workers(driver) == [{1: 2}]


def test_instance_count_chooses_nodes_that_have_what_it_needs() -> None:
    driver = CoreDriver()
    join(driver, Has(2), Has(2), Has(8))
    job(driver, 1, cpus_per_worker=4, instance_count=1)
    assert workers(driver) == [{}, {}, {1: 2}]


A_NODE = st.builds(Has, st.integers(1, 8), st.sampled_from([1, 8, 64]), st.sampled_from([0, 0, 1, 2, 4]))
SOME_NEEDS = st.fixed_dictionaries(
    {},
    optional={
        "cpus_per_worker": st.sampled_from([0.1, 0.5, 1.0, 1.5, 3.0, 8.0]),
        "memory_per_worker": st.sampled_from([1, GB, 7 * GB, 60 * GB]),
        "gpus_per_worker": st.sampled_from([0.1, 1 / 3, 0.5, 0.6, 1.0, 2.0]),
        "max_concurrency_per_instance": st.sampled_from([1, 3, 12]),
    },
)


@settings(deadline=None, max_examples=15)
@given(
    st.lists(A_NODE, min_size=1, max_size=4),
    st.lists(st.tuples(SOME_NEEDS, st.sampled_from([1, 3, 200]), st.sampled_from("ab")), min_size=1, max_size=5),
    st.lists(st.tuples(st.sampled_from(["wait", "cancel", "leave", "return"]), st.integers(0, 4)), max_size=8),
)
def test_no_node_gets_more_than_it_has_of_anything(
    nodes: list[Has], jobs: list[tuple[dict[str, Any], int, str]], events: list[tuple[str, int]]
) -> None:
    driver = CoreDriver()
    with compared_with_scratch():
        join(driver, *nodes)
        for number, (needs, mini_batches, project) in enumerate(jobs, 1):
            job(driver, number, mini_batches, project, **needs)
            check_capacity(driver, nodes)
        cancelled = set()
        for what, at in events:
            if what == "cancel" and at < len(jobs) and at not in cancelled:
                cancelled.add(at)
                driver.cancel(f"j{at + 1}")
            elif what == "return" and at < len(nodes):
                # An agent that has worked without its master says what it has.
                driver.open(f"n{at}", workers=dict.fromkeys(range(1, len(jobs) + 1), 2))
            decide(driver)
            check_capacity(driver, nodes)
            check_layouts(driver.core.state)


@settings(deadline=None, max_examples=15)
@given(
    st.lists(st.integers(4, 8), min_size=1, max_size=3),
    st.lists(st.tuples(st.sampled_from([0.5, 1.0, 2.0, 3.0]), st.sampled_from([2, 5, 200])), min_size=1, max_size=4),
    st.sampled_from(["same", "other"]),
)
def test_the_largest_need_is_not_starved(slots: list[int], small: list[tuple[float, int]], whose: str) -> None:
    """However many small workers there are, a step whose worker fills the largest node has one now and then."""
    driver = CoreDriver()
    nodes = [Has(at) for at in slots]
    join(driver, *nodes)
    for number, (cpus, mini_batches) in enumerate(small, 1):
        job(driver, number, mini_batches, "other", cpus_per_worker=cpus)
    largest = len(small) + 1
    job(driver, largest, project="other" if whose == "same" else "mine", cpus_per_worker=max(slots))
    # It is owed its turn after two seconds for each part of all that it has no share of; others may go before it.
    waits_s = 6.0 * (len(small) + 1) * len(slots)
    for _ in range(math.ceil(waits_s / (0.25 + DECISION_S))):
        decide(driver)
        if count(driver, largest):
            check_capacity(driver, nodes)
            return
    raise AssertionError(f"nothing in {waits_s} s: {workers(driver)}")


@settings(deadline=None, max_examples=15)
@given(
    st.lists(A_NODE, min_size=1, max_size=4),
    st.lists(
        st.tuples(st.sampled_from([None, 1, 3, 12]), st.sampled_from([1, 3, 200]), st.sampled_from("ab")),
        min_size=1,
        max_size=5,
    ),
)
def test_steps_that_say_nothing_have_what_they_had(nodes: list[Has], jobs: list[tuple[int | None, int, str]]) -> None:
    """Whatever else nodes have, and also while another step, which fits nowhere, says what it needs."""
    drivers = [CoreDriver(), CoreDriver(), CoreDriver()]
    join(drivers[0], *(Has(has.slots, 0, 0) for has in nodes))
    for driver in drivers[1:]:
        join(driver, *nodes)
    for driver in drivers:
        for number, (most, mini_batches, project) in enumerate(jobs, 1):
            job(driver, number, mini_batches, project, max_concurrency_per_instance=most)
    job(drivers[2], len(jobs) + 1, project="a", gpus_per_worker=9)
    job(drivers[0], len(jobs) + 1, project="a", cpus_per_worker=99)
    job(drivers[1], len(jobs) + 1, project="a", memory_per_worker=99 * GB)
    for _ in range(20):
        assert workers(drivers[0]) == workers(drivers[1]) == workers(drivers[2])
        for driver in drivers:
            decide(driver)


@given(st.integers(1, 4), st.lists(st.sampled_from([0.1, 1 / 3, 0.5, 0.6, 1.0, 2.0]), max_size=10))
def test_what_is_packed_fits(devices: int, needs: list[float]) -> None:
    found = pack(devices, needs)
    free = [1.0] * devices
    if found is None:
        assert sum(needs) > devices or any(map(is_fraction, needs)), "whole ones fit as far as there are some"
        return
    for need, on in zip(needs, found, strict=True):
        assert len(set(on)) == (1 if is_fraction(need) else need)
        take(free, on, need)
    assert min(free) >= -NEAR


@pytest.mark.parametrize(
    ("free", "need", "chosen"),
    [
        ([1.0, 0.5, 0.7], 0.5, (1,)),
        ([1.0, 0.4, 1.0], 2.0, (0, 2)),
        ([1.0, 0.4], 2.0, None),
        ([0.3], 0.5, None),
        ([], 0.0, ()),
    ],
)
def test_a_part_goes_to_the_fullest_device_that_has_room(
    free: list[float], need: float, chosen: tuple[int, ...] | None
) -> None:
    assert choose(free, need) == chosen
