"""Nodes that keep what they fetch get the mini-batches first whose data they have read last."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from core_driver import CoreDriver, completion
from hypothesis import given, settings
from hypothesis import strategies as st
from windrow.rpc.v1 import work_pb2
from windrow_master.core.data_places import NODES_MAX, PIECE, PLACES, DataPlaces
from windrow_master.core.ids import NodeId
from windrow_master.core.ready import ReadyQueue
from windrow_master.core.settings import StepSettings
from windrow_master.core.states import Cause

REMOTE = b'{"kind":"files","remote":true}'


def begin(driver: CoreDriver, job_id: str, count: int, ranks: Sequence[int] = (), reader: bytes = REMOTE) -> int:
    """Submit a job over `count` mini-batches, which are the same in each job; return the number of its step."""
    driver.submit(StepSettings("step"), job_id=job_id, request_id=job_id)
    step_id = int(driver.core.state.step_id_last)
    assert driver.plan(step_id, [1] * count, ranks=ranks, reader=reader)
    return step_id


def read_all(driver: CoreDriver, count: int, *, keeps: bool = True, reader: bytes = REMOTE) -> None:
    """A first job, whose first half n1 has run, and n2 the other one."""
    step_id = begin(driver, "first", count, reader=reader)
    use = {"data_cache": work_pb2.DataCacheUse(misses=1)} if keeps else {}
    for name in ("n1", "n2"):
        driver.register(name)
        driver.open(name)
        driver.capacity(name, count // 2, step_id=step_id)
        driver.capacity(name, 0, step_id=step_id)
        driver.complete(name, *(completion(lease.lease_id, **use) for lease in driver.held(name)))
    driver.finish_step(step_id)


def given_to(driver: CoreDriver, name: str) -> list[int]:
    return [lease.mini_batch for lease in driver.held(name)]


def test_a_node_gets_first_what_it_has_read_before() -> None:
    driver = CoreDriver()
    read_all(driver, 20)
    step_id = begin(driver, "second", 20)
    driver.capacity("n2", 4, step_id=step_id)
    driver.capacity("n1", 4, step_id=step_id)
    assert (given_to(driver, "n1"), given_to(driver, "n2")) == ([0, 1, 2, 3], [10, 11, 12, 13])


def test_a_node_that_has_had_all_of_its_own_takes_what_is_left() -> None:
    """Nothing waits for a node that does not come."""
    driver = CoreDriver()
    read_all(driver, 20)
    step_id = begin(driver, "second", 20)
    driver.capacity("n2", 15, step_id=step_id)
    assert given_to(driver, "n2") == [*range(5), *range(10, 20)]
    driver.capacity("n2", 20, step_id=step_id)
    assert given_to(driver, "n2") == [*range(20)]


def test_where_no_node_keeps_anything_the_order_is_that_of_the_input() -> None:
    driver = CoreDriver()
    read_all(driver, 20, keeps=False)
    step_id = begin(driver, "second", 20)
    driver.capacity("n2", 4, step_id=step_id)
    assert given_to(driver, "n2") == [0, 1, 2, 3]
    assert driver.core.state.data_places is None, "nothing is remembered"


def test_a_step_over_local_data_asks_nobody() -> None:
    driver = CoreDriver()
    read_all(driver, 20)
    step_id = begin(driver, "second", 20, reader=b"{}")
    driver.capacity("n2", 4, step_id=step_id)
    assert given_to(driver, "n2") == [0, 1, 2, 3]


def test_higher_ranks_still_go_first() -> None:
    """A large mini-batch begins early, whoever has its data."""
    driver = CoreDriver()
    read_all(driver, 20)
    ranks = [2 if at in (3, 4, 17) else 1 for at in range(20)]
    step_id = begin(driver, "second", 20, ranks=ranks)
    driver.capacity("n2", 3, step_id=step_id)
    assert given_to(driver, "n2") == [3, 4, 17]
    driver.capacity("n2", 5, step_id=step_id)
    assert given_to(driver, "n2") == [3, 4, 10, 11, 17]


def test_what_was_put_back_goes_before_what_is_known() -> None:
    driver = CoreDriver()
    read_all(driver, 20)
    step_id = begin(driver, "second", 20)
    driver.capacity("n1", 1, step_id=step_id)
    (lease,) = driver.held("n1")
    driver.capacity("n1", 0, step_id=step_id)
    driver.fail("n1", lease, Cause.PREEMPTED)
    driver.capacity("n2", 1, step_id=step_id)
    assert given_to(driver, "n2") == [0]


def test_what_is_planned_later_is_known_as_well() -> None:
    driver = CoreDriver()
    read_all(driver, 20)
    for ranks in ([], [0] * 5):
        driver.submit(StepSettings("step"), job_id=f"later-{len(ranks)}", request_id=f"later-{len(ranks)}")
        step_id = int(driver.core.state.step_id_last)
        for at in range(4):
            driver.plan(step_id, [1] * 5, done=at == 3, ranks=ranks, reader=REMOTE)
            driver.capacity("n2", 2, step_id=step_id)
        assert given_to(driver, "n2") == [0, 1]
        driver.capacity("n2", 3, step_id=step_id)
        assert given_to(driver, "n2") == [0, 1, 10]
        driver.cancel(f"later-{len(ranks)}")
        driver.complete("n2", *(completion(lease.lease_id) for lease in driver.held("n2")))


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2**32 - 1)), max_size=50), st.integers(0, 2**32 - 1))
def test_who_has_read_what_is_never_mistaken(noted: list[tuple[int, int]], asked: int) -> None:
    places = DataPlaces()
    for node, crc in noted:
        places.note(NodeId(f"n{node}"), crc)
    last = {crc: node for node, crc in noted}
    for crc in (*last, asked):
        if number := places.reader(crc):
            assert places.numbers[NodeId(f"n{last[crc]}")] == number


def test_memory_is_bounded() -> None:
    places = DataPlaces()
    for number in range(NODES_MAX + 10):
        places.note(NodeId(f"n{number}"), number)
    assert (len(places.numbers), len(places.sums), len(places.readers)) == (NODES_MAX, PLACES, PLACES)
    assert places.reader(NODES_MAX + 5) == 0


def test_a_queue_gives_each_mini_batch_once_however_it_is_asked() -> None:
    """Over more than is sorted at a time."""
    count = PIECE * 3
    places = DataPlaces()
    for crc in range(0, count, 2):
        places.note(NodeId("even"), crc)
    ready, crcs = ReadyQueue(), array("I", range(count))
    ready.add_fresh(0, count)
    preferred, taken = None, list[int]()
    while ready.size:
        preferred, known = places.take_known(preferred, NodeId("even"), 100, ready, crcs)
        taken += known + ready.take(70, 0.0)
    assert sorted(taken) == list(range(count))
