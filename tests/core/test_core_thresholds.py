"""Thresholds, and a step none of whose items succeeded (docs/reference/azure-ml/parallel-job.md#thresholds)."""

from __future__ import annotations

from typing import Any

import pytest
from core_driver import CoreDriver, completion
from windrow_master.core import commands
from windrow_master.core import effects as fx
from windrow_master.core.ids import NodeId, StepId
from windrow_master.core.settings import StepSettings
from windrow_master.core.states import Cause, JobState, StepState, Verdict


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
        driver.finish_step()
        assert driver.job().state == JobState.COMPLETED_WITH_FAILURES
    driver.tables.check()


@pytest.mark.parametrize("restarted", [False, True])
def test_only_what_was_tried_again_counts_as_a_retry_where_a_threshold_ends_the_step(restarted: bool) -> None:
    driver = CoreDriver()
    driver.running([1] * 10, max_retries=1, mini_batch_error_threshold=2)
    driver.join(leases_max=10)
    for lease in driver.held():
        driver.fail("n1", lease, Cause.EXCEPTION)
    driver.fail("n1", driver.held()[0], Cause.EXCEPTION)
    if restarted:
        driver.restart()
        driver.join(leases_max=10)
    driver.tick_alive(2, "n1")
    driver.assert_reload_equals_live()
    last, _, *rest = driver.held()
    driver.do(commands.ReleaseLeases(NodeId("n1"), [lease.lease_id for lease in rest]))
    step = driver.step()
    assert step.counters.retries == 10, "so many are to be tried again"
    driver.fail("n1", last, Cause.EXCEPTION)
    driver.fail("n1", driver.held()[0], Cause.EXCEPTION)
    assert step.state == StepState.FAILED
    assert step.counters.retries == 3, "so many were"
    driver.tables.check()


@pytest.mark.parametrize(("allowed", "failed"), [(-1, False), (0, True), (1, True), (2, False)])
def test_a_mini_batch_that_failed_uncounted_is_an_item_at_least(allowed: int, failed: bool) -> None:
    driver = CoreDriver()
    step = driver.running([0, 0, 0], max_retries=0, error_threshold=allowed)
    driver.join()
    uncounted, counted, _ = [lease.lease_id for lease in driver.held()]
    driver.complete(
        "n1",
        completion(counted, Cause.EXCEPTION, items=1),
        completion(uncounted, Cause.LOAD_FAILED, items=0),
    )
    driver.tables.check()
    assert (step.state == StepState.FAILED) == failed
    if failed:
        assert step.message == (
            f"2 items failed, more than error_threshold allows ({allowed}). 1 mini-batch failed before its "
            "items were counted, and counts as one item."
        )


@pytest.mark.parametrize(
    ("settings", "results", "said"),
    [
        # As the sales sample does it: nothing is returned, and nothing is to fail for that.
        ({"error_threshold": -1, "mini_batch_error_threshold": 0, "append_row": False}, [0, 0, 0], ""),
        ({"error_threshold": 9, "mini_batch_error_threshold": 1}, [1, 2, 2], ""),
        ({"error_threshold": 9, "mini_batch_error_threshold": 0}, [1, 2, 2], "A short return counts as one"),
        ({"error_threshold": 1}, [1, 2, 2], ""),
        (
            {"error_threshold": 1},
            [1, 1, 2],
            "run() returned fewer results than it was given items. If a row does not stand for an item, as after a "
            "filter, say so: --returns any",
        ),
        ({"error_threshold": 0, "mini_batch_error_threshold": 0}, [2, 9, 2], ""),
        ({"error_threshold": 9, "allowed_failed_percent": 33.0}, [1, 2, 2], "1 of 3 mini-batches failed"),
        ({"error_threshold": 9, "allowed_failed_percent": 34.0}, [1, 2, 2], ""),
        ({"error_threshold": -1, "allowed_failed_percent": 0.0}, [1, 2, 2], ""),
        ({}, [0, 0, 0], "so there are no rows to write"),
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


@pytest.mark.parametrize(("percent", "failing", "failed"), [(18.4, 69, False), (18.4, 70, True), (18.39, 69, True)])
def test_a_share_is_compared_to_the_point(percent: float, failing: int, failed: bool) -> None:
    # 18.4 % of 375 are 69, but a little less in binary fractions.
    driver = CoreDriver()
    step = driver.running([1] * 375, max_retries=0, allowed_failed_percent=percent)
    driver.join(leases_max=failing)
    leases = driver.held()
    driver.complete("n1", *(completion(lease.lease_id, Cause.EXCEPTION) for lease in leases))
    assert (step.state == StepState.FAILED) == failed
    assert not failed or f"{failing} of 375 mini-batches failed" in step.message


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
    assert step.state == StepState.FAILED and "so there are no rows to write" in step.message
