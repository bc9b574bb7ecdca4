"""Scheduling: who gets what, what is asked back, in which order."""

from __future__ import annotations

from typing import Any

import pytest
from core_driver import CoreDriver, completion
from hypothesis import assume, given
from hypothesis import strategies as st
from windrow_master.core import commands
from windrow_master.core import effects as fx
from windrow_master.core.ids import NodeId, StepId
from windrow_master.core.ready import ReadyQueue
from windrow_master.core.scheduling import _even_shares
from windrow_master.core.settings import StepSettings
from windrow_master.core.standing import Past
from windrow_master.core.states import Cause, JobState


def test_scarce_work_is_spread_evenly_and_the_emptiest_node_comes_first() -> None:
    driver = CoreDriver()
    driver.submit()
    for name in ("n1", "n2", "n3"):
        driver.join(name, 100)
    driver.plan(1, [1] * 9, done=False)
    for name in ("n1", "n2", "n3"):
        driver.capacity(name, 100)
    assert sorted(len(driver.held(name)) for name in ("n1", "n2", "n3")) == [3, 3, 3]
    driver.complete("n2", *(completion(lease.lease_id) for lease in driver.held("n2")))
    driver.plan(1, [1], done=False)
    assert len(driver.held("n2")) == 1


def test_capacity_is_absolute_and_never_passed() -> None:
    driver = CoreDriver()
    driver.running([1] * 50)
    driver.join(leases_max=5)
    driver.capacity("n1", 5)
    assert len(driver.held()) == 5
    driver.capacity("n1", 8)
    assert len(driver.held()) == 8
    driver.capacity("n1", 2)
    driver.complete("n1", completion(driver.held()[0].lease_id))
    assert len(driver.held()) == 7


def test_priority_goes_first_then_age() -> None:
    driver = CoreDriver()
    for number, priority in ((1, 0), (2, 5), (3, 0)):
        driver.submit(job_id=f"j{number}", request_id=str(number), priority=priority)
        driver.plan(number, [1])
    driver.register(slots=3)
    driver.open()
    capacities = tuple((StepId(number), 1, 1) for number in (1, 2, 3))
    driver.do(commands.SetCapacity(NodeId("n1"), driver.node().stream, capacities))
    assert [effect.step_id for effect in driver.sent(fx.SendAssignments)] == [2, 1, 3]


def test_a_step_is_offered_once_a_stream_and_not_before_it_is_readable() -> None:
    driver = CoreDriver()
    driver.submit()
    driver.register()
    driver.open()
    assert not driver.sent(fx.SendStep)
    driver.plan(1, [1], done=False)
    assert len(driver.sent(fx.SendStep)) == 1
    driver.plan(1, [1], done=False)
    assert not driver.sent(fx.SendStep)
    driver.open()
    assert len(driver.sent(fx.SendStep)) == 1


def test_what_came_back_runs_before_what_is_fresh() -> None:
    driver = CoreDriver()
    driver.running([1] * 10)
    driver.join(leases_max=3)
    driver.fail("n1", driver.held()[1], Cause.EXCEPTION)
    assert [lease.mini_batch for lease in driver.held()] == [0, 1, 2]


def test_an_idle_node_gets_half_of_what_another_holds_beyond_its_workers() -> None:
    driver = CoreDriver()
    driver.running([1] * 9)
    driver.join("n1", 100)
    driver.join("n2", 100)
    (recall,) = driver.sent(fx.RecallLeases)
    assert (recall.node_id, recall.step_id, recall.leases_max) == ("n1", 1, 4)
    driver.capacity("n2", 100)
    assert not driver.sent(fx.RecallLeases), "it has been asked, and has not answered yet"
    last = driver.held("n1")[-4:]
    driver.do(commands.ReleaseLeases(NodeId("n1"), [lease.lease_id for lease in last]))
    assert [len(driver.held(name)) for name in ("n1", "n2")] == [5, 4]


def test_a_node_that_gives_nothing_back_is_asked_again_and_keeps_no_other_from_being_asked() -> None:
    driver = CoreDriver()
    driver.running([1] * 8)
    driver.join("n1", 4)
    driver.join("n2", 4)
    driver.join("n3", 4)
    assert {at.node_id for at in driver.sent(fx.RecallLeases)} == {"n1"}, "one has enough for the one free slot"
    asked = []
    for _ in range(8):
        driver.tick_alive(0.25, "n1", "n2", "n3")
        asked.append({at.node_id for at in driver.sent(fx.RecallLeases)})
    assert {"n1", "n2"} <= set().union(*asked)


def test_what_was_asked_back_on_a_broken_stream_is_asked_back_again() -> None:
    driver = CoreDriver()
    driver.running([1] * 3)
    driver.join("n1", 100)
    driver.join("n2", 100)
    (recall,) = driver.sent(fx.RecallLeases)
    driver.open("n1", held=driver.as_held(*driver.held("n1")))
    assert [effect.leases_max for effect in driver.sent(fx.RecallLeases)] == [recall.leases_max]


@pytest.mark.parametrize("joined", [(5, 5, 5), (2, 9, 4), (15, 1, 1)])
def test_no_node_has_two_for_a_slot_while_another_has_a_free_one(joined: tuple[int, ...]) -> None:
    driver = CoreDriver()
    driver.submit()
    names = [f"n{at}" for at in range(len(joined))]
    for name in names:
        driver.register(name)
        driver.open(name)
    driver.plan(1, [1] * sum(joined), done=False)
    step = driver.step()
    group = [
        commands.SetCapacity(NodeId(name), driver.node(name).stream, ((step.step_id, count * 4, count),))
        for name, count in zip(names, joined, strict=True)
    ]
    driver.group(*group)
    assert tuple(len(driver.held(name)) for name in names) == joined
    driver.plan(1, [1] * 2 * sum(joined))
    assert tuple(len(driver.held(name)) for name in names) == tuple(3 * count for count in joined)


def test_nodes_that_join_later_get_what_the_first_cannot_run() -> None:
    """As with data in storage: the first asks for all, to be fetched ahead."""
    driver = CoreDriver()
    driver.running([1] * 15)
    driver.join_slots("n1", 5, depth=3)
    assert len(driver.held("n1")) == 15
    for name in ("n2", "n3"):
        driver.join_slots(name, 5, depth=3)
        while recalls := driver.sent(fx.RecallLeases):
            # Each runs what it has slots for, and gives back of the rest.
            driver.group(
                *(
                    commands.ReleaseLeases(
                        at.node_id, [lease.lease_id for lease in driver.held(at.node_id)[5:][-at.leases_max :]]
                    )
                    for at in recalls
                )
            )
    assert [len(driver.held(name)) for name in ("n1", "n2", "n3")] == [5, 5, 5]


def test_what_has_failed_where_slots_are_free_is_not_asked_back() -> None:
    """It would be leased to the same node again, and asked back again, for as long as its workers are busy."""
    driver = CoreDriver()
    driver.running([1] * 4)
    driver.join_slots("n2", 1)
    failed = driver.held("n2")[0]
    driver.join_slots("n1", 1, depth=8)
    driver.sent(fx.RecallLeases)
    driver.fail("n2", failed, Cause.EXCEPTION)
    (kept,) = [lease for lease in driver.held("n1") if lease.mini_batch == failed.mini_batch]
    (recall,) = driver.sent(fx.RecallLeases)
    assert (recall.node_id, recall.kept) == ("n1", (kept.lease_id,))


def test_what_waits_before_a_worker_that_loads_its_script_goes_where_one_is_ready() -> None:
    driver = CoreDriver()
    step = driver.running([1] * 4)
    driver.join_slots("n1", 2)
    driver.join_slots("n2", 2)
    driver.beat("n1", ready_steps=(step.step_id,))
    assert not driver.sent(fx.RecallLeases), "it has no free slot"
    driver.complete("n1", *(completion(lease.lease_id) for lease in driver.held("n1")))
    (recall,) = driver.sent(fx.RecallLeases)
    assert (recall.node_id, recall.leases_max) == ("n2", 2)
    driver.do(commands.ReleaseLeases(NodeId("n2"), [lease.lease_id for lease in driver.held("n2")]))
    assert [len(driver.held(name)) for name in ("n1", "n2")] == [2, 0], "not back to where they would wait"
    assert not driver.sent(fx.RecallLeases)


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9), st.integers(1, 60)), min_size=1, max_size=6),
    st.integers(1, 300),
)
def test_shares_are_as_even_as_room_allows(places: list[tuple[int, int, int]], count: int) -> None:
    count = min(count, sum(room for _, _, room in places) - 1)
    assume(count > 0)
    shares = _even_shares(places, count)
    assert sum(shares) == count and all(0 <= share <= at[2] for share, at in zip(shares, places, strict=True))
    loads = [(at[0] + share) / at[1] for share, at in zip(shares, places, strict=True)]
    for share, at in zip(shares, places, strict=True):
        for load, other, others in zip(loads, places, shares, strict=True):
            # What anybody got last, nobody else who has room was emptier for.
            if share and others < other[2]:
                assert (at[0] + share - 1) / at[1] <= load + 1e-9


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("fresh"), st.integers(0, 9)),
            st.tuples(st.just("ranked"), st.lists(st.integers(0, 3), max_size=9)),
            st.tuples(st.just("take"), st.integers(0, 12)),
            st.tuples(st.just("back"), st.booleans()),
            st.tuples(st.just("failed"), st.sampled_from(["n1", "n2"])),
            st.tuples(st.just("retry"), st.integers(0, 3)),
            st.tuples(st.just("remove"), st.integers(0, 60)),
            st.tuples(st.just("wait"), st.integers(0, 3)),
        ),
        max_size=60,
    )
)
def test_the_ready_queue_is_a_set_with_an_order(operations: list[tuple[str, Any]]) -> None:
    queue, inside, taken, now, planned = ReadyQueue(), set[int](), list[int](), 0.0, 0
    rank: dict[int, int] = {}
    came_back: set[int] = set()
    retries: dict[int, str] = {}

    def order(index: int) -> tuple[bool, int, int]:
        # What came back, then those with ranks, the highest first, then the others.
        return index not in came_back, 0 if index in came_back else -rank.get(index, -1), index

    due: dict[int, float] = {}
    for kind, number in operations:
        if kind == "fresh":
            queue.add_fresh(planned, planned + number)
            inside.update(range(planned, planned + number))
            planned += number
        elif kind == "ranked":
            indices = range(planned, planned + len(number))
            queue.add_ranked(indices, number)
            rank.update(zip(indices, number, strict=True))
            inside.update(indices)
            planned += len(number)
        elif kind == "take":
            ready = sorted((at for at in inside if due.get(at, 0.0) <= now), key=order)
            assert queue.ready_count(now) == len(ready) + len(retries)
            got = queue.take(number, now)
            assert got == ready[:number]
            inside.difference_update(got)
            taken.extend(got)
        elif kind == "back" and taken:
            index = taken.pop()
            due[index] = now + 2.0 if number else 0.0
            queue.put_back(index, now, not_before=due[index])
            came_back.add(index)
            inside.add(index)
        elif kind == "failed" and taken:
            index = taken.pop()
            queue.put_back(index, now, Past((NodeId(number),)))
            retries[index] = number
        elif kind == "retry":
            for past in list(queue.retries):
                failed = [at for at, name in retries.items() if (name,) == past.nodes]
                got = queue.take_retries(past, number)
                assert got == failed[:number], "the longest waiting first"
                taken.extend(got)
                for index in got:
                    del retries[index]
        elif kind == "remove":
            assert queue.remove(number) == (number in inside or number in retries)
            if retries.pop(number, None):
                taken.append(number)
            elif number in inside:
                inside.discard(number)
                taken.append(number)
        elif kind == "wait":
            now += number
        assert len(queue) == len(inside) + len(retries) and queue.retry_count == len(retries)


def test_the_largest_run_first_also_after_a_restart() -> None:
    driver = CoreDriver()
    driver.submit()
    assert driver.plan(1, [1, 5, 3], done=False, ranks=[1, 5, 3])
    assert driver.plan(1, [4, 2], ranks=[4, 2])
    driver.join("n1", 2)
    assert [lease.mini_batch for lease in driver.held("n1")] == [1, 3]
    results = zip(driver.held("n1"), (5, 4), strict=True)
    driver.complete("n1", *(completion(lease.lease_id, items=items) for lease, items in results))
    assert [lease.mini_batch for lease in driver.held("n1")] == [2, 4]
    driver.restart()
    driver.register("n1", "b", "a")
    driver.open("n1", "b")
    driver.capacity("n1", 2)
    assert [lease.mini_batch for lease in driver.held("n1")] == [2, 4]


def test_a_held_core_plans_and_admits_but_leases_nothing_before_it_is_told_to_begin() -> None:
    driver = CoreDriver()
    driver.core.state.held = True
    driver.running([1] * 4)
    driver.join("n1", 4)
    assert driver.held("n1") == []
    driver.do(commands.BeginWork())
    assert len(driver.held("n1")) == 4


def prepared(driver: CoreDriver) -> list[int]:
    return [effect.step_id for effect in driver.sent(fx.PrepareStep)]


def test_a_held_core_takes_no_step_of_an_earlier_master_up_before_it_is_told_to_begin() -> None:
    """What failed then would end the job before anybody follows it, and the next run would begin anew."""
    driver = CoreDriver()
    driver.submit(StepSettings("one"), StepSettings("two"))
    assert prepared(driver) == [1, 2]
    driver.restart(held=True)
    assert prepared(driver) == []
    driver.tick(StepSettings("one").first_task_creation_timeout_s + 1)
    assert driver.job().state == JobState.RUNNING
    driver.do(commands.BeginWork())
    assert prepared(driver) == [1, 2]
    driver.tick()
    assert driver.job().state == JobState.RUNNING
    driver.do(commands.BeginWork())
    assert prepared(driver) == []


def test_a_step_that_ends_before_a_held_core_is_told_to_begin_is_not_taken_up() -> None:
    driver = CoreDriver()
    driver.submit()
    driver.restart(held=True)
    driver.do(commands.CancelJob("job"))
    driver.do(commands.BeginWork())
    assert prepared(driver) == []


def test_a_job_that_is_submitted_to_a_held_core_begins_at_once() -> None:
    driver = CoreDriver()
    driver.core.state.held = True
    driver.submit()
    assert prepared(driver) == [1]
    driver.do(commands.BeginWork())
    assert prepared(driver) == []
