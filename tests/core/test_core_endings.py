"""A step whose scripts have a shutdown(), or write to a store: its workers are ended, and waited for, before its output
is made."""

from __future__ import annotations

import pytest
from core_driver import CoreDriver
from windrow_master.core import commands
from windrow_master.core import effects as fx
from windrow_master.core.causes import DEPENDENCY_ERROR
from windrow_master.core.commands import FinishStep, LostRows, RequeueLostRows
from windrow_master.core.ids import NodeId, StepId
from windrow_master.core.settings import StepSettings
from windrow_master.core.states import JobState, StepState

STEP = StepId(1)


def confirm(
    driver: CoreDriver,
    name: str,
    unsaved: str = "",
    stream: int | None = None,
    failures: tuple[int, str] = (0, ""),
    generation: int = 1,
    step_id: int = STEP,
    asked: int | None = None,
) -> None:
    """The node answers that it has ended the workers of a step, by default when it is asked about this generation."""
    node = driver.node(name)
    stream = node.stream if stream is None else stream
    asked = driver.job(driver.step(step_id).job_key).generation if asked is None else asked
    driver.do(commands.ConfirmStepEnd(node.node_id, stream, StepId(step_id), generation, unsaved, *failures, asked))


def ending(*names: str) -> CoreDriver:
    """All of a step is done by the first of these nodes."""
    driver = CoreDriver()
    driver.running([1, 1], ends_workers_first=True)
    for name in names:
        driver.join(name)
    driver.finish_all(names[0])
    driver.finish_all(names[-1])
    assert driver.step().state is StepState.CONCATENATING
    return driver


def test_all_nodes_are_asked_and_waited_for() -> None:
    driver = ending("n1", "n2")
    assert {effect.node_id for effect in driver.sent(fx.EndStep)} == {"n1", "n2"}
    driver.tick_alive(1, "n1", "n2")
    assert not driver.step().message, "most have ended before anybody could wonder"
    driver.tick_alive(4, "n1", "n2")
    assert "Nodes end their workers" in driver.step().message
    assert not driver.sent(fx.ConcatenateRows)
    driver.assert_reload_equals_live()
    confirm(driver, "n1")
    assert not driver.sent(fx.ConcatenateRows)
    confirm(driver, "n1")
    assert not driver.sent(fx.ConcatenateRows)
    confirm(driver, "n2")
    assert driver.sent(fx.ConcatenateRows) == [fx.ConcatenateRows(STEP, 1)] and not driver.step().message
    driver.assert_reload_equals_live()
    driver.do(FinishStep(STEP, 1, ""))
    assert driver.job().state is JobState.COMPLETED and not driver.job().warnings


def test_a_step_without_a_shutdown_waits_for_nobody() -> None:
    driver = CoreDriver()
    driver.running([1])
    driver.join()
    driver.finish_all()
    assert driver.sent(fx.ConcatenateRows) and not driver.sent(fx.EndStep)


def test_a_node_that_is_lost_meanwhile_is_told_of() -> None:
    driver = ending("n1", "n2")
    confirm(driver, "n2")
    driver.tick_alive(10, "n2")
    assert driver.known("n1") is None
    (warning,) = driver.job().warnings
    assert "n1 was lost" in warning and "shutdown()" in warning
    driver.do(FinishStep(STEP, 1, ""))
    assert driver.job().state is JobState.COMPLETED


def test_nodes_that_never_had_the_step_are_not_waited_for() -> None:
    driver = CoreDriver()
    driver.running([1], ends_workers_first=True, compute="gpu")
    driver.join("n1", pool="gpu")
    for name in ("n2", "n3"):
        driver.register(name, pool="cpu")
        driver.open(name)
    driver.finish_all("n1")
    assert {effect.node_id for effect in driver.sent(fx.EndStep)} == {"n1", "n2", "n3"}
    driver.tick_alive(10, "n1", "n3")
    assert driver.known("n2") is None and driver.step().workers.ending_on == {"n1"} and not driver.job().warnings
    confirm(driver, "n1")
    assert driver.sent(fx.ConcatenateRows)


def test_after_a_restart_nodes_that_say_that_they_have_it_are_waited_for_and_those_that_have_said_nothing() -> None:
    driver = CoreDriver()
    driver.running([1], ends_workers_first=True)
    for name in ("n1", "n2", "n3", "n4"):
        driver.join(name)
    driver.restart()
    driver.open("n1", held=driver.as_held(*driver.leases.values()), steps=(STEP,))
    driver.open("n2", steps=(STEP,))
    driver.open("n3")
    driver.finish_all("n1")
    assert driver.step().workers.ending_on == {"n1", "n2", "n4"}
    confirm(driver, "n1")
    confirm(driver, "n2")
    driver.tick_alive(20, "n1", "n2", "n3")
    (warning,) = driver.job().warnings
    assert "Node n4 has not come back since the master was restarted" in warning
    assert driver.step().state is StepState.CONCATENATING and not driver.step().workers.ending_on


def test_a_node_that_leaves_in_good_order_had_saved_all() -> None:
    driver = ending("n1", "n2")
    confirm(driver, "n2")
    driver.capacity("n1", 0, draining=True)
    driver.do(commands.CloseWork(NodeId("n1"), driver.node("n1").stream))
    assert driver.sent(fx.ConcatenateRows) and not driver.job().warnings


def test_what_could_not_be_saved_fails_the_step() -> None:
    driver = ending("n1")
    confirm(driver, "n1", "what process000 wrote is not in its store")
    assert driver.step().state is StepState.FAILED and driver.step().error_category == DEPENDENCY_ERROR
    assert "n1" in driver.job().message and "process000" in driver.job().message


def test_shutdowns_that_failed_are_told_once_for_all_nodes() -> None:
    driver = ending("n1", "n2")
    confirm(driver, "n1", failures=(2, "process001: OSError: no model store"))
    confirm(driver, "n1", failures=(2, "said twice"))
    assert not driver.job().warnings
    confirm(driver, "n2", failures=(1, "process000: OSError: another"))
    (warning,) = driver.job().warnings
    assert "shutdown() failed in 3 workers" in warning and "process001: OSError: no model store (node n1)" in warning
    assert f"`windrow job logs {driver.job().job_id} --failed`" in warning
    driver.do(FinishStep(STEP, 1, ""))
    assert driver.job().state is JobState.COMPLETED


def test_how_an_earlier_generation_ended_on_a_node_does_not_count() -> None:
    """A node that has no part in the retry remembers the job as it was."""
    driver = ending("n1", "n2")
    confirm(driver, "n1", unsaved="what process000 wrote is not in its store", generation=0)
    confirm(driver, "n2", failures=(1, "process000: OSError: no model store"), generation=0)
    assert driver.sent(fx.ConcatenateRows) and not driver.job().warnings
    assert driver.step().state is StepState.CONCATENATING


def test_a_broken_stream_and_a_restarted_master_ask_again() -> None:
    driver = ending("n1")
    old = driver.node("n1").stream
    driver.open("n1")
    assert [effect.step_id for effect in driver.sent(fx.EndStep)] == [STEP]
    confirm(driver, "n1", stream=old)
    assert not driver.sent(fx.ConcatenateRows), "what an older stream says"
    driver.restart()
    assert not driver.sent(fx.ConcatenateRows)
    driver.register("n1")
    driver.open("n1")
    assert [effect.step_id for effect in driver.sent(fx.EndStep)] == [STEP]
    confirm(driver, "n1")
    assert driver.sent(fx.ConcatenateRows)


def test_rows_that_are_lost_then_run_again_on_the_same_nodes() -> None:
    driver = ending("n1")
    confirm(driver, "n1")
    lost = driver.step().mini_batches.lease_ids[0]
    driver.do(RequeueLostRows(STEP, 1, (LostRows(0, lost, 1, 1, 1, 4, ()),)))
    assert driver.step().state is StepState.RUNNING
    assert driver.sent(fx.SendStep), "the step is offered anew: its workers have been ended"
    driver.capacity("n1", 10)
    driver.finish_all("n1")
    assert driver.sent(fx.EndStep) and not driver.sent(fx.ConcatenateRows)
    confirm(driver, "n1")
    assert driver.sent(fx.ConcatenateRows)


def test_a_job_whose_workers_end_already_is_cancelled_when_they_have() -> None:
    driver = ending("n1")
    driver.do(commands.CancelJob("job"))
    assert driver.job().state is JobState.CANCELLING
    confirm(driver, "n1", unsaved="the store is full")
    assert not driver.sent(fx.ConcatenateRows)
    assert (driver.job().state, driver.step().state) == (JobState.CANCELLED, StepState.CANCELLED)
    assert not driver.job().warnings


def cancelling(*names: str) -> CoreDriver:
    """A job that is cancelled while these nodes run it, and another one that has never had it."""
    driver = CoreDriver()
    driver.running([1] * 9, compute="cpu")
    for name in names:
        driver.join(name, leases_max=1, pool="cpu")
    driver.join("other", pool="gpu")
    driver.do(commands.CancelJob("job"))
    assert {effect.node_id for effect in driver.sent(fx.EndStep)} == {*names, "other"}
    assert (driver.job().state, driver.step().state) == (JobState.CANCELLING, StepState.CANCELLED)
    assert driver.job().end_time is None
    return driver


def test_a_job_is_cancelled_when_its_nodes_have_ended_its_workers() -> None:
    driver = cancelling("n1", "n2")
    driver.tick_alive(30, "n1", "n2", "other")
    driver.assert_reload_equals_live()
    assert driver.do(commands.CancelJob("job")) == 1 and not driver.effects
    confirm(driver, "n1")
    confirm(driver, "other")
    assert driver.job().state is JobState.CANCELLING
    confirm(driver, "n2", generation=0)
    assert driver.job().state is JobState.CANCELLED and driver.job().end_time is not None
    assert fx.NotifyJob(driver.job().job_key, True) in driver.effects
    driver.assert_reload_equals_live()


def test_a_job_that_no_node_has_is_cancelled_at_once() -> None:
    driver = CoreDriver()
    driver.running([1], compute="cpu")
    driver.join("other", pool="gpu")
    driver.do(commands.CancelJob("job"))
    assert driver.job().state is JobState.CANCELLED


def test_nodes_that_are_gone_are_not_waited_for() -> None:
    driver = cancelling("lost", "leaving", "removed", "replaced", "stays")
    node = driver.node("removed")
    driver.do(commands.CloseWork(node.node_id, node.stream))
    driver.do(commands.RemoveNode(node.node_id))
    driver.capacity("leaving", 0, draining=True)
    driver.do(commands.CloseWork(NodeId("leaving"), driver.node("leaving").stream))
    driver.register("replaced", "b", replaced="a")
    assert driver.step().workers.ending_on == {"lost", "stays"}
    driver.tick_alive(20, "stays", "other")
    assert driver.step().workers.ending_on == {"stays"} and not driver.job().warnings
    confirm(driver, "stays")
    assert driver.job().state is JobState.CANCELLED


def test_a_node_that_comes_back_is_told_again() -> None:
    driver = cancelling("n1")
    driver.open("n1", steps=(STEP,))
    assert driver.sent(fx.EndStep) == [fx.EndStep(NodeId("n1"), driver.node("n1").stream, STEP, 1)]
    confirm(driver, "n1")
    assert driver.job().state is JobState.CANCELLED


def test_the_next_master_goes_on_with_cancelling() -> None:
    driver = cancelling("n1", "away")
    driver.restart()
    assert driver.job().state is JobState.CANCELLING and driver.job().message == "Cancelled on request."
    driver.assert_reload_equals_live()
    driver.open("other")
    confirm(driver, "other")
    driver.open("n1", steps=(STEP,))
    assert driver.sent(fx.EndStep) == [fx.EndStep(NodeId("n1"), driver.node("n1").stream, STEP, 1)]
    confirm(driver, "n1")
    assert driver.step().workers.ending_on == {"away"}
    driver.tick_alive(20, "n1", "other")
    assert driver.job().state is JobState.CANCELLED
    driver.assert_reload_equals_live()


def test_the_next_master_that_knows_no_node_ends_the_job_at_once() -> None:
    driver = cancelling("n1")
    driver.tables.nodes.clear()
    driver.restart()
    assert driver.tables.jobs[driver.job().job_key].state is JobState.CANCELLED


def test_a_node_that_says_it_has_the_step_is_waited_for_though_it_was_forgotten() -> None:
    driver = cancelling("n1", "lost")
    driver.tick_alive(10, "n1", "other")
    assert driver.known("lost") is None
    driver.register("lost")
    driver.open("lost", steps=(STEP,))
    confirm(driver, "n1")
    assert driver.job().state is JobState.CANCELLING
    confirm(driver, "lost")
    assert driver.job().state is JobState.CANCELLED


def pipeline_in_its_second_step(*names: str) -> CoreDriver:
    """Its first step is done, and these nodes run the second one."""
    driver = CoreDriver()
    driver.submit(StepSettings("first"), StepSettings("second", depends_on=("first",)))
    driver.plan(1, [1])
    for name in names:
        driver.join(name)
    driver.finish_all(names[0])
    driver.finish_step()
    assert {effect.step_id for effect in driver.sent(fx.EndStep)} == {STEP}
    driver.plan(2, [1] * 9)
    for name in names:
        driver.capacity(name, 1, step_id=2)
    return driver


def test_an_answer_of_a_step_done_before_that_was_lost_with_its_stream_is_asked_for_again() -> None:
    driver = pipeline_in_its_second_step("n1", "n2")
    confirm(driver, "n2")
    driver.open("n1", steps=(StepId(2),))
    driver.do(commands.CancelJob("job"))
    asked = {(effect.node_id, effect.step_id) for effect in driver.sent(fx.EndStep)}
    assert asked == {("n1", 1), ("n1", 2), ("n2", 2)}
    for node_id, step_id in sorted(asked):
        assert driver.job().state is JobState.CANCELLING
        confirm(driver, node_id, step_id=step_id)
    assert driver.job().state is JobState.CANCELLED


def test_a_node_that_still_ends_workers_of_an_earlier_generation_is_waited_for() -> None:
    driver = CoreDriver()
    driver.running([1] * 4)
    driver.join()
    driver.do(commands.FailStep(STEP, "it cannot go on"))
    driver.do(commands.CordonNode(NodeId("n1"), True))
    driver.retry()
    assert not driver.sent(fx.SendStep)
    driver.do(commands.CancelJob("job"))
    assert driver.job().state is JobState.CANCELLING
    confirm(driver, "n1")
    assert driver.job().state is JobState.CANCELLED


@pytest.mark.parametrize("had", [0, 1], ids=["it had nothing", "it had the first generation"])
def test_a_late_answer_about_an_earlier_generation_does_not_count(had: int) -> None:
    """The node was asked twice, and its second answer is late."""
    driver = CoreDriver()
    driver.running([1] * 4)
    driver.join()
    driver.do(commands.CancelJob("job"))
    confirm(driver, "n1", generation=had)
    assert driver.job().state is JobState.CANCELLED
    driver.retry()
    assert driver.sent(fx.SendStep)
    confirm(driver, "n1", generation=had, asked=1)
    driver.do(commands.CancelJob("job"))
    assert driver.sent(fx.EndStep) == [fx.EndStep(NodeId("n1"), driver.node("n1").stream, STEP, 2)]
    confirm(driver, "n1", generation=had, asked=1)
    assert driver.job().state is JobState.CANCELLING
    confirm(driver, "n1", generation=2)
    assert driver.job().state is JobState.CANCELLED


def test_an_output_is_not_made_after_a_late_answer_about_an_earlier_generation() -> None:
    driver = CoreDriver()
    driver.running([1] * 2, ends_workers_first=True)
    driver.join()
    driver.do(commands.FailStep(STEP, "it cannot go on"))
    driver.retry()
    driver.capacity("n1", 2)
    driver.finish_all("n1")
    confirm(driver, "n1", asked=1)
    assert driver.step().state is StepState.CONCATENATING and not driver.sent(fx.ConcatenateRows)
    confirm(driver, "n1", generation=2)
    assert driver.sent(fx.ConcatenateRows)


def test_a_node_that_was_ending_workers_when_the_step_failed_is_waited_for_in_the_next_generation() -> None:
    driver = ending("n1", "n2")
    confirm(driver, "n1", unsaved="the store is full")
    assert driver.job().state is JobState.FAILED
    driver.do(commands.CordonNode(NodeId("n2"), True))
    driver.retry()
    driver.do(commands.CancelJob("job"))
    confirm(driver, "n1", generation=2)
    assert driver.job().state is JobState.CANCELLING
    confirm(driver, "n2")
    assert driver.job().state is JobState.CANCELLED


def test_a_held_master_does_not_wait_for_a_node_of_an_earlier_process() -> None:
    """`windrow job cancel` of a run that was killed: no process of it is left, and none would come."""
    driver = CoreDriver()
    driver.running([1] * 4, ends_workers_first=True)
    driver.join()
    driver.tick_alive(2, "n1")
    driver.restart(held=True)
    driver.do(commands.CancelJob("job"))
    assert driver.job().state is JobState.CANCELLED
    driver.assert_reload_equals_live()


def test_a_held_master_ends_what_a_killed_one_was_cancelling() -> None:
    driver = cancelling("n1")
    driver.restart(held=True)
    assert driver.tables.jobs[driver.job().job_key].state is JobState.CANCELLED
