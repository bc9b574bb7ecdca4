"""Workers that cannot be made ready: given up by node, by all nodes
(docs/reference/azure-ml/parallel-job.md#lost-workers-and-nodes)."""

from __future__ import annotations

import pytest
from core_driver import CoreDriver, completion
from windrow_master.core import commands
from windrow_master.core.ids import NodeId, StepId
from windrow_master.core.states import Cause, StepState


def test_a_step_fails_when_every_node_has_given_it_up() -> None:
    driver = CoreDriver()
    step = driver.running([1])
    for name in ("n1", "n2"):
        driver.join(name, 1)
    for name in ("n1", "n2"):
        assert step.state == StepState.RUNNING
        driver.init_fails(name, 3)
        driver.give_up(name)
        driver.do(commands.ReleaseLeases(NodeId(name), list(driver.node(name).lease_ids)))
    assert step.state == StepState.FAILED
    assert "no worker could be made ready (6 tries on 2 nodes): no model" in step.message
    driver.tables.check()


def test_a_node_that_is_away_for_a_moment_may_still_serve_but_not_once_it_is_lost() -> None:
    driver = CoreDriver()
    step = driver.running([1])
    driver.join("n1", 0)
    driver.join("n2", 0)
    driver.do(commands.CloseWork(NodeId("n2"), driver.node("n2").stream))
    driver.init_fails("n1")
    driver.give_up("n1")
    assert step.state == StepState.RUNNING
    driver.tick_alive(2, "n1")
    assert driver.step().state == StepState.FAILED


def test_the_last_lease_that_comes_back_counts_too() -> None:
    driver = CoreDriver()
    step = driver.running([1], max_retries=5)
    driver.join("n1", 1)
    driver.init_fails("n1")
    driver.give_up("n1")
    assert step.state == StepState.RUNNING, "its last lease is still out"
    driver.fail("n1", driver.held()[0], Cause.EXCEPTION)
    driver.tick_alive(0.5, "n1")
    assert driver.step().state == StepState.FAILED


def test_a_failure_that_is_sent_again_counts_once_also_after_a_restart() -> None:
    driver = CoreDriver()
    step = driver.running([1])
    driver.join("n1", 0)

    def fail(*numbers: int) -> int:
        for number in numbers:
            driver.do(
                commands.ReportWorkerFailure(NodeId("n1"), StepId(1), Cause.INIT_FAILED, "no model", "", 0, number)
            )
        return driver.step().counters.failed_attempts[str(int(Cause.INIT_FAILED))]

    assert fail(1, 2, 1, 2) == 2
    assert step.workers.init_failures == {"n1": 2}
    driver.restart()
    assert driver.register("n1") is None
    assert fail(1, 2, 3) == 2, "it has not shown that it was offered the step"
    assert driver.register("n1", has=(1,)) is None
    assert fail(1, 2, 3) == 3
    assert driver.register("n1", "b", "a", has=(1,)) is None
    assert fail(1, 1) == 4, "its next incarnation counts from 1 again"
    driver.tables.check()


@pytest.mark.parametrize("draining", [False, True], ids=["squeezed out", "draining"])
def test_a_node_that_wants_nothing_has_not_given_up(draining: bool) -> None:
    driver = CoreDriver()
    step = driver.running([1])
    driver.join("n1", 0)
    driver.init_fails("n1", 2)
    driver.capacity("n1", 0, workers=0, draining=draining)
    driver.tick_alive(0.5, "n1")
    assert step.state == StepState.RUNNING


def test_a_node_that_leaves_does_not_speak_for_those_that_may_come() -> None:
    driver = CoreDriver()
    step = driver.running([1])
    node = driver.join("n1", 0)
    driver.init_fails("n1", 3)
    driver.do(commands.SetCapacity(node.node_id, node.stream, ((StepId(1), 0, 0),), True, (StepId(1),)))
    assert step.state == StepState.RUNNING


def test_a_step_given_up_under_an_earlier_master_fails_too() -> None:
    driver = CoreDriver()
    step = driver.running([1])
    driver.join("n1", 0)
    driver.give_up("n1")
    assert step.state == StepState.FAILED
    assert "no worker could be made ready (on 1 node)" in step.message


def test_a_worker_that_gets_ready_clears_its_nodes_failures() -> None:
    driver = CoreDriver()
    step = driver.running([1])
    driver.join("n1", 1)
    driver.init_fails("n1", 2)
    driver.capacity("n1", 1, workers=1)
    assert step.workers.init_failures == {NodeId("n1"): 2}, "it wants a worker, and has none yet"
    driver.beat(ready_steps=(StepId(1), StepId(9)))
    assert not step.workers.init_failures


def test_a_result_shows_that_a_worker_got_ready() -> None:
    driver = CoreDriver()
    step = driver.running([1, 1])
    driver.join("n1", 1)
    driver.init_fails("n1", 1)
    driver.complete("n1", completion(driver.held()[0].lease_id))
    assert not step.workers.init_failures
