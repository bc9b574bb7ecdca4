"""Several steps: which end with one that fails, and on which nodes each of them runs."""

from __future__ import annotations

import pytest
from core_driver import CoreDriver, completion
from windrow_master.core import commands
from windrow_master.core import effects as fx
from windrow_master.core.ids import NodeId, StepId
from windrow_master.core.settings import StepSettings
from windrow_master.core.states import Cause, JobState, StepState

DIAMOND = (
    StepSettings("first", mini_batch_error_threshold=0, max_retries=0),
    StepSettings("reads", depends_on=("first",)),
    StepSettings("reads_on", depends_on=("reads",)),
    StepSettings("apart"),
)


def states(driver: CoreDriver) -> dict[str, StepState]:
    return {step.settings.name: step.state for step in driver.job().steps}


def fail_first(driver: CoreDriver) -> None:
    driver.plan(1, [1])
    driver.join()
    driver.fail("n1", driver.held()[0], Cause.EXCEPTION)


def give_up_and_back(driver: CoreDriver, name: str) -> None:
    """A node gives a step up, and what it holds of it back."""
    held = [lease.lease_id for lease in driver.held(name)]
    driver.give_up(name)
    driver.do(commands.ReleaseLeases(NodeId(name), held))
    driver.tick()


def test_a_step_that_fails_ends_all_others() -> None:
    driver = CoreDriver()
    driver.submit(*DIAMOND)
    fail_first(driver)
    assert driver.job().state == JobState.FAILED
    assert states(driver) == {
        "first": StepState.FAILED,
        "reads": StepState.CANCELLED,
        "reads_on": StepState.CANCELLED,
        "apart": StepState.CANCELLED,
    }


@pytest.mark.parametrize("restarts", [False, True], ids=["", "over a restart of the master"])
def test_where_the_job_goes_on_only_those_end_that_wait_for_it(restarts: bool) -> None:
    driver = CoreDriver()
    driver.submit(*DIAMOND, continue_on_step_failure=True)
    if restarts:
        driver.restart()
    fail_first(driver)
    assert driver.job().state == JobState.RUNNING
    assert states(driver) == {
        "first": StepState.FAILED,
        "reads": StepState.CANCELLED,
        "reads_on": StepState.CANCELLED,
        "apart": StepState.RUNNING,
    }
    if restarts:
        driver.restart()
        driver.open()
    driver.plan(4, [1])
    driver.capacity("n1", 1, step_id=4)
    driver.finish_all()
    driver.finish_step(4)
    assert driver.job().state == JobState.FAILED
    assert driver.job().message.startswith("Step 'first' failed: ")
    assert states(driver)["apart"] == StepState.COMPLETED
    driver.assert_reload_equals_live()


def test_a_job_with_several_failed_steps_tells_of_all() -> None:
    driver = CoreDriver()
    steps = [StepSettings(name, mini_batch_error_threshold=0, max_retries=0) for name in ("a", "b")]
    driver.submit(*steps, continue_on_step_failure=True)
    driver.join()
    for step_id in (1, 2):
        driver.plan(step_id, [1])
        driver.capacity("n1", 5, step_id=step_id)
        driver.fail("n1", driver.held()[0], Cause.EXCEPTION)
        driver.tick()
    assert driver.job().state == JobState.FAILED
    assert driver.job().message.startswith("Step 'a' failed: ")
    assert driver.job().message.endswith("Failed as well: 'b'.")


def test_a_command_that_fails_says_what_happened_and_not_how_many_did() -> None:
    driver = CoreDriver()
    driver.running([0], is_command=True, without_input=True, append_row=False, max_retries=0,
                   mini_batch_error_threshold=0)  # fmt: skip
    driver.join()
    result = completion(
        driver.held()[0].lease_id, Cause.EXCEPTION, items=0, message="The command ended with exit code 3"
    )
    driver.complete("n1", result)
    assert driver.job().message == "Step 'step' failed: The command ended with exit code 3"
    assert not driver.sent(fx.ReportFailures)


# Pools ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("compute", "serve"),
    [
        ("gpu", ["gpu", "both", "any"]),
        ("cpu", ["cpu", "both", "any"]),
        ("other", ["any"]),
        ("", ["gpu", "cpu", "both", "any"]),
    ],
)
def test_a_step_runs_on_the_nodes_of_its_pool_and_on_those_that_are_in_none(compute: str, serve: list[str]) -> None:
    driver = CoreDriver()
    pools = {"gpu": "gpu", "cpu": "cpu", "both": "cpu, gpu", "any": ""}
    driver.running([1] * 40, compute=compute)
    for name, pool in pools.items():
        driver.join(name, 2, pool=pool)
    assert [name for name in pools if driver.held(name)] == serve
    assert [name for name in pools if driver.node(name).offered] == serve


def test_pools_outlive_a_restart_of_the_master() -> None:
    driver = CoreDriver()
    driver.join("cpu", pool="cpu")
    driver.restart()
    driver.running([1], compute="gpu")
    driver.open("cpu")
    driver.capacity("cpu", 5)
    assert not driver.held("cpu")
    driver.assert_reload_equals_live()


def test_a_step_whose_pool_has_given_it_up_fails_although_other_nodes_are_there() -> None:
    driver = CoreDriver()
    driver.running([1], compute="gpu")
    driver.join("gpu", pool="gpu")
    driver.join("cpu", pool="cpu")
    driver.init_fails("gpu", 3)
    give_up_and_back(driver, "gpu")
    assert driver.step().state == StepState.FAILED
    assert "(3 tries on 1 node): no model" in driver.step().message


# instance_count -------------------------------------------------------------------------------------------------------


def holders(driver: CoreDriver, step_id: int = 1) -> set[str]:
    return {lease.node_id for lease in driver.core.state.leases.values() if lease.step_id == step_id}


def test_no_more_nodes_than_instance_count_work_on_a_step() -> None:
    driver = CoreDriver()
    driver.running([1] * 40, instance_count=2)
    for number in range(4):
        driver.join(f"n{number}", 3)
    assert len(holders(driver)) == 2
    for name in sorted(holders(driver)):
        driver.complete(name, *(completion(lease.lease_id) for lease in driver.held(name)))
    assert len(holders(driver)) == 2


def test_another_node_comes_in_where_one_of_them_is_lost() -> None:
    driver = CoreDriver()
    driver.running([1] * 40, instance_count=1)
    for number in range(2):
        driver.join(f"n{number}", 3)
    (first,) = holders(driver)
    other = "n1" if first == "n0" else "n0"
    driver.tick_alive(10, other)
    assert holders(driver) == {other}


def test_another_node_comes_in_where_one_of_them_gives_the_step_up() -> None:
    driver = CoreDriver()
    driver.running([1] * 4, instance_count=1)
    driver.join("n0", 2)
    driver.join("n1", 2)
    assert holders(driver) == {"n0"}
    give_up_and_back(driver, "n0")
    assert holders(driver) == {"n1"}
    assert driver.step().state == StepState.RUNNING


def test_two_bounded_steps_share_the_nodes() -> None:
    driver = CoreDriver()
    driver.submit(*(StepSettings(name, instance_count=1) for name in "ab"))
    for name in ("n0", "n1"):
        assert driver.register(name) is None
        assert driver.open(name) is None
    for step_id in (1, 2):
        driver.plan(step_id, [1] * 4)
    for name in ("n0", "n1"):
        node = driver.node(name)
        wants = tuple((StepId(step_id), 2, 1) for step_id in (1, 2))
        driver.do(commands.SetCapacity(node.node_id, node.stream, wants))
    assert [len(holders(driver, step_id)) for step_id in (1, 2)] == [1, 1]
    assert holders(driver, 1) != holders(driver, 2)


def test_steps_that_have_ended_on_a_node_do_not_keep_another_away_from_it() -> None:
    driver = CoreDriver()
    driver.submit(*(StepSettings(name, append_row=False, instance_count=1) for name in "abcd"))
    for name in ("n0", "n1"):
        assert driver.register(name) is None
        assert driver.open(name) is None
    driver.plan(1, [1])
    driver.plan(2, [1])
    driver.plan(3, [1])
    chosen = [driver.step(step_id).nodes.chosen for step_id in (1, 2, 3)]
    assert chosen == [{"n0"}, {"n1"}, {"n0"}]
    for step_id in (1, 3):
        driver.capacity("n0", 1, step_id=step_id)
        driver.finish_all("n0")
        driver.finish_step(step_id)
    driver.plan(4, [1])
    assert driver.step(4).nodes.chosen == {"n0"}, "n1 still has a step"
