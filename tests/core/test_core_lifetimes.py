"""Nodes that an engine ends: they are leased what they can finish, and their end is nobody's failure."""

from __future__ import annotations

import pytest
from core_driver import CoreDriver, completion
from windrow_master.core.commands import ExplainJob, ReleaseLeases
from windrow_master.core.ids import NodeId
from windrow_master.core.reasons import Code, Reason
from windrow_master.core.states import Cause, NodeState

MANY = [1] * 200
SECOND_US = 1_000_000


def joined(driver: CoreDriver, name: str, lifetime_s: float, *, slots: int = 2, depth: int = 1) -> None:
    driver.register(name, slots=slots, lifetime_s=lifetime_s)
    driver.open(name)
    driver.capacity(name, slots * depth, slots)


def taking(each_s: float) -> CoreDriver:
    """A step whose mini-batches are known to take so long."""
    driver = CoreDriver()
    driver.running(MANY)
    driver.join_slots("known", 20)
    driver.complete(
        "known", *(completion(one.lease_id, elapsed_us=int(each_s * SECOND_US)) for one in driver.held("known"))
    )
    driver.capacity("known", 0, 20)
    driver.do(ReleaseLeases(NodeId("known"), [one.lease_id for one in driver.held("known")]))
    return driver


def alive(driver: CoreDriver, after_s: float) -> None:
    driver.tick_alive(after_s, *driver.core.state.nodes)


def explained(driver: CoreDriver) -> Reason:
    (reason,) = driver.do(ExplainJob("job"))
    assert isinstance(reason, Reason)
    return reason


def finish(driver: CoreDriver, name: str, each_s: float) -> None:
    driver.complete(name, *(completion(one.lease_id, elapsed_us=int(each_s * SECOND_US)) for one in driver.held(name)))


def test_a_node_gets_a_mini_batch_only_while_it_can_finish_one() -> None:
    driver = taking(60.0)
    joined(driver, "short", 200.0)
    assert len(driver.held("short")) == 2
    alive(driver, 60)
    finish(driver, "short", 60.0)
    assert len(driver.held("short")) == 2  # 140 s are left
    alive(driver, 60)
    finish(driver, "short", 60.0)
    assert len(driver.held("short")) == 2  # 80 s are left
    alive(driver, 60)
    finish(driver, "short", 60.0)
    assert not driver.held("short")  # 20 s are left
    assert driver.step().counters.queued > 0


def test_it_holds_no_more_in_its_queue_than_it_can_finish() -> None:
    driver = taking(10.0)
    joined(driver, "short", 35.0, depth=50)
    assert len(driver.held("short")) == 2 * 3


def test_a_node_without_an_end_is_not_bounded() -> None:
    driver = taking(10_000.0)
    driver.join_slots("long", 2)
    assert len(driver.held("long")) == 2


def test_the_time_of_init_counts_where_no_worker_is_ready() -> None:
    driver = taking(10.0)
    driver.step().counters.starts = {"workers": 1, "init_us": 30 * SECOND_US}
    joined(driver, "cold", 35.0)
    assert not driver.held("cold")
    driver.beat("cold", ready_steps=(driver.step().step_id,))
    alive(driver, 1)
    assert len(driver.held("cold")) == 2


def test_why_a_step_waits_is_told_in_numbers() -> None:
    driver = taking(3600.0)
    driver.capacity("known", 0, 0)
    driver.do(ReleaseLeases(NodeId("known"), []))
    driver.node("known").ends_s = driver.now_s
    joined(driver, "short", 1800.0)
    reason = explained(driver)
    assert (reason.code, reason.nodes) == (Code.NODES_END_TOO_SOON, ("short",))
    assert reason.wanted_s == pytest.approx(3600, rel=0.3)
    assert reason.next_s == pytest.approx(1800, abs=1)


@pytest.mark.parametrize("says_so", [True, False])
def test_a_node_whose_lifetime_has_ended_charges_nobody(says_so: bool) -> None:
    """Whether its agent still says that it leaves, or the engine has killed it with all that it ran."""
    driver = CoreDriver()
    driver.running(MANY)
    joined(driver, "short", 30.0)
    held = [one.mini_batch for one in driver.held("short")]
    alive(driver, 29)
    if says_so:
        driver.capacity("short", 0, 2, draining=True)
    driver.tick(60)
    assert NodeId("short") not in driver.core.state.nodes
    counters = driver.step().counters
    assert (counters.failed_attempts, counters.retries, counters.leased) == ({}, 0, 0)
    assert all(one not in driver.step().mini_batches.tries for one in held)
    driver.join("next")
    assert {one.mini_batch for one in driver.held("next")} >= set(held)


def test_a_node_that_is_lost_before_its_end_counts_as_lost() -> None:
    driver = CoreDriver()
    driver.running(MANY)
    joined(driver, "short", 3600.0)
    alive(driver, 5)
    driver.tick(60)
    assert driver.step().counters.failed_attempts == {str(int(Cause.NODE_LOST)): 2}


def test_what_takes_longer_than_nodes_live_is_not_begun_for_ever() -> None:
    """Nobody has ever finished one, so nobody knows how long they take: each node's end says that it is longer."""
    driver = CoreDriver()
    driver.running(MANY)
    for number in range(5):
        name = f"n{number}"
        joined(driver, name, 100.0)
        if not driver.held(name):
            break
        alive(driver, 98)
        driver.capacity(name, 0, 2, draining=True)
        driver.do(ReleaseLeases(NodeId(name), [one.lease_id for one in driver.held(name)]))
        driver.tick(60)
    assert number == 1
    assert explained(driver).code == Code.NODES_END_TOO_SOON
    assert driver.node("n1").state == NodeState.READY
    joined(driver, "longer", 200.0)
    assert len(driver.held("longer")) == 2
    alive(driver, 150)
    finish(driver, "longer", 150.0)
    assert explained(driver).code == Code.NODES_END_TOO_SOON  # 50 s are left
    assert explained(driver).wanted_s == pytest.approx(150, rel=0.3)


def test_the_end_is_that_of_the_agent_s_last_word() -> None:
    driver = taking(60.0)
    joined(driver, "short", 30.0)
    assert not driver.held("short")
    driver.register("short", lifetime_s=300.0)
    driver.capacity("short", 2, 2)
    assert len(driver.held("short")) == 2
