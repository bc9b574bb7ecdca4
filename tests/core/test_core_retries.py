"""A job that has ended is opened again: what is done stays, what is not runs with all of its tries."""

from __future__ import annotations

import pytest
from core_driver import CoreDriver, completion
from windrow_master.core import commands
from windrow_master.core import effects as fx
from windrow_master.core.settings import StepSettings
from windrow_master.core.states import Cause, JobState, MiniBatchState, StepState, Verdict
from windrow_master.store.errors import NotReopened
from windrow_master.store.records import ReopenedJob, Reopening


def failed(driver: CoreDriver, **settings: int) -> None:
    """A job of four mini-batches, of which the second failed; it had ended two when that ended it."""
    driver.running([2] * 4, mini_batch_error_threshold=0, max_retries=0, **settings)
    driver.join()
    first, second, *_ = driver.held()
    driver.complete("n1", completion(first.lease_id, items=2))
    driver.fail("n1", second, Cause.EXCEPTION, items=2)
    assert driver.job().state == JobState.FAILED


@pytest.mark.parametrize("restarts", [False, True], ids=["", "over a restart of the master"])
def test_what_is_not_done_runs_and_what_is_done_stays(restarts: bool) -> None:
    driver = CoreDriver()
    failed(driver)
    driver.retry()
    if restarts:
        driver.restart()
        driver.open()
    job, step = driver.job(), driver.step()
    assert (job.state, job.generation, job.message, job.end_time) == (JobState.RUNNING, 2, "", None)
    assert (step.state, step.message, step.counters.succeeded, step.counters.queued) == (StepState.RUNNING, "", 1, 3)
    assert (step.counters.failed_attempts, step.counters.items_failed, step.counters.items_total) == ({}, 0, 8)
    driver.capacity("n1", 10)
    assert [lease.mini_batch for lease in driver.held()] == [1, 2, 3]
    assert {lease.generation for lease in driver.held()} == {2}
    driver.finish_all()
    assert driver.sent(fx.ConcatenateRows) == [fx.ConcatenateRows(step.step_id, 2)]
    driver.finish_step()
    assert driver.job().state == JobState.COMPLETED
    assert (driver.step().counters.items_ok, driver.step().counters.succeeded) == (8, 4)
    driver.assert_reload_equals_live()


def test_each_mini_batch_has_all_of_its_tries_again_also_behind_a_restart() -> None:
    driver = CoreDriver()
    driver.running([1], max_retries=1, mini_batch_error_threshold=0)
    driver.join()
    for _ in range(2):
        driver.fail("n1", driver.held()[0], Cause.EXCEPTION)
    assert driver.job().state == JobState.FAILED
    driver.retry()
    driver.restart()
    driver.open()
    driver.capacity("n1", 1)
    assert driver.held()[0].attempt == 1
    driver.fail("n1", driver.held()[0], Cause.EXCEPTION)
    assert driver.job().state == JobState.RUNNING
    driver.complete("n1", completion(driver.held()[0].lease_id))
    driver.finish_step()
    assert driver.job().state == JobState.COMPLETED


def test_a_mini_batch_that_returned_too_little_runs_again() -> None:
    driver = CoreDriver()
    driver.running([2, 2])
    driver.join()
    short, whole = driver.held()
    driver.complete("n1", completion(short.lease_id, items=2, results=1), completion(whole.lease_id, items=2))
    driver.finish_step()
    assert driver.job().state == JobState.COMPLETED_WITH_FAILURES
    driver.retry()
    driver.capacity("n1", 10)
    assert [lease.mini_batch for lease in driver.held()] == [short.mini_batch]
    driver.finish_all()
    driver.finish_step()
    assert driver.job().state == JobState.COMPLETED
    assert driver.step().counters.items_ok == 4


def test_results_of_the_generation_before_come_too_late() -> None:
    driver = CoreDriver()
    driver.running([1, 1], mini_batch_error_threshold=0, max_retries=0)
    driver.join()
    first, second = driver.held()
    driver.fail("n1", first, Cause.EXCEPTION)
    driver.retry()
    verdicts = driver.complete("n1", completion(second.lease_id))
    assert Verdict.ACCEPTED not in verdicts
    assert driver.step().mini_batches.states[second.mini_batch] == MiniBatchState.QUEUED


def test_a_job_whose_output_alone_could_not_be_written_has_it_written() -> None:
    driver = CoreDriver()
    driver.running([1])
    driver.join()
    driver.finish_all()
    driver.do(commands.FailStep(driver.step().step_id, "The output could not be written: no."))
    assert driver.job().state == JobState.FAILED
    driver.retry()
    assert driver.step().state == StepState.CONCATENATING
    assert driver.sent(fx.ConcatenateRows) == [fx.ConcatenateRows(driver.step().step_id, 2)]
    driver.finish_step()
    assert driver.job().state == JobState.COMPLETED


def test_steps_that_wait_begin_and_those_that_read_what_changes_begin_anew() -> None:
    driver = CoreDriver()
    steps = (StepSettings("a"), StepSettings("b", depends_on=("a",)), StepSettings("c"))
    driver.submit(*steps)
    driver.join()
    driver.plan(1, [2])
    driver.plan(3, [1])
    driver.capacity("n1", 5, step_id=3)
    for lease in driver.held():
        results = 1 if lease.step_id == 1 else None
        driver.complete("n1", completion(lease.lease_id, items=2 if lease.step_id == 1 else 1, results=results))
    driver.finish_step(1)
    driver.finish_step(3)
    driver.plan(2, [1, 1])
    driver.capacity("n1", 5, step_id=2)
    driver.finish_all()
    driver.finish_step(2)
    assert driver.job().state == JobState.COMPLETED_WITH_FAILURES
    driver.retry(b=Reopening.ANEW)
    states = {step.settings.name: step.state for step in driver.job().steps}
    assert states == {"a": StepState.RUNNING, "b": StepState.WAITING, "c": StepState.COMPLETED}
    assert not driver.step(2).counters.planned
    driver.assert_reload_equals_live()
    driver.capacity("n1", 5)
    driver.finish_all()
    driver.finish_step(1)
    assert driver.step(2).state == StepState.RUNNING
    assert driver.sent(fx.PrepareStep) == [fx.PrepareStep(driver.step(2).step_id)]
    assert driver.plan(2, [1, 1, 1])
    driver.capacity("n1", 5, step_id=2)
    driver.finish_all()
    driver.finish_step(2)
    assert driver.job().state == JobState.COMPLETED
    driver.assert_reload_equals_live()


def test_a_job_is_opened_once_a_generation_and_only_when_it_has_ended() -> None:
    driver = CoreDriver()
    failed(driver)
    job = driver.job()
    wanted = ReopenedJob(job.job_key, 1, job.document, job.run_digest, {driver.step().step_id: Reopening.RESUMED})
    driver.retry()
    with pytest.raises(NotReopened):
        driver.tables.reopen(wanted)
