"""Attempts: every cause and its budget, verdicts, releases, what a mini-batch's outcome is."""

from __future__ import annotations

from zlib import crc32

import pytest
from core_driver import CoreDriver, completion
from windrow_master.core import commands
from windrow_master.core import effects as fx
from windrow_master.core.causes import TRAITS, Budget
from windrow_master.core.headers import MIXED
from windrow_master.core.ids import NodeId, StepId
from windrow_master.core.states import AttemptState, Cause, JobState, MiniBatchState, StepState, Verdict

TRIES = {
    Budget.MAX_RETRIES: 3,
    Budget.CRASHES: 3,
    Budget.OOMS: 3,
    Budget.INPUT_CHANGES: 1,
    Budget.NO_SECOND_TRY: 1,
}
"""How many tries a mini-batch has on a cluster of one node, with `max_retries` 2."""
REPORTED = [cause for cause, traits in TRAITS.items() if cause and not (traits.found_by_master or traits.of_items)]
"""All causes that an agent may report."""
BUDGETED = [cause for cause in REPORTED if TRAITS[cause].budget != Budget.NOBODY]
FREE = [cause for cause in REPORTED if TRAITS[cause].budget == Budget.NOBODY]


def test_each_cause_has_its_traits() -> None:
    assert set(TRAITS) == set(Cause)


def retry(driver: CoreDriver) -> None:
    """Let a delayed mini-batch come due, and a quarantine end."""
    driver.tick_alive(2.5, *driver.core.state.nodes)
    if not driver.held():
        driver.tick_alive(driver.timing.quarantine_s, *driver.core.state.nodes)


@pytest.mark.parametrize("cause", BUDGETED)
def test_each_cause_uses_up_its_own_budget_and_no_other(cause: Cause) -> None:
    budget = TRAITS[cause].budget
    tries_max = TRIES[budget]
    driver = CoreDriver()
    step = driver.running([4])
    driver.join()
    for number in range(1, tries_max + 1):
        (lease,) = driver.held()
        assert lease.attempt == number
        assert driver.fail("n1", lease, cause, items=4) == {Verdict.ACCEPTED: [lease.lease_id]}
        tries = step.mini_batches.tries[0] if step.state == StepState.RUNNING else None
        if tries is not None:
            assert tries.failures == {budget: number}
    row = driver.tables.mini_batches[1][0]
    assert (row.state, row.items_counted, row.ok_count, row.lease_id) == (MiniBatchState.FAILED, 4, 0, lease.lease_id)
    (told,) = driver.tables.item_outcomes[1, 0]
    assert (told.item_first, told.item_count, told.cause, told.message) == (0, 4, cause, cause.name.lower())
    assert step.counters.failed_attempts == {str(int(cause)): tries_max}
    assert [at.state for at in driver.tables.attempts.values()] == [AttemptState.FAILED] * tries_max


@pytest.mark.parametrize("cause", FREE)
def test_causes_charged_to_nobody_never_fail_a_mini_batch(cause: Cause) -> None:
    driver = CoreDriver()
    step = driver.running([1])
    driver.join()
    for _ in range(15):
        (lease,) = driver.held()
        driver.fail("n1", lease, cause)
        retry(driver)
    tries = step.mini_batches.tries[0]
    assert not tries.failures.total()
    driver.finish_all()
    assert step.counters.succeeded == 1


def test_a_node_fault_waits_before_it_runs_again() -> None:
    driver = CoreDriver()
    driver.running([1])
    driver.join()
    driver.fail("n1", driver.held()[0], Cause.NODE_FAULT)
    driver.tick_alive(1.5, "n1")
    assert driver.held() == []
    driver.tick_alive(1.0, "n1")
    assert len(driver.held()) == 1


@pytest.mark.parametrize("cause", [Cause.NODE_LOST, Cause.ROWS_LOST, Cause.NODE_KILLER, 99])
def test_causes_that_no_peer_can_know_count_as_exceptions(cause: int) -> None:
    driver = CoreDriver()
    step = driver.running([1], mini_batch_error_threshold=5)
    driver.join()
    for _ in range(3):
        driver.complete("n1", completion(driver.held()[0].lease_id, cause))
    assert step.counters.failed == 1
    assert step.counters.failed_attempts == {str(int(Cause.EXCEPTION)): 3}


@pytest.mark.parametrize("max_retries", [0, 1, 5])
def test_max_retries_counts_the_tries_after_the_first(max_retries: int) -> None:
    driver = CoreDriver()
    step = driver.running([1, 1], max_retries=max_retries)
    driver.join(leases_max=2)
    for _ in range(max_retries):
        driver.fail("n1", driver.held()[0], Cause.EXCEPTION)
    assert step.counters.failed == 0
    driver.fail("n1", driver.held()[0], Cause.EXCEPTION)
    assert step.counters.failed == 1 and step.counters.retries == max_retries


def test_budgets_are_apart_within_one_mini_batch() -> None:
    driver = CoreDriver()
    step = driver.running([1])
    driver.join()
    for cause in (Cause.EXCEPTION, Cause.CRASH, Cause.OOM) * 2:
        driver.fail("n1", driver.held()[0], cause)
    assert step.counters.failed == 0
    driver.assert_reload_equals_live()
    driver.fail("n1", driver.held()[0], Cause.OOM)
    assert driver.tables.item_outcomes[1, 0][0].cause == Cause.OOM


def test_a_success_counts_once_and_its_rows_are_in_the_same_commit() -> None:
    driver = CoreDriver()
    step = driver.running([2, 3])
    driver.join(leases_max=1)
    (lease,) = driver.held()
    assert driver.complete("n1", completion(lease.lease_id, items=2)) == {Verdict.ACCEPTED: [lease.lease_id]}
    row = driver.tables.mini_batches[1][0]
    assert (row.state, row.ok_count, row.row_count, row.lease_id) == (MiniBatchState.SUCCEEDED, 2, 2, lease.lease_id)
    assert row.range is not None and row.range.length == len(b"row\n" * 2)
    assert (step.counters.rows, step.counters.output_bytes, step.counters.items_ok) == (2, 8, 2)
    driver.assert_reload_equals_live()


def test_items_that_only_loading_tells_are_counted_with_the_outcome() -> None:
    driver = CoreDriver()
    step = driver.running([0, 0, 0])
    driver.join()
    one, two, three = driver.held()
    driver.complete("n1", completion(one.lease_id, items=7))
    driver.fail("n1", two, Cause.INPUT_CHANGED, items=5)
    assert (step.counters.items_total, step.counters.items_ok, step.counters.items_failed) == (12, 7, 5)
    driver.assert_reload_equals_live()
    driver.do(commands.CancelJob("job"))
    assert step.counters.items_total == 12 and step.counters.cancelled == 1
    assert three.lease_id not in driver.core.state.leases


@pytest.mark.parametrize(("error_threshold", "state"), [(-1, MiniBatchState.SUCCEEDED), (5, MiniBatchState.FAILED)])
def test_a_short_return_fails_its_items_and_with_an_error_threshold_its_mini_batch(
    error_threshold: int, state: MiniBatchState
) -> None:
    driver = CoreDriver()
    step = driver.running([4, 1], error_threshold=error_threshold)
    driver.join(leases_max=1)
    driver.complete("n1", completion(driver.held()[0].lease_id, items=4, results=1, rows=b"x\n"))
    row = driver.tables.mini_batches[1][0]
    assert (row.state, row.ok_count, row.row_count) == (state, 1, 1)
    assert step.counters.items_failed == 3
    assert driver.tables.item_outcomes[1, 0][0].item_count == 3
    driver.assert_reload_equals_live()


def test_more_results_than_items_count_as_all_items() -> None:
    driver = CoreDriver()
    step = driver.running([2, 1])
    driver.join(leases_max=1)
    driver.complete("n1", completion(driver.held()[0].lease_id, items=2, results=9))
    assert (step.counters.items_ok, step.counters.items_failed) == (2, 0)


def test_another_header_of_text_fails_the_step_and_not_who_came_second() -> None:
    driver = CoreDriver()
    step = driver.running([1, 1, 1])
    driver.join()
    one, two, _ = driver.held()
    driver.complete("n1", completion(one.lease_id, header=b"a b\n"), completion(two.lease_id, header=b"a c\n"))
    assert (step.state, step.header) == (StepState.FAILED, b"a b\n")
    assert "different columns: 'a c', and in another mini-batch 'a b'" in step.message
    driver.assert_reload_equals_live()


def test_another_header_of_rows_that_tell_it_is_none_of_the_step_s_matters() -> None:
    driver = CoreDriver()
    step = driver.running([1, 1], row_format="csv")
    driver.join()
    one, two = driver.held()
    driver.complete("n1", completion(one.lease_id, header=b"a,b\n"), completion(two.lease_id, header=b"a,c\n"))
    assert (step.counters.succeeded, step.header) == (2, MIXED)
    driver.assert_reload_equals_live()


def test_rows_shorter_than_announced_are_the_nodes_fault() -> None:
    driver = CoreDriver()
    step = driver.running([1])
    driver.join()
    driver.complete("n1", completion(driver.held()[0].lease_id, rows=b"half", rows_length=8))
    assert step.counters.failed_attempts == {str(int(Cause.NODE_FAULT)): 1}
    assert driver.tables.mini_batches[1][0].state == MiniBatchState.QUEUED


def test_rows_that_are_not_what_was_sent_are_the_nodes_fault() -> None:
    driver = CoreDriver()
    step = driver.running([1])
    driver.join()
    driver.complete("n1", completion(driver.held()[0].lease_id, rows=b"cat\n", rows_crc32=crc32(b"bat\n")))
    assert step.counters.failed_attempts == {str(int(Cause.NODE_FAULT)): 1}
    assert driver.tables.mini_batches[1][0].state == MiniBatchState.QUEUED
    (kind,) = step.counters.kinds.values()
    assert "arrived damaged" in kind["message"]


@pytest.mark.parametrize("name", ["staged-9-1.rows", "../../1-1.rows", "staged-{}-1/../../x", "1-1.rows"])
def test_rows_staged_under_another_name_are_the_nodes_fault(name: str) -> None:
    driver = CoreDriver()
    step = driver.running([1])
    driver.join()
    (lease,) = driver.held()
    name = name.format(lease.lease_id)
    driver.complete("n1", completion(lease.lease_id, rows=b"", rows_length=8, staged_segment=name))
    assert step.counters.failed_attempts == {str(int(Cause.NODE_FAULT)): 1}


def test_rows_staged_for_the_lease_are_taken() -> None:
    driver = CoreDriver()
    step = driver.running([1])
    driver.join()
    (lease,) = driver.held()
    name = f"staged-{lease.lease_id}-3.rows"
    driver.complete("n1", completion(lease.lease_id, rows=b"", rows_length=8, staged_segment=name))
    assert step.counters.output_bytes == 8 and step.counters.succeeded == 1


def test_summary_only_counts_rows_but_keeps_none() -> None:
    driver = CoreDriver()
    step = driver.running([1], append_row=False)
    driver.join()
    driver.finish_all()
    assert step.state == StepState.CONCATENATING and step.counters.rows == 0
    assert driver.tables.mini_batches[1][0].range is None


# Verdicts


def test_a_completion_of_somebody_elses_lease_is_superseded_and_changes_nothing() -> None:
    driver = CoreDriver()
    driver.running([1])
    driver.join()
    driver.join("n2")
    (lease,) = driver.held()
    assert driver.complete("n2", completion(lease.lease_id)) == {Verdict.SUPERSEDED: [lease.lease_id]}
    assert driver.complete("nobody", completion(lease.lease_id)) == {Verdict.SUPERSEDED: [lease.lease_id]}
    assert driver.held() == [lease]


def test_two_completions_of_one_mini_batch_in_one_group_give_one_outcome() -> None:
    driver = CoreDriver()
    step = driver.running([1, 1])
    driver.join(leases_max=1)
    (lease,) = driver.held()
    result = completion(lease.lease_id)
    first, second = driver.group(
        commands.CompleteAttempts(NodeId("n1"), [result, result]), commands.CompleteAttempts(NodeId("n1"), [result])
    )
    assert first == {Verdict.ACCEPTED: [lease.lease_id], Verdict.SUPERSEDED: [lease.lease_id]}
    assert second == {Verdict.SUPERSEDED: [lease.lease_id]}
    assert (step.counters.succeeded, step.counters.rows) == (1, 1)


@pytest.mark.parametrize("cause", [0, Cause.EXCEPTION])
@pytest.mark.parametrize("restart", [False, True])
def test_the_same_lease_gets_the_same_answer_on_every_new_stream(cause: int, restart: bool) -> None:
    driver = CoreDriver()
    driver.running([1, 1])
    driver.join(leases_max=1)
    (lease,) = driver.held()
    driver.complete("n1", completion(lease.lease_id, cause))
    for _ in range(2):
        if restart:
            driver.restart()
        driver.register()
        driver.open(held=driver.as_held(lease))
        for _ in range(2):
            assert driver.complete("n1", completion(lease.lease_id, cause)) == {Verdict.ACCEPTED: [lease.lease_id]}
    assert sum(driver.step().counters.failed_attempts.values()) + driver.step().counters.succeeded == 1


def test_a_result_that_was_on_its_way_on_two_streams_is_accepted_on_both() -> None:
    driver = CoreDriver()
    step = driver.running([1, 1])
    driver.join(leases_max=1)
    (lease,) = driver.held()
    driver.open(held=driver.as_held(lease))
    for _ in range(2):
        assert driver.complete("n1", completion(lease.lease_id)) == {Verdict.ACCEPTED: [lease.lease_id]}
    assert step.counters.succeeded == 1


def test_a_result_that_comes_after_its_node_was_given_up_is_superseded() -> None:
    driver = CoreDriver()
    step = driver.running([1])
    driver.join()
    (lease,) = driver.held()
    driver.tick_alive(2, "n1")
    driver.tick(6)
    assert not driver.core.state.nodes
    driver.register()
    driver.open(held=driver.as_held(lease))
    assert [effect.lease_ids for effect in driver.sent(fx.RevokeLeases)] == [[lease.lease_id]]
    assert driver.complete("n1", completion(lease.lease_id)) == {Verdict.SUPERSEDED: [lease.lease_id]}
    assert step.counters.succeeded == 0


def test_verdicts_of_ended_and_unknown_steps() -> None:
    driver = CoreDriver()
    driver.running([1, 1])
    driver.join()
    one, two = driver.held()
    driver.cancel()
    assert driver.complete("n1", completion(one.lease_id)) == {Verdict.JOB_ENDED: [one.lease_id]}
    driver.open(held=(*driver.as_held(two), commands.HeldLease(two.lease_id + 1, StepId(77), 0, 1, 1)))  # type: ignore[arg-type]
    assert driver.complete("n1", completion(two.lease_id), completion(two.lease_id + 1)) == {
        Verdict.JOB_ENDED: [two.lease_id],
        Verdict.UNKNOWN: [two.lease_id + 1],
    }
    assert driver.job().state == JobState.CANCELLED
    driver.tick_alive(61, "n1")
    assert not driver.core.state.jobs
    assert driver.complete("n1", completion(two.lease_id)) == {Verdict.UNKNOWN: [two.lease_id]}


def test_a_result_of_an_earlier_generation_is_refused_and_its_mini_batch_runs_again() -> None:
    driver = CoreDriver()
    step = driver.running([1])
    driver.join(leases_max=1)
    (lease,) = driver.held()
    driver.job().generation += 1
    assert driver.complete("n1", completion(lease.lease_id)) == {Verdict.JOB_ENDED: [lease.lease_id]}
    (again,) = driver.held()
    assert (again.generation, again.attempt) == (2, 1)
    driver.finish_all()
    assert step.counters.succeeded == 1 and driver.tables.mini_batches[1][0].generation == 2


# Releases


def test_released_leases_go_back_uncounted() -> None:
    driver = CoreDriver()
    step = driver.running([1, 1])
    driver.join(leases_max=1)
    (lease,) = driver.held()
    driver.tick_alive(2, "n1")
    assert driver.tables.attempts[lease.lease_id].state == AttemptState.RUNNING
    driver.do(commands.ReleaseLeases(NodeId("n1"), [lease.lease_id, 12345]))
    assert driver.tables.attempts[lease.lease_id].state == AttemptState.ABANDONED
    (again,) = driver.held()
    assert (again.mini_batch, again.attempt, step.counters.retries) == (0, 1, 0)
    driver.do(commands.ReleaseLeases(NodeId("n2"), [again.lease_id]))
    assert driver.held() == [again], "only its own node gives a lease back"
    driver.assert_reload_equals_live()


def test_a_retry_that_is_given_back_is_no_second_one() -> None:
    driver = CoreDriver()
    step = driver.running([1])
    driver.join(leases_max=1)
    driver.fail("n1", driver.held()[0], Cause.EXCEPTION)
    for _ in range(3):
        driver.do(commands.ReleaseLeases(NodeId("n1"), [driver.held()[0].lease_id]))
    assert (driver.held()[0].attempt, step.counters.retries) == (2, 1)


def test_results_of_many_steps_in_one_command() -> None:
    driver = CoreDriver()
    for number in (1, 2):
        driver.submit(job_id=f"job{number}", request_id=str(number))
        driver.plan(number, [1] * 3)
    driver.join(step_id=1)
    driver.capacity("n1", 10, step_id=2)
    assert len(driver.held()) == 6
    driver.finish_all()
    assert [driver.step(number).state for number in (1, 2)] == [StepState.CONCATENATING] * 2
