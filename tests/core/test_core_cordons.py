"""Cordons: what a cordoned node gets, what outlives it, and what a node leaves behind when it is removed."""

from __future__ import annotations

import pytest
from core_driver import CoreDriver, completion
from windrow_master.core import commands
from windrow_master.core import effects as fx
from windrow_master.core.causes import Budget
from windrow_master.core.ids import NodeId
from windrow_master.core.refused import Refused
from windrow_master.core.state import Node
from windrow_master.core.states import Cause, MiniBatchState, NodeState, StepState

N1 = NodeId("n1")


def cordon(driver: CoreDriver, name: str = "n1", cordoned: bool = True) -> Node:
    """Cordon a node, or take that back."""
    node = driver.do(commands.CordonNode(NodeId(name), cordoned))
    assert isinstance(node, Node)
    return node


def close(driver: CoreDriver, name: str = "n1") -> None:
    """The node's stream ends."""
    driver.do(commands.CloseWork(NodeId(name), driver.node(name).stream))


def test_a_cordoned_node_is_handed_nothing_new_and_finishes_what_it_holds() -> None:
    driver = CoreDriver()
    step = driver.running([1] * 6)
    driver.join(leases_max=2)
    held = driver.held()
    assert cordon(driver).state == NodeState.READY
    (recalled,) = driver.sent(fx.RecallLeases)
    assert (recalled.node_id, recalled.step_id, recalled.leases_max) == ("n1", 1, len(held))
    driver.do(commands.ReleaseLeases(N1, [held[1].lease_id]))
    driver.complete("n1", completion(held[0].lease_id))
    driver.capacity("n1", 5)
    driver.tick_alive(60, "n1")
    assert not driver.held() and step.state == StepState.RUNNING, "it waits"
    assert (step.counters.succeeded, step.counters.retries) == (1, 0)
    assert not cordon(driver, cordoned=False).cordoned
    assert len(driver.held()) == 5


def test_a_step_is_not_even_offered_to_a_cordoned_node() -> None:
    driver = CoreDriver()
    driver.join()
    cordon(driver)
    driver.running([1])
    assert not driver.sent(fx.SendStep)
    cordon(driver, cordoned=False)
    assert driver.sent(fx.SendStep)


def test_an_unknown_name_is_refused() -> None:
    driver = CoreDriver()
    for command in (commands.CordonNode(N1, True), commands.CordonNode(N1, False), commands.RemoveNode(N1)):
        reply = driver.do(command)
        assert isinstance(reply, Refused) and reply.reason == "NODE_UNKNOWN"


def test_a_cordon_holds_over_incarnations_losses_and_restarts_of_the_master() -> None:
    driver = CoreDriver()
    driver.running([1, 1])
    driver.join(leases_max=0)
    cordon(driver)
    assert driver.register(incarnation="b", replaced="a") is None
    assert driver.node().cordoned and driver.node().state == NodeState.DISCONNECTED
    driver.restart()
    assert driver.node().cordoned
    driver.tick(20)
    assert not driver.core.state.nodes and driver.core.state.absent[N1].state == NodeState.LOST
    driver.restart()
    driver.assert_reload_equals_live()
    driver.join(incarnation="c")
    assert driver.node().cordoned and not driver.held() and not driver.core.state.absent
    cordon(driver, cordoned=False)
    assert len(driver.held()) == 2


def test_what_a_cordoned_node_names_when_it_connects_again_it_keeps() -> None:
    driver = CoreDriver()
    driver.running([1, 1])
    driver.join(leases_max=1)
    (lease,) = driver.held()
    cordon(driver)
    driver.restart()
    driver.register()
    driver.open(held=driver.as_held(lease))
    (recalled,) = driver.sent(fx.RecallLeases)
    assert (recalled.node_id, recalled.leases_max) == ("n1", 1), "should it not have begun"
    driver.capacity("n1", 5)
    assert [at.lease_id for at in driver.held()] == [lease.lease_id]
    driver.finish_all()
    assert not driver.held() and driver.step().counters.succeeded == 1


def test_a_drained_node_comes_back_cordoned() -> None:
    driver = CoreDriver()
    driver.running([1])
    driver.join(leases_max=0)
    assert driver.do(commands.DrainNode(N1)).cordoned
    driver.capacity("n1", 0, draining=True)
    close(driver)
    assert driver.known("n1") is driver.core.state.absent[N1]
    node = driver.join(incarnation="b")
    assert (node.state, node.cordoned, driver.held()) == (NodeState.READY, True, [])
    assert not driver.sent(fx.SendDrain), "the request was of the incarnation that left"
    cordon(driver, cordoned=False)
    assert driver.held()


def test_a_drain_waits_for_the_disk() -> None:
    """Told before its cordon is durable, the node could come back and be handed work after a crash of the master."""
    assert fx.SendDrain in fx.AFTER_COMMIT


def test_a_name_that_is_uncordoned_while_nobody_is_here_under_it_is_forgotten() -> None:
    driver = CoreDriver()
    driver.join()
    cordon(driver)
    close(driver)
    driver.tick(2)
    assert set(driver.tables.nodes) == {"n1"}
    cordon(driver, cordoned=False)
    assert driver.known("n1") is None and not driver.tables.nodes


def test_a_connected_node_is_not_removed() -> None:
    driver = CoreDriver()
    driver.running([1])
    driver.join()
    reply = driver.do(commands.RemoveNode(N1))
    assert isinstance(reply, Refused) and reply.reason == "NODE_CONNECTED"
    assert "windrow node drain n1" in reply.message and driver.held()


@pytest.mark.parametrize("cordoned", [False, True])
def test_a_removed_node_gives_its_leases_back_at_once_and_is_forgotten(cordoned: bool) -> None:
    driver = CoreDriver()
    step = driver.running([1, 1])
    driver.join(leases_max=2)
    driver.tick_alive(2, "n1")
    driver.join("n2", 0)
    if cordoned:
        cordon(driver)
    close(driver)
    assert len(driver.held()) == 2
    assert driver.do(commands.RemoveNode(N1)) is None
    assert driver.known("n1") is None and set(driver.tables.nodes) == {"n2"}
    assert [step.mini_batches.states[at] for at in range(2)] == [MiniBatchState.QUEUED] * 2
    assert all(not tries.failures[Budget.MAX_RETRIES] for tries in step.mini_batches.tries.values())
    driver.restart()
    assert driver.known("n1") is None
    node = driver.join("n1")
    driver.tick_alive(2, "n1")
    assert not node.cordoned and driver.held()


def test_a_node_that_is_lost_and_cordoned_can_be_removed() -> None:
    driver = CoreDriver()
    driver.join()
    cordon(driver)
    close(driver)
    driver.tick(2)
    assert driver.do(commands.RemoveNode(N1)) is None
    assert driver.known("n1") is None and not driver.tables.nodes


def test_lost_and_removed_within_one_group_leaves_no_row() -> None:
    driver = CoreDriver()
    driver.join()
    cordon(driver)
    close(driver)
    driver.now_s += 0.25
    driver.group(commands.Tick(), commands.RemoveNode(N1))
    assert not driver.tables.nodes


def test_no_node_is_set_aside_for_the_sake_of_a_cordoned_one() -> None:
    driver = CoreDriver()
    step = driver.running([1] * 40, max_retries=0)
    driver.join("n1", 20)
    driver.join("n2", 0)
    cordon(driver, "n2")
    for lease in driver.held("n1")[:12]:
        driver.fail("n1", lease, Cause.CRASH)
    assert not step.nodes.standings[N1].asides and step.nodes.standings[N1].doubted_s is None


# Whether a step may still be served


def test_a_step_does_not_fail_because_all_that_could_serve_it_are_cordoned() -> None:
    driver = CoreDriver()
    step = driver.running([1])
    driver.join("n1", 0)
    cordon(driver)
    driver.give_up("n1")
    driver.tick_alive(1, "n1")
    assert step.state == StepState.RUNNING, "it waits"
    cordon(driver, cordoned=False)
    driver.tick_alive(0.5, "n1")
    assert driver.step().state == StepState.FAILED


def test_a_node_set_aside_does_not_keep_a_broken_script_waiting() -> None:
    driver = CoreDriver()
    step = driver.running([1])
    driver.join("n1", 0)
    driver.join("n2", 0)
    cordon(driver, "n2")
    driver.give_up("n1")
    assert step.state == StepState.FAILED


def test_a_step_that_works_somewhere_waits_for_a_cordoned_node() -> None:
    driver = CoreDriver()
    step = driver.running([1, 1])
    driver.join("n1", 0)
    driver.join("n2", 1)
    driver.give_up("n1")
    cordon(driver, "n2")
    driver.complete("n2", completion(driver.held("n2")[0].lease_id))
    driver.tick_alive(1, "n1", "n2")
    assert step.state == StepState.RUNNING and not driver.held("n2")
    cordon(driver, "n2", False)
    driver.finish_all("n2")
    assert driver.step().state == StepState.CONCATENATING


@pytest.mark.parametrize("removed", [False, True])
def test_a_step_waits_for_a_node_that_was_drained_until_that_is_removed(removed: bool) -> None:
    driver = CoreDriver()
    step = driver.running([1, 1])
    driver.join("n1", 0)
    driver.join("n2", 1)
    driver.give_up("n1")
    driver.do(commands.DrainNode(NodeId("n2")))
    driver.finish_all("n2")
    driver.capacity("n2", 0, draining=True)
    driver.tick_alive(1, "n1", "n2")
    close(driver, "n2")
    driver.tick_alive(1, "n1")
    assert step.state == StepState.RUNNING and set(driver.core.state.absent) == {"n2"}
    if removed:
        driver.do(commands.RemoveNode(NodeId("n2")))
        driver.tick_alive(0.5, "n1")
        assert driver.step().state == StepState.FAILED
    else:
        cordon(driver, "n2", False)
        driver.join("n2", 1, incarnation="b")
        driver.finish_all("n2")
        assert driver.step().state == StepState.CONCATENATING
