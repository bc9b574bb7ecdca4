"""Jobs and steps: planning, thresholds, endings, lost rows, refusals."""

from __future__ import annotations

from typing import Any

import pytest
from core_driver import CoreDriver, checkpoint, completion, records
from sim_view import document_of
from windrow_master.core import commands
from windrow_master.core import effects as fx
from windrow_master.core.commands import Refused
from windrow_master.core.ids import JobKey, StepId
from windrow_master.core.settings import StepSettings
from windrow_master.core.states import AttemptState, Cause, JobState, MiniBatchState, StepState, Verdict


def finish(driver: CoreDriver, step_id: int = 1, message: str = "") -> None:
    """The output of a step stands."""
    generation = driver.job(driver.step(step_id).job_key).generation
    driver.do(commands.FinishStep(StepId(step_id), generation, message))


def test_a_job_goes_all_the_way() -> None:
    driver = CoreDriver()
    driver.submit()
    assert driver.sent(fx.PrepareStep) == [fx.PrepareStep(StepId(1))]
    driver.do(commands.StartStep(StepId(1), b'{"out": "/o"}'))
    assert driver.step().paths == b'{"out": "/o"}'
    assert driver.plan(1, [2, 2], done=False) and driver.plan(1, [2], done=True)
    driver.join()
    driver.finish_all()
    assert driver.step().state == StepState.CONCATENATING
    assert driver.sent(fx.ConcatenateRows) == [fx.ConcatenateRows(StepId(1), 1)]
    assert fx.PrepareStep not in map(type, driver.effects)
    finish(driver, message="6 rows")
    assert (driver.job().state, driver.step().message) == (JobState.COMPLETED, "6 rows")
    assert driver.sent(fx.EndStep) and driver.sent(fx.StopStepWork) and driver.sent(fx.NotifyJob)[-1].ended
    assert driver.tables.jobs[1].end_time is not None
    driver.assert_reload_equals_live()


def test_steps_wait_for_those_they_depend_on() -> None:
    driver = CoreDriver()
    driver.submit(StepSettings("a"), StepSettings("b", depends_on=("a",)), StepSettings("c", depends_on=("a", "b")))
    for step_id in (1, 2, 3):
        states = [driver.step(at).state for at in (1, 2, 3)]
        assert states == [StepState.COMPLETED] * (step_id - 1) + [StepState.RUNNING] + [StepState.WAITING] * (
            3 - step_id
        )
        driver.plan(step_id, [1])
        driver.join(step_id=step_id) if step_id == 1 else driver.capacity("n1", 5, step_id=step_id)
        driver.finish_all()
        finish(driver, step_id)
    assert driver.job().state == JobState.COMPLETED


def test_submitting_again_gives_the_first_answer_and_another_job_of_that_name_is_refused() -> None:
    driver = CoreDriver()
    key = driver.submit(request_id="one")
    assert driver.submit(request_id="one") == key
    settings = (StepSettings("s"),)
    refused = driver.do(commands.SubmitJob("job", "two", b"[]", "digest", settings))
    assert isinstance(refused, Refused) and refused.reason == "JOB_EXISTS"
    assert list(driver.core.state.jobs) == [key]


# Planning


def test_a_group_handed_over_twice_counts_once() -> None:
    driver = CoreDriver()
    driver.submit()
    group = commands.PlanGroup(StepId(1), None, checkpoint(2, False), 0, records(0, [1, 1]), False, b"{}")
    assert driver.group(group, group) == [True, False]
    assert driver.do(group) is False
    assert len(driver.step().mini_batches) == 2
    driver.assert_reload_equals_live()


@pytest.mark.parametrize(
    "wrong",
    [
        {"start": checkpoint(1, False)},
        {"first_mini_batch": 1},
        {"reader": None},
        {"step_id": StepId(9)},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_a_group_that_does_not_follow_the_stored_checkpoint_is_a_no_op(wrong: dict[str, Any]) -> None:
    driver = CoreDriver()
    driver.submit()
    good: dict[str, Any] = {
        "step_id": StepId(1), "start": None, "end": checkpoint(1, False), "first_mini_batch": 0,
        "records": records(0, [1]), "done": False, "reader": b"{}",
    }  # fmt: skip
    assert driver.do(commands.PlanGroup(**{**good, **wrong})) is False
    assert driver.step().checkpoint is None and not driver.tables.mini_batches[1]
    assert driver.do(commands.PlanGroup(**good)) is True


def test_the_stages_of_planning_are_told_once_a_step() -> None:
    driver = CoreDriver()
    driver.submit(StepSettings("a"), StepSettings("b"))
    for counts, done in (([], False), ([1, 1], False), ([1], False), ([], True)):
        driver.plan(1, counts, done)
    driver.plan(2, [1], True)
    assert [(event.kind, event.message) for event in driver.tables.events if "task" in event.kind] == [
        ("first_task_scheduled", "a"),
        ("all_tasks_scheduled", "a"),
        ("first_task_scheduled", "b"),
        ("all_tasks_scheduled", "b"),
    ]


def test_no_group_is_taken_after_the_end_of_planning_or_of_the_step() -> None:
    driver = CoreDriver()
    driver.running([1])
    assert driver.plan(1, [1]) is False
    driver.do(commands.CancelJob("job"))
    assert driver.plan(1, [1]) is False


def test_an_empty_input_fails_append_row_and_completes_a_summary() -> None:
    driver = CoreDriver()
    driver.running([], append_row=True)
    assert driver.job().state == JobState.FAILED and "there was nothing to run" in driver.step().message
    driver.submit(StepSettings("step", append_row=False), job_id="two", request_id="2")
    driver.plan(2, [])
    assert driver.step(2).state == StepState.CONCATENATING


def test_warnings_are_kept_once() -> None:
    driver = CoreDriver()
    driver.submit()
    start = None
    for number in (1, 2):
        end = checkpoint(number, False)
        driver.do(
            commands.PlanGroup(StepId(1), start, end, number - 1, records(0, [1]), False, b"{}", ("odd", f"w{number}"))
        )
        start = end
    assert driver.job().warnings == ["odd", "w1", "w2"]
    driver.assert_reload_equals_live()


@pytest.mark.parametrize("disturbance", ["a restarted master", "a paused master"])
def test_a_step_that_waits_for_another_is_not_late(disturbance: str) -> None:
    driver = CoreDriver()
    driver.submit(StepSettings("a"), StepSettings("b", depends_on=("a",), first_task_creation_timeout_s=10))
    driver.plan(1, [1])
    driver.do(commands.Tick())
    if disturbance == "a restarted master":
        driver.restart()
    else:
        driver.now_s += 60
    driver.tick(20)
    assert driver.job().state == JobState.RUNNING, driver.job().message
    assert driver.step(2).state == StepState.WAITING


def test_no_first_mini_batch_in_time_fails_the_step() -> None:
    driver = CoreDriver()
    driver.submit(StepSettings("step", first_task_creation_timeout_s=10))
    driver.tick(9)
    assert driver.job().state == JobState.RUNNING
    driver.tick(2)
    assert driver.job().state == JobState.FAILED and "first_task_creation_timeout (10 s)" in driver.job().message


def test_no_progress_fails_the_step_but_waiting_for_a_node_does_not() -> None:
    driver = CoreDriver()
    step = driver.running([1, 1, 1], progress_update_timeout_s=5)
    driver.tick(60)
    driver.join(leases_max=1)
    driver.tick_alive(4, "n1")
    driver.complete("n1", completion(driver.held()[0].lease_id))
    driver.tick_alive(4, "n1")
    assert step.state == StepState.RUNNING
    driver.tick_alive(2, "n1")
    assert driver.step().state == StepState.FAILED and "No progress update in 5 seconds" in step.message


# Thresholds


def outcomes(driver: CoreDriver, *causes: int, items: int = 2) -> None:
    """Complete the held leases in order, without retries."""
    for cause, lease in zip(causes, driver.held(), strict=False):
        driver.complete("n1", completion(lease.lease_id, cause, items=items))


@pytest.mark.parametrize(
    ("settings", "failing", "failed"),
    [
        ({"error_threshold": 0}, 1, True),
        ({"error_threshold": 2}, 1, False),
        ({"error_threshold": 3}, 2, True),
        ({"mini_batch_error_threshold": 0}, 1, True),
        ({"mini_batch_error_threshold": 1}, 1, False),
        ({"mini_batch_error_threshold": 1}, 2, True),
        ({"allowed_failed_percent": 20.0}, 2, False),
        ({"allowed_failed_percent": 20.0}, 3, True),
        ({"allowed_failed_percent": 0.0}, 1, True),
        ({"error_threshold": 100, "mini_batch_error_threshold": 0}, 1, True),
        ({}, 9, False),
    ],
)
def test_thresholds_compare_with_greater_than(settings: dict[str, Any], failing: int, failed: bool) -> None:
    driver = CoreDriver()
    step = driver.running([2] * 10, max_retries=0, **settings)
    driver.join()
    outcomes(driver, *[Cause.EXCEPTION] * failing)
    assert (step.state == StepState.FAILED) == failed
    if failed:
        assert driver.job().state == JobState.FAILED and not driver.core.state.leases
        assert driver.sent(fx.ReportFailures) == [fx.ReportFailures(StepId(1))]
        assert driver.complete("n1", completion(max(driver.leases))) == {Verdict.JOB_ENDED: [max(driver.leases)]}
    else:
        driver.finish_all()
        finish(driver)
        assert driver.job().state == JobState.COMPLETED_WITH_FAILURES
    driver.tables.check()


@pytest.mark.parametrize(
    ("settings", "results", "said"),
    [
        # As the sales sample does it: nothing is returned, and nothing is to fail for that.
        ({"error_threshold": -1, "mini_batch_error_threshold": 0, "append_row": False}, [0, 0, 0], ""),
        ({"error_threshold": 9, "mini_batch_error_threshold": 1}, [1, 2, 2], ""),
        ({"error_threshold": 9, "mini_batch_error_threshold": 0}, [1, 2, 2], "A short return counts as one"),
        ({"error_threshold": 1}, [1, 2, 2], ""),
        ({"error_threshold": 1}, [1, 1, 2], "2 items failed, more than error_threshold allows (1)"),
        ({"error_threshold": 0, "mini_batch_error_threshold": 0}, [2, 9, 2], ""),
        ({"error_threshold": 9, "allowed_failed_percent": 33.0}, [1, 2, 2], "1 of 3 mini-batches failed"),
        ({"error_threshold": 9, "allowed_failed_percent": 34.0}, [1, 2, 2], ""),
        ({"error_threshold": -1, "allowed_failed_percent": 0.0}, [1, 2, 2], ""),
        ({}, [0, 0, 0], "no succeeded mini batch item returned from run()"),
        ({}, [0, 1, 0], ""),
    ],
)
def test_short_returns_count_as_items_and_with_an_error_threshold_as_mini_batches(
    settings: dict[str, Any], results: list[int], said: str
) -> None:
    driver = CoreDriver()
    step = driver.running([2, 2, 2], **settings)
    driver.join()
    for lease, count in zip(driver.held(), results, strict=True):
        driver.complete("n1", completion(lease.lease_id, items=2, results=count, rows=b"r\n" * count))
    assert step.state == (StepState.FAILED if said else StepState.CONCATENATING), step.message
    assert said in step.message
    driver.tables.check()


@pytest.mark.parametrize("max_retries", [0, 2])
def test_a_mini_batch_counts_against_a_threshold_only_when_its_tries_are_used_up(max_retries: int) -> None:
    driver = CoreDriver()
    step = driver.running([2, 2], max_retries=max_retries, error_threshold=0, mini_batch_error_threshold=0)
    driver.join(leases_max=1)
    for _ in range(max_retries):
        driver.fail("n1", driver.held()[0], Cause.BAD_RETURN, items=2)
        assert step.state == StepState.RUNNING, "a try that failed is no failure yet"
    driver.fail("n1", driver.held()[0], Cause.BAD_RETURN, items=2)
    assert step.state == StepState.FAILED


def test_allowed_failed_percent_waits_for_the_end_of_planning() -> None:
    driver = CoreDriver()
    driver.submit(StepSettings("step", max_retries=0, allowed_failed_percent=50))
    driver.plan(1, [1, 1], done=False)
    driver.join()
    outcomes(driver, Cause.EXCEPTION, Cause.EXCEPTION)
    assert driver.step().state == StepState.RUNNING
    driver.plan(1, [1], done=True)
    assert driver.step().state == StepState.FAILED


def test_append_row_without_one_succeeded_item_fails() -> None:
    driver = CoreDriver()
    step = driver.running([2, 2])
    driver.join()
    for lease in driver.held():
        driver.complete("n1", completion(lease.lease_id, items=2, results=0, rows=b""))
    assert step.state == StepState.FAILED and "no succeeded mini batch item returned from run()" in step.message


# Endings


def test_cancelling_ends_everything_at_once() -> None:
    driver = CoreDriver()
    driver.submit(StepSettings("a"), StepSettings("b", depends_on=("a",)))
    driver.plan(1, [3, 3, 3], done=False)
    driver.join(leases_max=2)
    driver.tick_alive(2, "n1")
    leases = driver.held()
    driver.complete("n1", completion(leases[0].lease_id, items=3))
    held = driver.held()
    driver.do(commands.CancelJob("job"))
    assert driver.job().state == JobState.CANCELLED
    (revoked,) = driver.sent(fx.RevokeLeases)
    assert revoked.lease_ids == [lease.lease_id for lease in held] and revoked.started_too
    counters = driver.step(1).counters
    assert (counters.succeeded, counters.cancelled, counters.items_cancelled) == (1, 2, 6)
    assert driver.tables.attempts[leases[1].lease_id].state == AttemptState.ABANDONED
    driver.tables.check()
    assert driver.do(commands.CancelJob("job")) == JobKey(1)
    assert driver.effects == []
    refused = driver.do(commands.CancelJob("other"))
    assert isinstance(refused, Refused) and refused.reason == "JOB_UNKNOWN"


def test_a_failed_step_cancels_the_others() -> None:
    driver = CoreDriver()
    driver.submit(StepSettings("a"), StepSettings("b"), StepSettings("c", depends_on=("b",)))
    driver.plan(2, [1])
    driver.do(commands.FailStep(StepId(1), "no such folder"))
    assert [driver.step(at).state for at in (1, 2, 3)] == [StepState.FAILED, StepState.CANCELLED, StepState.CANCELLED]
    assert driver.job().message == "Step 'a' failed: no such folder"
    assert driver.tables.mini_batches[2][0].state == MiniBatchState.CANCELLED
    driver.tables.check()
    driver.do(commands.FailStep(StepId(1), "again"))
    assert driver.step(1).message == "no such folder"


def test_a_paused_job_leases_nothing_until_it_is_cancelled() -> None:
    driver = CoreDriver()
    driver.running([1, 1, 1])
    driver.join(leases_max=1)
    driver.do(commands.PauseJob(JobKey(1), "a bug"))
    driver.finish_all()
    assert driver.step().counters.succeeded == 1 and driver.job().state == JobState.PAUSED
    driver.assert_reload_equals_live()
    driver.do(commands.CancelJob("job"))
    assert driver.job().state == JobState.CANCELLED


def test_a_paused_job_completes_nothing() -> None:
    driver = CoreDriver()
    driver.running([1], progress_update_timeout_s=1)
    driver.join()
    driver.do(commands.PauseJob(JobKey(1), "a bug"))
    driver.tick_alive(5, "n1")
    driver.finish_all()
    assert driver.step().state == StepState.RUNNING, "what a raised command left of its books may be wrong"
    driver.restart()
    assert (driver.job().state, driver.step().state) == (JobState.PAUSED, StepState.RUNNING)


@pytest.mark.parametrize("restart", [False, True])
def test_a_job_paused_while_its_output_is_made_does_not_go_on(restart: bool) -> None:
    driver = CoreDriver()
    driver.submit(StepSettings("a"), StepSettings("b", depends_on=("a",)))
    driver.plan(1, [1])
    driver.join()
    driver.finish_all()
    driver.do(commands.PauseJob(JobKey(1), "a bug"))
    if restart:
        driver.restart()
    finish(driver)
    assert [driver.step(at).state for at in (1, 2)] == [StepState.CONCATENATING, StepState.WAITING]
    driver.do(commands.CancelJob("job"))
    assert driver.job().state == JobState.CANCELLED


def test_one_request_makes_one_job() -> None:
    driver = CoreDriver()
    settings = (StepSettings("step"),)
    first, again, other = driver.group(
        *(
            commands.SubmitJob(job_id, request_id, document_of(settings), "digest", settings)
            for job_id, request_id in (("job-1", "r"), ("job-2", "r"), ("job-3", "s"))
        )
    )
    assert first == again != other, "a job without a name of its own gets another at each try"
    assert set(driver.core.state.job_keys) == {"job-1", "job-3"}


def test_finishing_needs_the_present_generation_and_state() -> None:
    driver = CoreDriver()
    step = driver.running([1])
    finish(driver)
    assert step.state == StepState.RUNNING
    driver.join()
    driver.finish_all()
    driver.do(commands.FinishStep(StepId(1), 2))
    assert driver.step().state == StepState.CONCATENATING
    finish(driver)
    finish(driver)
    assert driver.step().state == StepState.COMPLETED


def test_ended_jobs_are_forgotten_after_a_while() -> None:
    driver = CoreDriver()
    driver.submit()
    driver.do(commands.CancelJob("job"))
    driver.tick(59)
    assert driver.core.state.jobs
    driver.tick(2)
    assert not driver.core.state.jobs and not driver.core.state.steps and not driver.core.state.job_keys


# Lost rows


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
