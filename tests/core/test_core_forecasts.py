"""Forecasts: when jobs end and begin, by what was measured, and who is next in line."""

from __future__ import annotations

import pytest
from core_driver import CoreDriver, completion
from windrow.common.queue_settings import Bounds, QueueSettings
from windrow_master.core.commands import SetQueues, UpdateJob
from windrow_master.core.forecasts import Forecast, JobForecast, StepForecast, forecast
from windrow_master.core.ids import JobKey, StepId
from windrow_master.core.queue_reasons import reason_of_queue
from windrow_master.core.settings import StepSettings

SECOND_US = 1_000_000


def driver_with(slots: int = 4, **more: str) -> CoreDriver:
    driver = CoreDriver()
    assert driver.register("n1", slots=slots, **more) is None
    assert driver.open("n1") is None
    return driver


def submit(driver: CoreDriver, count: int, project: str = "default", priority: int = 0, done: bool = True) -> int:
    """The number of the one step of a new job, which is that of the job."""
    number = driver.core.state.step_id_last + 1
    driver.submit(StepSettings("step"), job_id=f"j{number}", request_id=str(number), project=project, priority=priority)
    assert driver.plan(number, [1] * count, done=done)
    return number


def measure(driver: CoreDriver, number: int, *seconds: float) -> None:
    """Let mini-batches of a job succeed after so many seconds each."""
    for each_s in seconds:
        if not any(lease.step_id == number for lease in driver.held()):
            driver.capacity("n1", 4, 4, step_id=number)
        lease = next(lease for lease in driver.held() if lease.step_id == number)
        driver.complete("n1", completion(lease.lease_id, elapsed_us=int(each_s * SECOND_US)))


def looked(driver: CoreDriver) -> Forecast:
    return forecast(driver.core.state, driver.now)


def of(driver: CoreDriver, number: int) -> JobForecast:
    return looked(driver).jobs[JobKey(number)]


def test_nothing_is_said_before_anything_is_measured() -> None:
    driver = driver_with()
    number = submit(driver, 100)
    found = of(driver, number)
    assert (found.begin_s, found.end_s, found.latest_s, found.place) == (0.0, None, None, 0)
    measure(driver, number, 10, 10)
    assert of(driver, number).end_s is None, "the first ones to end are the short ones"
    measure(driver, number, 10)
    assert of(driver, number).end_s is not None


def test_what_is_left_is_divided_by_the_workers() -> None:
    driver = driver_with(slots=4)
    number = submit(driver, 103)
    measure(driver, number, 10, 10, 10)
    found = of(driver, number)
    assert found.workers == 4 and found.end_s == pytest.approx(100 * 10 / 4, rel=0.05)
    assert found.latest_s is not None and found.end_s < found.latest_s < found.end_s + 12


def test_a_mini_batch_that_runs_is_counted_by_what_is_left_of_it() -> None:
    driver = driver_with(slots=1)
    number = submit(driver, 4)
    measure(driver, number, 100, 100, 100)
    driver.capacity("n1", 1, 1, step_id=number)
    assert of(driver, number).end_s == pytest.approx(100)
    driver.now_s += 70
    assert of(driver, number).end_s == pytest.approx(30)
    driver.now_s += 70
    assert of(driver, number).end_s == pytest.approx(10), "longer than those before: a little more, not nothing"


def test_failures_take_time_as_well() -> None:
    driver = driver_with(slots=1)
    number = submit(driver, 103)
    measure(driver, number, 10, 10, 10)
    before = of(driver, number).end_s
    driver.step(number).counters.retries = 3
    after = of(driver, number).end_s
    assert before is not None and after == pytest.approx(2 * before, rel=0.1)


def test_what_succeeded_before_a_retry_is_not_measured() -> None:
    driver = driver_with(slots=1)
    number = submit(driver, 20)
    measure(driver, number, 10, 10, 10)
    driver.cancel(f"j{number}")
    driver.tick_alive(120, "n1")
    driver.retry()
    assert (driver.step(number).counters.succeeded, driver.step(number).counters.measured) == (3, 0)
    assert of(driver, number).end_s is None
    measure(driver, number, 10, 10, 10)
    assert of(driver, number).end_s == pytest.approx(14 * 10, rel=0.1)


def test_an_input_that_is_still_divided_has_no_end_yet() -> None:
    driver = driver_with()
    number = submit(driver, 20, done=False)
    measure(driver, number, 1, 1, 1, 1)
    assert of(driver, number).end_s is None


def test_a_job_whose_later_steps_have_not_begun_has_no_end_yet() -> None:
    driver = driver_with()
    driver.submit(StepSettings("first"), StepSettings("second", depends_on=("first",)))
    assert driver.plan(1, [1] * 20)
    measure(driver, 1, 1, 1, 1)
    found = looked(driver)
    assert found.jobs[JobKey(1)].end_s is None
    assert next(iter(found.steps.values())).end_s is not None


def test_a_step_that_waits_for_others_begins_when_the_last_of_these_ends() -> None:
    driver = driver_with(slots=4)
    driver.submit(
        StepSettings("short"),
        StepSettings("long"),
        StepSettings("joined", depends_on=("short", "long")),
        StepSettings("last", depends_on=("joined",)),
    )
    assert driver.plan(1, [1] * 20) and driver.plan(2, [1] * 200)
    measure(driver, 1, 10, 10, 10)
    steps = looked(driver).steps
    assert 3 not in steps, "nothing of the long one was measured"
    measure(driver, 2, 10, 10, 10)
    steps = looked(driver).steps
    short, long = steps[StepId(1)].end_s, steps[StepId(2)].end_s
    assert short is not None and long is not None and short < long
    assert steps[StepId(3)] == StepForecast(begin_s=long)
    assert 4 not in steps, "nobody knows how long the one before it takes"
    told = [(one.step, one.forecast) for one in reason_of_queue(driver.core.state, "default", driver.now).steps]
    assert told == [("short", steps[StepId(1)]), ("long", steps[StepId(2)]), ("joined", steps[StepId(3)])]


def test_a_job_gets_faster_when_another_one_ends() -> None:
    driver = driver_with(slots=2)
    short, long = submit(driver, 13), submit(driver, 103)
    for number in (short, long):
        measure(driver, number, 10, 10, 10)
    assert of(driver, short).end_s == pytest.approx(100, rel=0.1), "one worker for ten"
    assert of(driver, long).end_s == pytest.approx(100 + 90 * 10 / 2, rel=0.1), "one for ten, then two for ninety"


def test_a_job_that_waits_begins_when_the_ones_ahead_end() -> None:
    driver = driver_with(slots=2)
    first = submit(driver, 43, priority=5)
    second = submit(driver, 10)
    found = looked(driver)
    assert found.line == (second,) and found.jobs[JobKey(second)].place == 1
    assert found.jobs[JobKey(second)].begin_s is None, "nobody knows how long the first one takes"
    measure(driver, first, 10, 10, 10)
    begin_s = of(driver, second).begin_s
    assert begin_s == pytest.approx(40 * 10 / 2, rel=0.1)
    assert of(driver, second).end_s is None, "nothing of it was measured"


def test_the_line_is_the_order_in_which_jobs_are_served() -> None:
    driver = driver_with(slots=1)
    driver.group(SetQueues({"urgent": QueueSettings(priority=5), "owed": QueueSettings(cluster=Bounds(quota=1))}))
    running = submit(driver, 1000, project="urgent", priority=9)
    for project, priority in (("web", 0), ("web", 3), ("urgent", 0), ("urgent", 2)):
        submit(driver, 10, project=project, priority=priority)
    owed = submit(driver, 10, project="owed")
    line = list(looked(driver).line)
    assert running not in line or owed not in line
    waiting = [number for number in (5, 4, 3, 2) if number in line]
    assert [number for number in line if number in waiting] == waiting, "by project's priority, then the job's"
    # Whoever is next is served next: end all that runs, again and again, and see who comes.
    served: list[int] = []
    expected = [*line]
    for job_id in [f"j{owed}", "j1", *(f"j{number}" for number in expected if number not in (owed, 1))]:
        driver.cancel(job_id)
        driver.tick(0.5)
        served += [step_id for step_id in driver.node("n1").shares if step_id not in served]
    assert [number for number in served if number in waiting] == waiting


def test_a_deadline_is_held_against_the_end() -> None:
    driver = driver_with(slots=2)
    number = submit(driver, 103)
    measure(driver, number, 10, 10, 10)
    end_s = of(driver, number).end_s
    assert end_s is not None
    driver.group(UpdateJob(f"j{number}", deadline=driver.now.wall_s + end_s + 60))
    found = of(driver, number)
    assert found.late_s == pytest.approx(-60) and found.more_workers is None
    driver.group(UpdateJob(f"j{number}", deadline=driver.now.wall_s + 255))
    found = of(driver, number)
    assert found.late_s == pytest.approx(end_s - 255) and found.more_workers == 2, "four workers for 250 s"
    driver.group(UpdateJob(f"j{number}", deadline=driver.now.wall_s + 1))
    found = of(driver, number)
    assert found.late_s is not None and found.late_s > 0 and found.more_workers is None, "no number of workers would do"


def test_a_forecast_changes_nothing() -> None:
    driver = driver_with(slots=2)
    for _ in range(3):
        submit(driver, 10)
    before = driver.node("n1").shares.copy()
    assert looked(driver) == looked(driver)
    assert driver.node("n1").shares == before and not driver.core.take_effects()
    driver.assert_reload_equals_live()


def test_what_a_project_lacks_is_said_in_numbers() -> None:
    driver = driver_with(slots=6)
    driver.group(
        SetQueues(
            {
                "vision": QueueSettings(weight=2.0, cluster=Bounds(quota=1)),
                "web": QueueSettings(cluster=Bounds(limit=2)),
            }
        )
    )
    vision, web = submit(driver, 103, project="vision"), submit(driver, 1000, project="web")
    for number in (vision, web):
        measure(driver, number, 10, 10, 10)
    found = reason_of_queue(driver.core.state, "web", driver.now)
    assert (found.total, found.fair, found.wanted) == (6, pytest.approx(5 / 3), 6)
    settings = {change.setting: change for change in found.settings_changes}
    assert settings.keys() == {"priority", "weight", "quota"} and all(one.fair > 5 / 3 for one in settings.values())
    assert settings["quota"].value == 2, "no more than its limit"
    assert [(one.project, one.fair) for one in found.others] == [("vision", pytest.approx(13 / 3))]
    (end,) = found.ends
    assert (end.job_id, end.fair) == (f"j{vision}", 2) and end.at_s > 100
    driver.group(SetQueues({"web": QueueSettings(cluster=Bounds(limit=1))}))
    found = reason_of_queue(driver.core.state, "web", driver.now)
    assert found.limited and [change.setting for change in found.settings_changes] == ["limit"]


def test_a_quota_that_is_owed_is_named() -> None:
    driver = driver_with(slots=2)
    driver.group(SetQueues({"vision": QueueSettings(cluster=Bounds(quota=2))}))
    submit(driver, 100, project="web")
    driver.capacity("n1", 4, 2, step_id=1)
    assert not reason_of_queue(driver.core.state, "vision", driver.now).owed, "it could use nothing"
    submit(driver, 100, project="vision")
    found = reason_of_queue(driver.core.state, "web", driver.now)
    (owed,) = found.owed
    assert (owed.project, owed.quota, owed.held, owed.owed) == ("vision", 2, 0, 2)
    assert (found.held, found.fair) == (2, 0)
    driver.capacity("n1", 4, 0, step_id=1)
    driver.capacity("n1", 4, 2, step_id=2)
    assert not reason_of_queue(driver.core.state, "web", driver.now).owed
