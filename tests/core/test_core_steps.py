"""Jobs and steps: planning, endings, refusals."""

from __future__ import annotations

from typing import Any

import pytest
from core_driver import CoreDriver, checkpoint, completion, records
from sim_view import document_of
from windrow_master.core import commands
from windrow_master.core import effects as fx
from windrow_master.core.commands import AwaitPlanner
from windrow_master.core.ids import JobKey, NodeId, StepId
from windrow_master.core.refused import Refused
from windrow_master.core.settings import StepSettings
from windrow_master.core.states import AttemptState, JobState, MiniBatchState, StepState
from windrow_master.core.steps import MORE_WARNINGS


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
    driver.finish_step(message="6 rows")
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
        driver.finish_step(step_id)
    assert driver.job().state == JobState.COMPLETED


def test_a_step_that_is_reused_is_done_and_those_after_it_begin() -> None:
    driver = CoreDriver()
    driver.submit(StepSettings("a"), StepSettings("b", depends_on=("a",)))
    driver.do(commands.ReuseStep(StepId(1), b'{"out": "/before"}', "made before"))
    assert (driver.step().state, driver.step().message) == (StepState.COMPLETED, "made before")
    assert driver.step().paths == b'{"out": "/before"}'
    assert driver.sent(fx.PrepareStep)[-1] == fx.PrepareStep(StepId(2))
    driver.do(commands.ReuseStep(StepId(2), b"{}", ""))
    assert driver.job().state == JobState.COMPLETED and driver.sent(fx.NotifyJob)[-1].ended
    driver.assert_reload_equals_live()


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("read_for", ["reuse", "reads_outputs"])
def test_no_step_fails_by_the_time_that_its_inputs_take_to_be_read_before_it_begins(
    read_for: str, restart: bool
) -> None:
    driver = CoreDriver()
    driver.submit(StepSettings("a", **{read_for: True}, first_task_creation_timeout_s=10.0))  # type: ignore[arg-type]
    if restart:
        driver.do(commands.StartStep(StepId(1), b'{"out": "/o"}'))
        driver.restart()
    driver.tick(100.0)
    assert driver.step().state == StepState.RUNNING
    driver.do(commands.StartStep(StepId(1), b'{"out": "/o"}'))
    driver.tick(9.0)
    assert driver.step().state == StepState.RUNNING
    driver.tick(2.0)
    assert driver.step().state == StepState.FAILED


def test_a_step_that_has_begun_or_ended_is_not_reused() -> None:
    driver = CoreDriver()
    driver.submit()
    driver.plan(1, [2])
    driver.do(commands.ReuseStep(StepId(1), b"{}", ""))
    assert driver.step().state == StepState.RUNNING
    driver.do(commands.CancelJob("job"))
    driver.do(commands.ReuseStep(StepId(1), b"{}", ""))
    assert driver.step().state == StepState.CANCELLED


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
    assert driver.step().plan.checkpoint is None and not driver.tables.mini_batches[1]
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


def test_so_many_warnings_are_kept_and_what_a_step_lacks_is_told_before_them() -> None:
    driver = CoreDriver()
    driver.submit(StepSettings("step", ends_workers_first=True))
    for number in range(3):
        step = driver.step()
        end = checkpoint(number + 1, number == 2)
        warnings = tuple(f"file {number}-{at}" for at in range(90))
        group = (step.plan.checkpoint, end, number, records(number, [1]), number == 2, b"{}", warnings)
        driver.do(commands.PlanGroup(StepId(1), *group))
    assert driver.job().warnings == [
        *(f"file 0-{at}" for at in range(90)), *(f"file 1-{at}" for at in range(10)), MORE_WARNINGS
    ]  # fmt: skip
    driver.join()
    driver.finish_all()
    failed = {"shutdown_failures": 1, "shutdown_failure": "no model store"}
    generation = driver.job().generation
    driver.do(commands.ConfirmStepEnd(NodeId("n1"), driver.node().stream, StepId(1), generation, **failed))
    first, *others = driver.job().warnings
    assert "shutdown() failed" in first and others[-1] == MORE_WARNINGS and len(others) == 100


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


def test_the_time_until_a_step_is_divided_is_not_its_own() -> None:
    driver = CoreDriver()
    driver.submit(StepSettings("step", first_task_creation_timeout_s=10))
    driver.do(AwaitPlanner(StepId(1), waits=True))
    driver.tick(60)
    driver.do(AwaitPlanner(StepId(1), waits=False))
    driver.tick(9)
    assert driver.job().state == JobState.RUNNING
    driver.tick(2)
    assert driver.job().state == JobState.FAILED


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
    assert driver.job().state == JobState.CANCELLING
    (revoked,) = driver.sent(fx.RevokeLeases)
    assert revoked.lease_ids == [lease.lease_id for lease in held]
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
    driver.cancel()
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
    driver.finish_step()
    assert [driver.step(at).state for at in (1, 2)] == [StepState.CONCATENATING, StepState.WAITING]
    driver.cancel()
    driver.tick(20)  # a node that never comes back
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
    driver.finish_step()
    assert step.state == StepState.RUNNING
    driver.join()
    driver.finish_all()
    driver.do(commands.FinishStep(StepId(1), 2))
    driver.do(commands.FailStep(StepId(1), "What an earlier generation began.", generation=2))
    assert driver.step().state == StepState.CONCATENATING
    driver.finish_step()
    driver.finish_step()
    assert driver.step().state == StepState.COMPLETED


def test_ended_jobs_are_forgotten_after_a_while() -> None:
    driver = CoreDriver()
    driver.submit()
    driver.do(commands.CancelJob("job"))
    driver.tick(59)
    assert driver.core.state.jobs
    driver.tick(2)
    assert not driver.core.state.jobs and not driver.core.state.steps and not driver.core.state.job_keys


def test_a_job_whose_end_is_not_durable_is_not_forgotten() -> None:
    driver = CoreDriver()
    driver.submit()
    driver.core.handle(commands.CancelJob("job"), driver.now)
    for commit in (lambda: None, driver.core.take_dirty):
        commit()  # the second one stays under way
        driver.now_s += 61
        driver.core.handle(commands.Tick(), driver.now)
        assert driver.core.state.steps
    driver.core.take_dirty()
    driver.core.handle(commands.Tick(), driver.now)
    assert not driver.core.state.steps
