"""What ends a step as a whole (5.4, 5.5): `init()` that never succeeds, no progress, nodes at fault."""

from __future__ import annotations

import pytest
from core_driver import CoreDriver, completion
from windrow.spec.effective.job import EffectiveStep, default_progress_update_timeout_s
from windrow_master.core import commands
from windrow_master.core.ids import NodeId, StepId
from windrow_master.core.states import AttemptState, Cause, MiniBatchState, NodeState, StepState


@pytest.mark.parametrize(
    ("nodes", "processes", "after_s", "failures", "failed"),
    [
        (1, 1, 119.75, 2, False),
        (1, 1, 120.25, 1, False),
        (1, 1, 120.25, 2, True),
        (2, 3, 121, 11, False),
        (2, 3, 121, 12, True),
    ],
)
def test_init_that_never_succeeds_fails_the_step_after_two_minutes_and_twice_the_workers(
    nodes: int, processes: int, after_s: float, failures: int, failed: bool
) -> None:
    driver = CoreDriver()
    step = driver.running([1] * 20, max_concurrency_per_instance=processes)
    names = [f"n{number}" for number in range(nodes)]
    for name in names:
        driver.join(name, 1)
    driver.init_fails(names[0], failures)
    assert step.state == StepState.RUNNING, "however many at once"
    driver.tick_alive(after_s, *names)
    assert (step.state == StepState.FAILED) == failed
    if failed:
        assert f"{failures} tries in more than 2 minutes, with {nodes * processes} worker process" in step.message
        assert step.message.endswith("and none succeeded: no model")
        driver.tables.check()


def test_the_failure_that_passes_the_limit_ends_the_step_at_once() -> None:
    driver = CoreDriver()
    step = driver.running([1], max_concurrency_per_instance=1)
    driver.join()
    driver.tick_alive(121, "n1")
    driver.init_fails("n1")
    assert step.state == StepState.RUNNING
    driver.init_fails("n1")
    assert step.state == StepState.FAILED


@pytest.mark.parametrize("sign", ["a worker waits or runs", "an attempt failed", "a mini-batch is done"])
@pytest.mark.parametrize("restart", [False, True])
def test_init_that_has_succeeded_anywhere_may_fail_elsewhere(sign: str, restart: bool) -> None:
    driver = CoreDriver()
    driver.running([1, 1, 1])
    driver.join("n1", 2)
    driver.join("n2", 1)
    if sign == "an attempt failed":
        driver.fail("n1", driver.held("n1")[0], Cause.EXCEPTION)
    elif sign == "a mini-batch is done":
        driver.complete("n1", completion(driver.held("n1")[0].lease_id))
    driver.init_fails("n2", 50)
    if restart:
        driver.restart()
        for name in ("n1", "n2"):
            driver.join(name, 1)
    if sign == "a worker waits or runs":
        driver.beat("n1", ready_steps=(StepId(1),))
    driver.tick_alive(300, "n1", "n2")
    driver.init_fails("n2", 50)
    assert driver.step().state == StepState.RUNNING


def test_waiting_for_a_node_is_no_time_in_which_init_failed() -> None:
    driver = CoreDriver()
    step = driver.running([1])
    driver.tick(3600)
    driver.join()
    driver.init_fails("n1", 2)
    driver.tick_alive(60, "n1")
    assert step.state == StepState.RUNNING


# Progress


@pytest.mark.parametrize(("run_s", "load_s", "default_s"), [(60, 600, 1470), (1, 1, 36), (259_200, 600, 1_038_030)])
def test_the_default_is_what_one_mini_batch_may_take_by_all_other_bounds(
    run_s: int, load_s: int, default_s: int
) -> None:
    step = EffectiveStep(
        "s", "", "", {}, ("x",), run_invocation_timeout_s=run_s, task_overhead_timeout_s=load_s
    )  # fmt: skip
    assert default_progress_update_timeout_s(step) == default_s


@pytest.mark.parametrize("what", ["given back", "lost", "lost while it drained", "large rows arrive", "init failed"])
def test_what_is_no_standing_still(what: str) -> None:
    """Rolling over a fleet, or losing its machines one by one, is no lack of progress while others run on."""
    driver = CoreDriver()
    step = driver.running([1] * 4, progress_update_timeout_s=20)
    driver.join("n1", 2)
    driver.join("n2", 2)
    driver.tick_alive(15, "n1", "n2")
    if what == "given back":
        driver.do(commands.ReleaseLeases(NodeId("n2"), [lease.lease_id for lease in driver.held("n2")]))
    elif what == "large rows arrive":
        driver.do(commands.NoteProgress(StepId(1)))
    elif what == "init failed":
        driver.init_fails("n2")
    else:
        if what == "lost while it drained":
            driver.do(commands.DrainNode(NodeId("n2")))
        driver.register("n2", "b", replaced="a")
    driver.tick_alive(18, "n1", "n2")
    assert step.state == StepState.RUNNING
    driver.tick_alive(3, "n1", "n2")
    assert driver.step().state == StepState.FAILED
    assert "No progress update in 20 seconds, more than progress_update_timeout allows (20 s)" in step.message
    assert "leased mini-batches, of which none has ended" in step.message


# Nodes at fault


def node_faults(driver: CoreDriver, seconds: int, *also_alive: str) -> None:
    """Everything that n1 gets fails at once because its disk is full."""
    for _ in range(seconds):
        if driver.step().state != StepState.RUNNING:
            return
        for lease in driver.held("n1"):
            driver.fail("n1", lease, Cause.NODE_FAULT)
        driver.tick_alive(1, "n1", *also_alive)


def test_a_lasting_fault_of_the_only_node_is_tried_now_and_then_and_not_for_ever() -> None:
    driver = CoreDriver()
    step = driver.running([1] * 500, progress_update_timeout_s=300)
    driver.join("n1", 50)
    node_faults(driver, 290)
    assert step.state == StepState.RUNNING
    tried = step.counters.failed_attempts[str(int(Cause.NODE_FAULT))]
    assert tried <= 50 + 10 * 60, "what it held, and what it gets before it is set aside again, each half minute"
    node_faults(driver, 60)
    assert step.state == StepState.FAILED
    assert "No progress update in 30" in step.message
    assert "every attempt since then has failed because of its node, the last on n1: node_fault" in step.message
    assert "windrow node cordon" in step.message
    assert step.counters.failed == 0, "no mini-batch is to blame"
    driver.tables.check()


def test_a_fault_that_is_mended_in_time_costs_nothing() -> None:
    driver = CoreDriver()
    step = driver.running([1] * 20, progress_update_timeout_s=300)
    driver.join("n1", 20)
    node_faults(driver, 200)
    driver.tick_alive(31, "n1")
    driver.finish_all()
    assert (step.state, step.counters.succeeded) == (StepState.CONCATENATING, 20)


def test_a_faulty_node_beside_one_that_works_is_set_aside_and_fails_nothing() -> None:
    driver = CoreDriver()
    step = driver.running([1] * 400, progress_update_timeout_s=60)
    driver.join("n1", 20)
    driver.join("n2", 1)
    for _ in range(10):
        node_faults(driver, 20, "n2")
        driver.complete("n2", completion(driver.held("n2")[0].lease_id))
    assert step.state == StepState.RUNNING
    asides = [event.message for event in driver.tables.events if event.kind == "node_set_aside"]
    assert asides and all("n1: Set aside for step 'step' of job: " in message for message in asides)


@pytest.mark.parametrize("going", ["leaves", "is cordoned, beside one of another pool"])
def test_a_step_whose_faulty_node_has_gone_waits_for_another(going: str) -> None:
    driver = CoreDriver()
    step = driver.running([1] * 3, progress_update_timeout_s=60, compute="gpu")
    driver.join("n1", 3, pool="gpu")
    node_faults(driver, 30)
    if going == "leaves":
        driver.do(commands.CloseWork(NodeId("n1"), driver.node().stream))
        driver.tick(3600)
    else:
        driver.do(commands.CordonNode(NodeId("n1"), True))
        driver.join("n3", pool="cpu")
        driver.tick_alive(100, "n1", "n3")
    assert step.state == StepState.RUNNING
    driver.join("n2", 3, pool="gpu")
    driver.tick_alive(30, "n2")
    driver.finish_all("n2")
    assert step.state == StepState.CONCATENATING


# Nodes that leave


def test_a_node_that_is_lost_while_it_leaves_charges_nothing_however_often() -> None:
    """Machines that are taken away at short notice say so first; a long mini-batch is no killer of nodes for that."""
    driver = CoreDriver()
    step = driver.running([1])
    for number in range(1, 15):
        name = f"n{number}"
        driver.join(name)
        (lease,) = driver.held(name)
        assert (lease.exclusive, lease.attempt) == (False, 1)
        driver.tick_alive(2, name)
        driver.capacity(name, 1, draining=True)
        assert driver.node(name).state == NodeState.DRAINING
        driver.tick(6)
        assert not driver.core.state.nodes
        assert driver.tables.attempts[lease.lease_id].state == AttemptState.ABANDONED
        assert driver.tables.attempts[lease.lease_id].cause == Cause.PREEMPTED
    assert (step.counters.retries, step.counters.failed_attempts) == (0, {})
    assert step.mini_batches.states[0] == MiniBatchState.QUEUED
    driver.assert_reload_equals_live()
