"""Admission: which jobs begin, and which stay queued until it is their turn."""

from __future__ import annotations

from typing import Any

import pytest
from core_driver import CoreDriver, completion
from windrow.common.queue_settings import Bounds, QueueSettings
from windrow_master.core import effects as fx
from windrow_master.core.admission import EXPECTED_S, planner_place, standing_of
from windrow_master.core.commands import CancelJob, ExplainJob, PauseJob, SetQueues, UpdateJob
from windrow_master.core.forecasts import forecast
from windrow_master.core.ids import JobKey
from windrow_master.core.queues import uses
from windrow_master.core.settings import StepSettings
from windrow_master.core.states import JobState
from windrow_master.rpc.reason_briefs import brief_of
from windrow_master.rpc.reason_words import words_of
from windrow_master.store.records import Reopening


def driver_with(number: int = 2, *, slots: int = 0, **settings: Any) -> CoreDriver:
    """The project default admits so many; one node with slots, if any."""
    driver = CoreDriver()
    driver.do(SetQueues({"default": QueueSettings(admitted_jobs=number, **settings)}, overcommit=True))
    if slots:
        driver.register("n1", slots=slots)
        driver.open("n1")
    return driver


def submit(driver: CoreDriver, name: str, *steps: StepSettings, planned: int = 0, **more: Any) -> JobKey:
    """A job; `planned`: of its first step, if it begins."""
    key = driver.submit(*steps, job_id=name, request_id=name, **more)
    job = driver.job(key)
    if planned and job.state == JobState.RUNNING:
        assert driver.plan(job.steps[0].step_id, [1] * planned)
    return key


def pass_time(driver: CoreDriver, seconds: float) -> None:
    """All nodes send heartbeats."""
    driver.tick_alive(seconds, *driver.core.state.nodes)


def running(driver: CoreDriver) -> list[str]:
    return [job.job_id for job in driver.core.state.jobs.values() if job.state == JobState.RUNNING]


def queued(driver: CoreDriver) -> list[str]:
    return [job.job_id for job in driver.core.state.jobs.values() if job.state == JobState.QUEUED]


def test_jobs_beyond_the_number_are_queued_and_nothing_of_them_is_prepared() -> None:
    driver = driver_with(2)
    prepared = []
    for name in ("a", "b", "c"):
        submit(driver, name)
        prepared.append(len(driver.sent(fx.PrepareStep)))
    assert (running(driver), queued(driver), prepared) == (["a", "b"], ["c"], [1, 1, 0])
    driver.cancel("a")
    assert (running(driver), queued(driver)) == (["b", "c"], [])
    assert ("admitted", JobKey(3)) in [(event.kind, event.job_key) for event in driver.tables.events]


def test_other_projects_are_not_held_up() -> None:
    driver = driver_with(1)
    submit(driver, "a")
    submit(driver, "b")
    submit(driver, "c", project="web")
    assert (running(driver), queued(driver)) == (["a", "c"], ["b"])


def test_a_free_place_admits_one_more_and_no_second_one() -> None:
    driver = driver_with(1, slots=2)
    submit(driver, "a", planned=1)
    submit(driver, "b")
    pass_time(driver, 0.5)
    submit(driver, "c")
    pass_time(driver, 1.0)
    assert (running(driver), queued(driver)) == (["a", "b"], ["c"])


def test_a_full_cluster_admits_nobody_and_its_first_free_place_does() -> None:
    driver = driver_with(1, slots=1)
    submit(driver, "a", planned=1)
    driver.capacity("n1", 1)
    submit(driver, "b")
    pass_time(driver, 5)
    assert queued(driver) == ["b"]
    driver.complete("n1", completion(driver.held()[0].lease_id))
    pass_time(driver, 1)
    assert queued(driver) == []


def test_no_job_is_admitted_beyond_the_limit_of_its_project() -> None:
    driver = driver_with(1, slots=4, cluster=Bounds(limit=1))
    submit(driver, "a", planned=2)
    submit(driver, "b")
    pass_time(driver, 3)
    assert queued(driver) == ["b"]
    driver.do(SetQueues({"default": QueueSettings(admitted_jobs=1)}))
    pass_time(driver, 0.5)
    assert queued(driver) == []


def test_a_job_that_needs_what_is_free_passes_one_that_does_not() -> None:
    driver = driver_with(1)
    for node_id, pool in (("c1", "cpu"), ("g1", "gpu")):
        driver.register(node_id, slots=1, pool=pool)
        driver.open(node_id)
    submit(driver, "a", StepSettings("s", compute="gpu"), planned=9)
    submit(driver, "b", StepSettings("s", compute="gpu"))
    submit(driver, "c", StepSettings("s", compute="cpu"))
    pass_time(driver, 1)
    assert (running(driver), queued(driver)) == (["a", "c"], ["b"])
    driver.cancel("a")
    assert running(driver) == ["b", "c"]  # c, which has come in before its turn, does not count against b


def test_what_is_not_divided_in_time_is_no_longer_counted_on() -> None:
    driver = driver_with(1, slots=1)
    submit(driver, "hangs")
    submit(driver, "b")
    pass_time(driver, EXPECTED_S - 1)
    assert queued(driver) == ["b"]
    assert driver.core.next_due(driver.now) <= driver.now_s + 1.01
    pass_time(driver, 2)
    assert queued(driver) == []


def test_a_higher_priority_moves_a_job_in_the_line() -> None:
    driver = driver_with(1, slots=1)
    submit(driver, "a", planned=9)
    pass_time(driver, 1)
    for name in ("b", "c", "d"):
        submit(driver, name)
    line = forecast(driver.core.state, driver.now).line
    assert [driver.job(key).job_id for key in line] == ["b", "c", "d"]  # a has a worker
    driver.do(UpdateJob("d", priority=-1))
    driver.do(UpdateJob("c", priority=1))
    pass_time(driver, 0.5)
    assert (running(driver), queued(driver)) == (["a", "c"], ["b", "d"])  # of its project, c goes before all others


def test_a_raised_number_admits_at_once_and_a_lowered_one_takes_nothing_back() -> None:
    driver = driver_with(1)
    for name in ("a", "b", "c"):
        submit(driver, name)
    driver.do(SetQueues({"default": QueueSettings(admitted_jobs=2)}))
    assert (running(driver), queued(driver)) == (["a", "b"], ["c"])
    driver.do(SetQueues({"default": QueueSettings(admitted_jobs=1)}))
    assert running(driver) == ["a", "b"]


def test_a_job_that_is_paused_makes_room() -> None:
    driver = driver_with(1)
    first = submit(driver, "a")
    submit(driver, "b")
    driver.do(PauseJob(first, "broken"))
    assert running(driver) == ["b"]


def test_a_job_that_moves_to_another_project_stands_in_its_line() -> None:
    driver = driver_with(1)
    submit(driver, "a")
    submit(driver, "b")
    driver.do(UpdateJob("b", project="web"))
    assert running(driver) == ["a", "b"]


def test_a_queued_job_can_be_cancelled_and_a_retry_of_it_stands_in_line() -> None:
    driver = driver_with(1)
    submit(driver, "a")
    key = submit(driver, "b")
    driver.cancel("b")
    assert driver.job(key).state == JobState.CANCELLED
    driver.tables.jobs = {row: job for row, job in driver.tables.jobs.items() if job.job_id == "b"}
    driver.retry(step=Reopening.ANEW)
    assert (running(driver), queued(driver)) == (["a"], ["b"])
    assert not driver.sent(fx.PrepareStep)


def test_a_new_master_goes_on_where_the_last_one_stood() -> None:
    driver = driver_with(1)
    for name in ("a", "b"):
        submit(driver, name)
    driver.restart()
    pass_time(driver, 0.25)
    assert (running(driver), queued(driver)) == (["a"], ["b"])
    driver.cancel("a")
    assert running(driver) == ["b"]


def test_a_held_master_admits_whatever_it_is_asked_for() -> None:
    driver = driver_with(1)
    driver.core.state.held = True
    for name in ("a", "b", "c"):
        submit(driver, name)
    assert queued(driver) == []


def test_explain_says_in_numbers_what_goes_before_and_what_would_change_it() -> None:
    driver = driver_with(1, slots=1)
    submit(driver, "a", planned=9)
    pass_time(driver, 1)
    for name in ("b", "c"):
        submit(driver, name, StepSettings("one"), StepSettings("two", depends_on=("one",)))
    one, two = driver.do(ExplainJob("c"))
    assert (one.code, two.code) == ("NOT_ADMITTED", "WAITS_FOR_STEPS")
    assert (one.admission.running, one.admission.queued, one.admission.number, one.admission.priority) == (1, 1, 1, 1)
    told = words_of(one)
    assert "1 job of project default that goes before it is running, and 1 queued" in told
    assert "windrow job update c --priority 1" in told and "windrow queue set default --admitted-jobs 3" in told
    assert brief_of(one) == "queued: 1 job of its project runs, 1 queued before it"
    driver.do(UpdateJob("c", priority=1))
    assert running(driver) == ["a", "c"]
    use = uses(driver.core.state)["default"]
    assert (use.open_jobs, use.queued_jobs) == (3, 1)


@pytest.mark.parametrize("number", [1, 2, 5])
def test_what_explain_advises_does_it(number: int) -> None:
    driver = driver_with(number)
    for name in range(2 * number + 1):
        submit(driver, f"j{name}", priority=-(name % 3))
    state = driver.core.state
    job = next(job for job in state.jobs.values() if job.state == JobState.QUEUED)
    standing = standing_of(state, job)
    assert standing.priority is not None and standing.running + standing.queued >= number
    driver.do(UpdateJob(job.job_id, priority=standing.priority))
    assert job.state == JobState.RUNNING


def test_planners_go_by_the_same_order() -> None:
    driver = driver_with(9)
    driver.do(
        SetQueues({"low": QueueSettings(priority=-5), "owed": QueueSettings(cluster=Bounds(quota=2))}, overcommit=True)
    )
    keys = [
        submit(driver, name, project=project, priority=priority)
        for name, project, priority in [("a", "default", 0), ("b", "low", 9), ("c", "owed", 0), ("d", "default", 3)]
    ]
    jobs = sorted(map(driver.job, keys), key=lambda job: planner_place(driver.core.state, job))
    assert [job.job_id for job in jobs] == ["c", "d", "a", "b"]


def test_a_cancelled_queued_job_is_forgotten_by_the_line() -> None:
    driver = driver_with(1)
    submit(driver, "a")
    submit(driver, "b")
    driver.do(CancelJob("b"))
    driver.cancel("a")
    assert driver.core.state.queued == set()
