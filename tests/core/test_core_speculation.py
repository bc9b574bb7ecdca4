"""Second attempts of stragglers: which are begun, where, and which of the two attempts counts."""

from __future__ import annotations

import pytest
from core_driver import CoreDriver, completion
from windrow_master.core import commands
from windrow_master.core import effects as fx
from windrow_master.core.leases import Lease
from windrow_master.core.settings import NODE_LOSSES_UNTIL_FAILED
from windrow_master.core.speculation import LATE_AFTER_S, LATE_FACTOR, SECOND_ATTEMPTS_MAX
from windrow_master.core.states import AttemptState, Cause, MiniBatchState, Phase, StepState, Verdict

SECOND_US = 1_000_000


def late(*items: int, mean_s: float = 10.0, nodes: tuple[str, ...] = ("n1", "n2"), **settings: object) -> CoreDriver:
    """A step whose last mini-batch runs on the first node; all others have ended there, each within `mean_s`."""
    driver = CoreDriver()
    counts = list(items or (1, 1, 1))
    driver.running(counts, **{"speculate": True, **settings})
    driver.join_slots(nodes[0], len(counts))
    *ended, _ = driver.held(nodes[0])
    results = [
        completion(lease.lease_id, items=counts[lease.mini_batch], elapsed_us=int(mean_s * SECOND_US))
        for lease in ended
    ]
    driver.complete(nodes[0], *results)
    for name in nodes[1:]:
        driver.join_slots(name, 1)
    return driver


def wait(driver: CoreDriver, seconds: float) -> None:
    driver.tick_alive(seconds, *driver.core.state.nodes)


def both(driver: CoreDriver) -> tuple[Lease, Lease]:
    """The straggler, and its second attempt."""
    (first,), (second,) = driver.held("n1"), driver.held("n2")
    assert first.mini_batch == second.mini_batch
    assert first.rival is second
    return first, second


def second_begun(driver: CoreDriver) -> tuple[Lease, Lease]:
    wait(driver, 25)
    return both(driver)


def test_a_straggler_begins_again_on_another_node_after_twice_the_mean_time() -> None:
    driver = late(mean_s=10.0)
    wait(driver, 10.0 * LATE_FACTOR - 1)
    assert not driver.held("n2")
    wait(driver, 2)
    both(driver)
    counters = driver.step().counters
    assert (counters.leased, counters.speculated, counters.queued) == (1, 1, 0)


def test_none_begins_again_without_the_setting() -> None:
    driver = late(speculate=False)
    wait(driver, 500)
    assert not driver.held("n2")


def test_short_mini_batches_are_not_begun_twice_for_a_moment_s_delay() -> None:
    driver = late(mean_s=0.001)
    wait(driver, LATE_AFTER_S - 0.25)
    assert not driver.held("n2")
    wait(driver, 0.5)
    both(driver)


def test_a_mini_batch_with_more_items_may_take_longer() -> None:
    driver = late(1, 1, 5, mean_s=10.0)
    wait(driver, 95)
    assert not driver.held("n2")
    wait(driver, 10)
    both(driver)


def test_another_worker_of_the_only_node_begins_it_again() -> None:
    driver = late(nodes=("n1",))
    wait(driver, 25)
    first, second = driver.held("n1")
    assert first.rival is second
    driver.complete("n1", completion(second.lease_id))
    assert driver.step().state == StepState.CONCATENATING


def test_nothing_begins_again_on_its_own_node_beside_others_or_while_others_wait() -> None:
    driver = late()
    driver.capacity("n2", 0)
    wait(driver, 100)
    assert len(driver.held("n1")) == 1
    driver = CoreDriver()
    driver.running([1] * 5, speculate=True)
    driver.join_slots("n1", 1)
    driver.complete("n1", completion(driver.held("n1")[0].lease_id, elapsed_us=SECOND_US))
    wait(driver, 100)
    assert driver.step().counters.speculated == 0


@pytest.mark.parametrize("first_wins", [True, False])
def test_the_first_that_succeeds_counts_and_the_other_is_taken_back(first_wins: bool) -> None:
    driver = late()
    first, second = second_begun(driver)
    winner, loser = (first, second) if first_wins else (second, first)
    assert driver.complete(winner.node_id, completion(winner.lease_id, rows=b"mine\n")) == {
        Verdict.ACCEPTED: [winner.lease_id]
    }
    assert [effect.lease_ids for effect in driver.sent(fx.RevokeLeases)] == [[loser.lease_id]]
    assert driver.step().state == StepState.CONCATENATING
    counters = driver.step().counters
    assert (counters.succeeded, counters.rows, counters.retries) == (3, 3, 0)
    assert counters.speculated_won == (0 if first_wins else 1)
    assert driver.complete(loser.node_id, completion(loser.lease_id)) == {Verdict.SUPERSEDED: [loser.lease_id]}
    states = {row.lease_id: row.state for row in driver.tables.attempts.values()}
    assert states[winner.lease_id] == AttemptState.SUCCEEDED
    assert states[loser.lease_id] == AttemptState.ABANDONED
    assert counters.failed_attempts == {}


@pytest.mark.parametrize("first_fails", [True, False])
@pytest.mark.parametrize("cause", [Cause.EXCEPTION, Cause.CRASH, Cause.OOM, Cause.TIMEOUT])
def test_one_that_fails_beside_the_other_is_charged_to_nobody(first_fails: bool, cause: Cause) -> None:
    driver = late(max_retries=0)
    first, second = second_begun(driver)
    failed, other = (first, second) if first_fails else (second, first)
    assert driver.fail(failed.node_id, failed, cause) == {Verdict.SUPERSEDED: [failed.lease_id]}
    assert other.rival is None
    table = driver.step().mini_batches
    assert table.states[other.mini_batch] == MiniBatchState.LEASED
    assert not table.tries[other.mini_batch].failures
    driver.assert_reload_equals_live()
    # It does not begin again where it failed.
    wait(driver, 100)
    assert not driver.held(failed.node_id)
    assert driver.complete(other.node_id, completion(other.lease_id)) == {Verdict.ACCEPTED: [other.lease_id]}
    assert driver.step().state == StepState.CONCATENATING
    assert driver.step().counters.failed == 0


def test_the_last_that_runs_decides_by_its_budget() -> None:
    driver = late(max_retries=0)
    first, second = second_begun(driver)
    driver.fail("n1", first, Cause.EXCEPTION)
    driver.fail("n2", second, Cause.EXCEPTION)
    assert driver.step().counters.failed == 1
    driver = late(max_retries=1)
    first, second = second_begun(driver)
    driver.fail("n2", second, Cause.EXCEPTION)
    driver.fail("n1", first, Cause.EXCEPTION)
    counters = driver.step().counters
    assert (counters.failed, counters.retries) == (0, 1)


def test_a_completion_that_cannot_be_used_does_not_end_the_other() -> None:
    driver = late()
    first, second = second_begun(driver)
    # The rows of this one arrived incomplete.
    driver.complete("n2", completion(second.lease_id, rows=b"row\n", rows_length=99))
    assert driver.held("n1") == [first]
    assert driver.step().counters.succeeded == 2
    driver.complete("n1", completion(first.lease_id))
    assert driver.step().counters.succeeded == 3


@pytest.mark.parametrize("lost", ["n1", "n2"])
def test_the_loss_of_a_node_leaves_the_other_attempt_at_work(lost: str) -> None:
    driver = late()
    second_begun(driver)
    left = "n2" if lost == "n1" else "n1"
    (other,) = driver.held(left)
    driver.capacity(left, 1)
    driver.tick_alive(10, left)
    assert driver.known(lost) is None
    assert other.rival is None
    assert driver.step().counters.leased == 1
    tries = driver.step().mini_batches.tries.get(other.mini_batch)
    assert tries is None or not tries.failures, "it is not suspected of killing nodes"
    driver.assert_reload_equals_live()
    driver.complete(left, completion(other.lease_id))
    assert driver.step().counters.succeeded == 3


def test_one_that_is_given_back_leaves_the_other_attempt_at_work() -> None:
    driver = late()
    first, second = second_begun(driver)
    driver.do(commands.ReleaseLeases(second.node_id, [second.lease_id]))
    assert driver.held("n1") == [first]
    assert driver.step().counters.leased == 1 and not len(driver.step().ready)


def test_a_mini_batch_is_begun_again_only_a_few_times() -> None:
    names = ("n1", "n2", *(f"m{number}" for number in range(SECOND_ATTEMPTS_MAX + 3)))
    driver = late(nodes=names)
    wait(driver, 25)
    for _ in range(SECOND_ATTEMPTS_MAX + 1):
        for name in names[1:]:
            for lease in driver.held(name):
                driver.fail(name, lease, Cause.EXCEPTION)
        wait(driver, 30)
    assert driver.step().counters.speculated == SECOND_ATTEMPTS_MAX
    assert len(driver.held("n1")) == 1


def test_a_mini_batch_that_is_split_has_one_attempt() -> None:
    driver = late(1, 1, 8, split=1, max_retries=0)
    (first,) = driver.held("n1")
    driver.fail("n1", first, Cause.EXCEPTION, items=8, phase=Phase.RUNNING)
    assert sum(len(driver.held(name)) for name in ("n1", "n2")) == 1
    wait(driver, 500)
    assert driver.step().counters.speculated == 0


def test_both_attempts_survive_a_restart_of_the_master() -> None:
    driver = late()
    first, second = second_begun(driver)
    wait(driver, 2)
    driver.restart()
    for name, lease in (("n1", first), ("n2", second)):
        driver.open(name, held=driver.as_held(lease))
        assert not driver.sent(fx.RevokeLeases)
    again = both(driver)
    assert [lease.lease_id for lease in again] == [first.lease_id, second.lease_id]
    driver.complete("n2", completion(second.lease_id))
    assert [effect.lease_ids for effect in driver.sent(fx.RevokeLeases)] == [[first.lease_id]]
    assert driver.step().counters.succeeded == 3


def test_what_is_expected_survives_a_restart_of_the_master() -> None:
    driver = late(mean_s=10.0)
    (first,) = driver.held("n1")
    wait(driver, 2)
    driver.restart()
    driver.open("n1", held=driver.as_held(first))
    driver.capacity("n1", 3, 3)
    driver.open("n2")
    driver.capacity("n2", 1, 1)
    wait(driver, 25)
    both(driver)


def test_a_cancelled_job_takes_both_back() -> None:
    driver = late()
    first, second = second_begun(driver)
    driver.cancel()
    assert not driver.core.state.leases
    assert driver.step().counters.cancelled == 1
    assert first.lease_id != second.lease_id


def test_a_rate_limit_holds_for_second_attempts() -> None:
    driver = CoreDriver()
    driver.running([1, 1], speculate=True, rate_per_s=0.1)
    driver.join_slots("n1", 2)
    (first,) = driver.held("n1")
    driver.complete("n1", completion(first.lease_id, elapsed_us=SECOND_US))
    wait(driver, 10.5)
    assert len(driver.held("n1")) == 1
    driver.join_slots("n2", 1)
    wait(driver, 5)
    assert not driver.held("n2"), "the pace allows no call yet"
    begun_s = driver.now_s
    while not driver.held("n2"):
        driver.tick_alive(0.25, "n1", "n2")
        assert driver.now_s - begun_s < 30
    assert driver.step().counters.speculated == 1


def test_many_lost_second_attempts_do_not_make_a_mini_batch_a_killer_of_nodes() -> None:
    driver = late()
    driver.capacity("n2", 0)
    for number in range(NODE_LOSSES_UNTIL_FAILED):
        name = f"m{number}"
        driver.join_slots(name, 1)
        wait(driver, 25)
        driver.tick_alive(10, "n1", "n2")
        assert driver.known(name) is None
    assert len(driver.held("n1")) == 1
    assert driver.step().counters.failed == 0
