"""Queues: which settings of projects are taken, and that they outlive a master; and what an open job is worth."""

from __future__ import annotations

import pytest
from core_driver import CoreDriver
from windrow.common.queue_settings import Bounds, QueueSettings
from windrow_master.core.commands import SetQueues, UpdateJob
from windrow_master.core.queues import uses
from windrow_master.core.refused import Refused
from windrow_master.core.settings import StepSettings
from windrow_master.limits import Limits

VISION = QueueSettings(weight=2.0, cluster=Bounds(quota=4, limit=6))
NIGHTLY = QueueSettings(priority=-10, pools={"gpu": Bounds(quota=1)})


def driver_with(slots: int = 8, pool: str = "") -> CoreDriver:
    driver = CoreDriver()
    assert driver.register("n1", slots=slots, pool=pool) is None
    assert driver.open("n1") is None
    return driver


def change(driver: CoreDriver, queues: dict[str, QueueSettings], **more: object) -> object:
    """The names of the queues that have changed, or why none has."""
    (reply,) = driver.group(SetQueues(queues, **more))  # type: ignore[arg-type]
    return reply.reason if isinstance(reply, Refused) else [queue.name for queue in reply]


def test_changes_are_counted_and_only_what_differs_is_one() -> None:
    driver = driver_with()
    assert change(driver, {"vision": VISION}, by="ann") == ["vision"]
    assert change(driver, {"vision": VISION, "nightly": QueueSettings(priority=-10)}) == ["nightly"]
    assert change(driver, {"vision": VISION}) == []
    queues = driver.core.state.queues
    assert [(name, queues[name].revision, queues[name].changed_by) for name in ("vision", "nightly")] == [
        ("vision", 1, "ann"),
        ("nightly", 2, ""),
    ]


def test_a_change_for_another_revision_is_refused() -> None:
    driver = driver_with()
    assert change(driver, {"vision": VISION}, revision=0) == ["vision"]
    assert change(driver, {"vision": QueueSettings()}, revision=0) == "QUEUES_CHANGED"
    assert driver.core.state.queues["vision"].settings == VISION
    assert change(driver, {"vision": QueueSettings()}, revision=1) == ["vision"]


def test_those_that_are_not_named_get_the_defaults_if_only_these_are_to_be() -> None:
    driver = driver_with()
    change(driver, {"vision": VISION, "web": QueueSettings(weight=3.0)})
    assert change(driver, {"web": QueueSettings(weight=3.0)}, only=True) == ["vision"]
    assert driver.core.state.queues["vision"].settings == QueueSettings()


def test_no_more_is_guaranteed_than_there_is_unless_that_is_asked_for() -> None:
    driver = driver_with(slots=8)
    assert change(driver, {"vision": VISION, "web": VISION, "late": VISION}) == "QUOTA_TOO_LARGE"
    assert not driver.core.state.queues and not driver.tables.queues, "all of it, or nothing"
    assert change(driver, {"vision": VISION, "web": VISION}) == ["vision", "web"]
    assert change(driver, {"late": VISION}) == "QUOTA_TOO_LARGE"
    assert change(driver, {"late": VISION}, overcommit=True) == ["late"]
    lower = VISION._replace(cluster=Bounds(quota=3))
    assert change(driver, {"late": lower}) == ["late"], "still too much, but less than before"


def test_a_quota_in_a_pool_is_measured_by_the_nodes_of_that_pool() -> None:
    driver = driver_with(slots=8)
    assert change(driver, {"nightly": NIGHTLY}) == "QUOTA_TOO_LARGE"
    assert driver.register("g1", slots=1, pool="gpu") is None
    assert change(driver, {"nightly": NIGHTLY}) == ["nightly"]


def test_a_quota_above_the_limit_is_refused() -> None:
    driver = driver_with()
    assert change(driver, {"vision": VISION._replace(cluster=Bounds(5, 4))}) == "QUEUE_INVALID"
    assert change(driver, {"vision": QueueSettings(pools={"gpu": Bounds(1, 0)})}, overcommit=True) == "QUEUE_INVALID"


def test_queues_outlive_the_master() -> None:
    driver = driver_with()
    change(driver, {"vision": VISION, "web": QueueSettings(weight=3.0)}, by="ann")
    before = dict(driver.core.state.queues)
    driver.restart()
    assert driver.core.state.queues == before and driver.core.state.queue_revision == 1


def test_what_an_open_job_is_worth_can_be_changed_and_outlives_the_master() -> None:
    driver = driver_with(slots=1)
    for number in (1, 2):
        driver.submit(StepSettings("step"), job_id=f"j{number}", request_id=str(number))
        driver.plan(number, [1] * 1000)
    assert driver.group(UpdateJob("j2", priority=5, weight=3, deadline=2e9, project="vision", by="ann")) == [2]
    driver.restart()
    job = driver.core.state.jobs[driver.core.state.job_keys["j2"]]
    assert (job.priority, job.weight, job.deadline, job.queue) == (5, 3, 2e9, "vision")
    assert driver.group(UpdateJob("j2", deadline=0.0)) == [2]
    assert (job.deadline, job.priority) == (None, 5)


def test_a_higher_priority_takes_workers_at_once() -> None:
    driver = driver_with(slots=2)
    for number in (1, 2):
        driver.submit(StepSettings("step"), job_id=f"j{number}", request_id=str(number))
        driver.plan(number, [1] * 1000)
    assert driver.node("n1").shares == {1: 1, 2: 1}
    driver.group(UpdateJob("j2", priority=1))
    assert driver.node("n1").shares == {2: 2}


@pytest.mark.parametrize(("job_id", "reason"), [("j0", "JOB_UNKNOWN"), ("j1", "JOB_ENDED")])
def test_only_open_jobs_can_be_changed(job_id: str, reason: str) -> None:
    driver = driver_with()
    driver.submit(StepSettings("step"), job_id="j1", request_id="1")
    driver.cancel("j1")
    (reply,) = driver.group(UpdateJob(job_id, priority=1))
    assert isinstance(reply, Refused) and reply.reason == reason


def test_a_project_takes_no_more_open_jobs_than_its_limit_from_another_one_either() -> None:
    driver = CoreDriver(limits=Limits(open_jobs_per_project=1))
    driver.submit(StepSettings("step"), job_id="j1", request_id="1")
    assert driver.group(UpdateJob("j1", project="vision")) == [1]
    driver.submit(StepSettings("step"), job_id="j2", request_id="2")
    (reply,) = driver.group(UpdateJob("j2", project="vision"))
    assert isinstance(reply, Refused) and reply.reason == "LIMIT_REACHED"


def test_uses_are_of_projects_with_open_jobs_or_settings() -> None:
    driver = driver_with(slots=4)
    change(driver, {"web": QueueSettings(weight=3.0)})
    driver.submit(StepSettings("step"), job_id="j1", request_id="1")
    driver.plan(1, [1] * 1000)
    driver.capacity("n1", 4, 4, step_id=1)
    found = uses(driver.core.state)
    assert found.keys() == {"web", "default"}
    use = found["default"]
    assert (use.open_jobs, use.fair, use.workers, use.ready + use.leased) == (1, 4.0, 4, 1000)
    assert use.leased == len(driver.held()) > 0
