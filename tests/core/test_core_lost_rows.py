"""Committed rows that cannot be read again: their mini-batches run once more, and no counter drifts."""

from __future__ import annotations

import pytest
from core_driver import CoreDriver, completion
from windrow_master.core import commands
from windrow_master.core import effects as fx
from windrow_master.core.counters import Counters
from windrow_master.core.ids import StepId
from windrow_master.core.states import Cause, StepState


@pytest.mark.parametrize("counts", [[2, 2], [0, 0]], ids=["known", "unknown"])
@pytest.mark.parametrize("restart", [False, True])
def test_lost_rows_run_again_and_no_counter_drifts(counts: list[int], restart: bool) -> None:
    driver = CoreDriver()
    driver.running(counts)
    driver.join()
    driver.finish_all()
    before = driver.step().counters.to_json()
    lost = driver.tables.lost_rows(1, 0)
    if restart:
        driver.restart()
    driver.do(commands.RequeueLostRows(StepId(1), 1, (lost,)))
    step = driver.step()
    assert step.state == StepState.RUNNING
    assert driver.tables.attempts[lost.lease_id].cause == Cause.ROWS_LOST
    driver.assert_reload_equals_live()
    driver.register()
    driver.open()
    driver.capacity("n1", 5)
    (lease,) = driver.held()
    assert (lease.mini_batch, lease.attempt) == (0, 2)
    driver.finish_all()
    assert driver.step().state == StepState.CONCATENATING
    driver.assert_reload_equals_live()
    assert step.counters.retries == 1
    step.counters.retries = 0
    step.counters.failed_attempts.clear()
    step.counters.examples.clear()
    step.counters.kinds.clear()
    assert step.counters.measured == 3, "both attempts of the first mini-batch"
    step.counters.durations = Counters.from_json(before).durations
    assert step.counters.to_json() == before


@pytest.mark.parametrize("restart", [False, True])
def test_lost_rows_change_nothing_about_what_a_mini_batch_was_charged_with(restart: bool) -> None:
    driver = CoreDriver()
    driver.running([1], max_retries=2)
    driver.join()
    for _ in range(2):
        driver.fail("n1", driver.held()[0], Cause.EXCEPTION)
    driver.finish_all()
    lost = driver.tables.lost_rows(1, 0)
    if restart:
        driver.restart()
        driver.register()
        driver.open()
        driver.capacity("n1", 5)
    driver.do(commands.RequeueLostRows(StepId(1), 1, (lost,)))
    driver.assert_reload_equals_live()
    (lease,) = driver.held()
    assert (lease.attempt, driver.step().counters.retries) == (4, 3)
    driver.fail("n1", lease, Cause.EXCEPTION)
    assert driver.step().counters.failed == 1, "its third charge of the three that it has"


def test_rows_that_are_lost_again_and_again_end_the_step_and_blame_the_disk() -> None:
    driver = CoreDriver()
    driver.running([1, 1])
    driver.join()
    driver.finish_all()
    for _ in range(4):
        driver.do(commands.RequeueLostRows(StepId(1), 1, (driver.tables.lost_rows(1, 1),)))
        assert driver.step().state == StepState.RUNNING
        driver.finish_all()
    driver.do(commands.RequeueLostRows(StepId(1), 1, (driver.tables.lost_rows(1, 1),)))
    assert (driver.step().state, driver.step().error_category) == (StepState.FAILED, "SystemError")
    assert "mini-batch 1 were lost 5 times" in driver.job().message and "Check the disk" in driver.job().message
    driver.tables.check()


def test_what_the_output_waited_for_is_not_said_of_a_step_that_runs_again() -> None:
    driver = CoreDriver()
    step = driver.running([1])
    driver.join()
    driver.finish_all()
    driver.do(commands.PostponeFinish(StepId(1), 1, "the disk is full"))
    driver.do(commands.RequeueLostRows(StepId(1), 1, (driver.tables.lost_rows(1, 0),)))
    assert (step.state, step.message) == (StepState.RUNNING, "")


def test_lost_rows_of_an_attempt_that_no_longer_counts_are_ignored() -> None:
    driver = CoreDriver()
    step = driver.running([1])
    driver.join()
    driver.finish_all()
    lost = driver.tables.lost_rows(1, 0)
    driver.do(commands.RequeueLostRows(StepId(1), 2, (lost,)))
    assert step.state == StepState.CONCATENATING
    driver.do(commands.RequeueLostRows(StepId(1), 1, (lost._replace(lease_id=1),)))  # type: ignore[arg-type]
    assert step.state == StepState.CONCATENATING and step.counters.succeeded == 1
    assert driver.sent(fx.ConcatenateRows), "the output is asked for again"


def test_a_short_mini_batch_that_lost_its_rows() -> None:
    driver = CoreDriver()
    step = driver.running([3, 1], error_threshold=10)
    driver.join()
    one, two = driver.held()
    driver.complete("n1", completion(one.lease_id, items=3, results=1, rows=b"r\n"), completion(two.lease_id))
    driver.do(commands.RequeueLostRows(StepId(1), 1, (driver.tables.lost_rows(1, 0),)))
    assert (step.counters.failed, step.counters.items_failed, step.counters.items_ok) == (0, 0, 1)
    assert (1, 0) not in driver.tables.item_outcomes
    driver.finish_all()
    driver.assert_reload_equals_live()
    assert (step.counters.items_failed, step.counters.items_ok) == (0, 4)
