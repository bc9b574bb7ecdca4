"""Scheduling: who gets what, what is asked back, in which order."""

from __future__ import annotations

from typing import Any

from core_driver import CoreDriver, completion
from hypothesis import given
from hypothesis import strategies as st
from windrow_master.core import commands
from windrow_master.core import effects as fx
from windrow_master.core.ids import NodeId, StepId
from windrow_master.core.ready import ReadyQueue
from windrow_master.core.states import Cause


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
    driver.register()
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
    (recall,) = driver.sent(fx.RevokeLeases)
    mine = [lease.lease_id for lease in driver.held("n1")]
    assert not recall.started_too and recall.node_id == "n1" and recall.lease_ids == mine[-4:]
    driver.capacity("n2", 100)
    (second,) = driver.sent(fx.RevokeLeases)
    assert set(second.lease_ids).isdisjoint(recall.lease_ids), "nothing is asked for twice on one stream"
    driver.do(commands.ReleaseLeases(NodeId("n1"), recall.lease_ids))
    assert len(driver.held("n2")) >= 2 and len(driver.held("n1")) + len(driver.held("n2")) == 9


def test_what_was_asked_back_on_a_broken_stream_is_asked_back_again() -> None:
    driver = CoreDriver()
    driver.running([1] * 3)
    driver.join("n1", 100)
    driver.join("n2", 100)
    (recall,) = driver.sent(fx.RevokeLeases)
    driver.open("n1", held=driver.as_held(*driver.held("n1")))
    assert [effect.lease_ids for effect in driver.sent(fx.RevokeLeases)] == [recall.lease_ids]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("fresh"), st.integers(0, 9)),
            st.tuples(st.just("ranked"), st.lists(st.integers(0, 3), max_size=9)),
            st.tuples(st.just("take"), st.integers(0, 12)),
            st.tuples(st.just("back"), st.booleans()),
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
            assert queue.ready_count(now) == len(ready)
            got = queue.take(number, now)
            assert got == ready[:number]
            inside.difference_update(got)
            taken.extend(got)
        elif kind == "back" and taken:
            index = taken.pop()
            due[index] = now + 2.0 if number else 0.0
            queue.put_back(index, due[index])
            came_back.add(index)
            inside.add(index)
        elif kind == "remove":
            assert queue.remove(number) == (number in inside)
            if number in inside:
                inside.discard(number)
                taken.append(number)
        else:
            now += number
        assert len(queue) == len(inside)


def test_the_largest_run_first_also_after_a_restart() -> None:
    driver = CoreDriver()
    driver.submit()
    assert driver.plan(1, [1, 5, 3], done=False, ranks=[1, 5, 3])
    assert driver.plan(1, [4, 2], ranks=[4, 2])
    driver.join("n1", 2)
    assert [lease.mini_batch for lease in driver.held("n1")] == [1, 3]
    driver.complete("n1", *(completion(lease.lease_id, items=5, results=5) for lease in driver.held("n1")))
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
