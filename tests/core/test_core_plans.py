"""Groups of planned mini-batches, and those of them that an earlier job has done."""

from __future__ import annotations

import pytest
from core_driver import CoreDriver, checkpoint, completion, records
from windrow_master.core import commands
from windrow_master.core.commands import TakenOver
from windrow_master.core.ids import NodeId, StepId
from windrow_master.core.settings import StepSettings
from windrow_master.core.states import Cause, JobState, MiniBatchState, StepState

TAKEN = MiniBatchState.SUCCEEDED


def taken(mini_batch: int, items: int = 2, rows: int = 2) -> TakenOver:
    return TakenOver(mini_batch, items, rows, "/before/1-1.rows" if rows else "", 10 * mini_batch, 10 * bool(rows), 7)


def plan(driver: CoreDriver, items: list[int], *over: TakenOver, ranks: bytes = b"", done: bool = True) -> bool:
    count = len(items)
    accepted: bool = driver.do(
        commands.PlanGroup(
            StepId(1),
            None,
            checkpoint(count, done, items=sum(items)),
            0,
            records(0, items),
            done,
            b"{}",
            (),
            ranks,
            over,
            b"head",
        )
    )
    return accepted


def test_what_is_taken_over_counts_and_does_not_run() -> None:
    driver = CoreDriver()
    driver.submit()
    assert plan(driver, [2, 2, 0, 2], taken(0), taken(2, items=3))
    step = driver.step()
    counters = step.counters
    assert (counters.planned, counters.succeeded, counters.items_total, counters.items_ok) == (4, 2, 9, 5)
    assert (counters.rows, counters.output_bytes, step.header) == (4, 20, b"head")
    driver.join()
    assert sorted(lease.mini_batch for lease in driver.held()) == [1, 3]
    driver.assert_reload_equals_live()
    driver.finish_all()
    assert step.state == StepState.CONCATENATING
    driver.finish_step()
    assert driver.job().state == JobState.COMPLETED


def test_a_step_of_which_all_is_taken_over_ends_without_a_node() -> None:
    driver = CoreDriver()
    driver.submit()
    assert plan(driver, [2, 2], taken(0), taken(1, rows=0))
    assert driver.step().state == StepState.CONCATENATING
    assert driver.step().mini_batches.states == bytes([TAKEN, TAKEN])
    driver.assert_reload_equals_live()


def test_ranks_of_those_taken_over_are_left_out() -> None:
    driver = CoreDriver()
    driver.submit()
    ranks = b"".join(rank.to_bytes(8, "little") for rank in (5, 9, 7))
    assert plan(driver, [1, 1, 1], taken(1, items=1, rows=1), ranks=ranks)
    driver.join()
    assert {lease.mini_batch for lease in driver.held()} == {0, 2}


def test_a_group_that_is_refused_takes_nothing_over() -> None:
    driver = CoreDriver()
    driver.submit()
    assert plan(driver, [2], taken(0), done=False)
    before = driver.step().counters.succeeded
    assert not plan(driver, [2], taken(0))
    assert driver.step().counters.succeeded == before


@pytest.mark.parametrize("restart", [False, True])
def test_rows_taken_over_that_are_lost_run_for_the_first_time(restart: bool) -> None:
    driver = CoreDriver()
    driver.submit()
    assert plan(driver, [2, 0, 2], taken(0), taken(1, items=3), taken(2))
    if restart:
        driver.restart()
    lost = tuple(driver.tables.lost_rows(1, at) for at in (0, 1))
    driver.do(commands.RequeueLostRows(StepId(1), 1, lost))
    counters = driver.step().counters
    assert (counters.succeeded, counters.taken_over, counters.items_taken_over, counters.items_ok) == (1, 1, 2, 2)
    driver.assert_reload_equals_live()
    driver.join()
    assert sorted((lease.mini_batch, lease.attempt) for lease in driver.held()) == [(0, 1), (1, 1)]
    assert not [attempt for attempt in driver.tables.attempts.values() if not attempt.lease_id]
    driver.finish_all()
    assert driver.step().state == StepState.CONCATENATING
    driver.assert_reload_equals_live()


def test_a_retry_keeps_what_was_taken_over_and_counts_it_as_that() -> None:
    driver = CoreDriver()
    driver.submit(StepSettings("step", max_retries=0))
    assert plan(driver, [2, 2, 2], taken(0))
    driver.join()
    first, second = driver.held()
    driver.fail("n1", first, Cause.EXCEPTION)
    driver.complete("n1", completion(second.lease_id, items=2))
    driver.finish_step()
    driver.retry()
    counters = driver.step().counters
    assert (counters.succeeded, counters.taken_over, counters.items_taken_over) == (2, 1, 2)
    driver.assert_reload_equals_live()


def test_what_is_taken_over_proves_nothing_about_the_script() -> None:
    driver = CoreDriver()
    driver.submit()
    assert plan(driver, [2, 2], taken(0))
    driver.restart()
    assert not driver.step().workers.is_ready
    driver.join("n1", 0)
    driver.join("n2", 0)
    driver.do(commands.CordonNode(NodeId("n2"), True))
    driver.init_fails("n1")
    driver.give_up("n1")
    assert driver.step().state == StepState.FAILED, (
        "no node has ever run it: it does not wait for one that is set aside"
    )
