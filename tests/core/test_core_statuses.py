"""What reports call the end of an attempt, and the kind of an error: one row for each cause, none forgotten."""

from __future__ import annotations

from typing import Any

import pytest
from core_driver import CoreDriver, completion
from windrow.rpc.v1 import node_pb2
from windrow_master.core import commands
from windrow_master.core.ids import StepId
from windrow_master.core.states import AttemptState, Cause, Phase, StepState
from windrow_master.core.statuses import category_of, status_of

STORAGE = {Cause.LOAD_FAILED: "LOAD_EXCEPTION", Cause.TIMEOUT: "LOAD_TIMEOUT"}
"""What befalls a node that fetches, and is the storage's fault."""

NAMES: dict[Cause, tuple[dict[Phase, str], str]] = {
    Cause.EXCEPTION: ({Phase.RUNNING: "RUN_EXCEPTION"}, "UserError"),
    Cause.TIMEOUT: (
        {
            Phase.LOADING: "LOAD_TIMEOUT",
            Phase.RUNNING: "RUN_TIMEOUT",
            Phase.RETURNING: "RETURN_TIMEOUT",
            Phase.UNKNOWN: "RUN_TIMEOUT",
        },
        "UserError",
    ),
    Cause.BAD_RETURN: ({Phase.RETURNING: "RUN_EXCEPTION"}, "UserError"),
    Cause.CRASH: ({Phase.LOADING: "LOAD_CRASH", Phase.RUNNING: "RUN_CRASH"}, "UserError"),
    Cause.OOM: ({Phase.LOADING: "LOAD_OOM", Phase.RETURNING: "RETURN_OOM"}, "UserError"),
    Cause.INIT_FAILED: ({Phase.UNKNOWN: "INIT_FAILED"}, "UserError"),
    Cause.LOAD_FAILED: ({Phase.LOADING: "LOAD_EXCEPTION"}, "UserError"),
    Cause.INPUT_CHANGED: ({Phase.LOADING: "LOAD_EXCEPTION"}, "UserError"),
    Cause.NODE_FAULT: ({Phase.UNKNOWN: "NODE_FAULT", Phase.RUNNING: "NODE_FAULT"}, "SystemError"),
    Cause.NODE_LOST: ({Phase.UNKNOWN: "NODE_LOST"}, "SystemError"),
    Cause.PREEMPTED: ({Phase.UNKNOWN: "PREEMPTED"}, "SystemError"),
    Cause.ROWS_LOST: ({Phase.UNKNOWN: "ROWS_LOST"}, "SystemError"),
    Cause.CANCELLED: ({Phase.UNKNOWN: "CANCELLED"}, ""),
    Cause.NODE_KILLER: ({Phase.UNKNOWN: "NODE_KILLER"}, "SystemError"),
    Cause.INPUT_MISREAD: ({Phase.LOADING: "LOAD_EXCEPTION"}, "SystemError"),
    Cause.MARKED: ({Phase.UNKNOWN: "MARKED"}, "UserError"),
    Cause.OUTPUT_FAILED: ({Phase.RETURNING: "RETURN_EXCEPTION"}, "DependencyError"),
}


@pytest.mark.parametrize("cause", [cause for cause in Cause if cause])
def test_each_cause_has_its_status_and_category(cause: Cause) -> None:
    statuses, category = NAMES[cause]
    for phase, status in statuses.items():
        assert status_of(AttemptState.FAILED, cause, phase) == status
    assert category_of(cause) == category


@pytest.mark.parametrize("cause", [cause for cause in Cause if cause])
def test_what_fetching_meets_is_the_storages_where_no_one_elses(cause: Cause) -> None:
    category = "DependencyError" if cause in STORAGE else NAMES[cause][1]
    assert category_of(cause, Phase.FETCHING) == category
    assert cause not in STORAGE or status_of(AttemptState.FAILED, cause, Phase.FETCHING) == STORAGE[cause]


def test_attempts_that_did_not_fail() -> None:
    assert status_of(AttemptState.SUCCEEDED, 0, 0) == "RUN_DONE"
    assert status_of(AttemptState.RUNNING, 0, 0) == "LEASED"
    assert status_of(AttemptState.ABANDONED, Cause.PREEMPTED, 0) == "PREEMPTED"
    assert status_of(AttemptState.FAILED, Cause.TIMEOUT, 99) == "RUN_TIMEOUT", "a phase of a newer agent's"
    assert category_of(0) == ""


def test_the_phase_of_an_attempt_is_stored_with_it_and_shown_with_the_example() -> None:
    driver = CoreDriver()
    step = driver.running([1])
    driver.join()
    (lease,) = driver.held()
    driver.fail("n1", lease, Cause.TIMEOUT, phase=node_pb2.WORKER_PHASE_LOADING)
    row = driver.tables.attempts[lease.lease_id]
    assert status_of(row.state, row.cause, row.phase) == "LOAD_TIMEOUT"
    assert step.counters.examples[str(int(Cause.TIMEOUT))]["phase"] == Phase.LOADING


@pytest.mark.parametrize(
    ("settings", "cause", "category"),
    [
        ({"error_threshold": 0, "max_retries": 0}, Cause.EXCEPTION, "UserError"),
        ({"error_threshold": 0}, 0, "UserError"),
        ({}, Cause.INPUT_CHANGED, "UserError"),
    ],
    ids=["a threshold", "short returns", "nothing to write"],
)
def test_a_step_that_fails_by_its_mini_batches_has_the_category_of_their_main_cause(
    settings: dict[str, Any], cause: int, category: str
) -> None:
    driver = CoreDriver()
    step = driver.running([2], **settings)
    driver.join()
    driver.complete("n1", completion(driver.held()[0].lease_id, cause, items=2, results=0, rows=b""))
    assert (step.state, step.error_category) == (StepState.FAILED, category)
    assert driver.tables.steps[1].error_category == category


def test_a_step_whose_input_could_not_be_fetched_fails_by_its_storage() -> None:
    driver = CoreDriver()
    step = driver.running([2], max_retries=0)
    driver.join()
    driver.fail("n1", driver.held()[0], Cause.LOAD_FAILED, phase=node_pb2.WORKER_PHASE_FETCHING)
    assert (step.state, step.error_category) == (StepState.FAILED, "DependencyError")


@pytest.mark.parametrize("category", ["UserError", "SystemError", "DependencyError"])
def test_who_fails_a_step_says_of_what_kind_it_is(category: str) -> None:
    driver = CoreDriver()
    driver.submit()
    driver.do(commands.FailStep(StepId(1), "no such folder", category))
    assert driver.step().error_category == category
    driver.assert_reload_equals_live()
