"""The pace of a step: retries that back off, what an exception asks for, and the rate limit of all nodes together."""

from __future__ import annotations

from itertools import pairwise

import pytest
from core_driver import CoreDriver, completion
from hypothesis import given
from hypothesis import strategies as st
from windrow_master.core import commands
from windrow_master.core.pace import CATCH_UP_S, DELAY_MAX_S, RETRY_AFTER_MAX_S, Pace, retry_delay_s
from windrow_master.core.reasons import Code
from windrow_master.core.settings import Timing
from windrow_master.core.states import Cause, Phase
from windrow_master.rpc.reason_words import words_of

MANY = [1] * 200


def waits_s(driver: CoreDriver, name: str = "n1", at_most_s: float = 5000.0) -> float:
    """Let time pass until a node holds a lease; return how long that took."""
    begun_s = driver.now_s
    while not driver.held(name):
        assert driver.now_s - begun_s < at_most_s, "no lease came"
        driver.tick_alive(0.25, name)
    return driver.now_s - begun_s


@given(st.floats(0.001, 60), st.integers(1, 100), st.integers(1, 2**62))
def test_a_delay_doubles_up_to_a_minute_and_is_spread_by_a_quarter(
    first_s: float, failures: int, lease_id: int
) -> None:
    plain_s = min(first_s * 2.0 ** (failures - 1), DELAY_MAX_S)
    assert plain_s * 0.75 <= retry_delay_s(first_s, failures, lease_id) <= min(plain_s * 1.25, DELAY_MAX_S)


def test_leases_that_failed_together_come_back_apart() -> None:
    delays = sorted(retry_delay_s(1.0, 1, (7 << 32) + count) for count in range(1, 101))
    assert delays[0] < 0.8 and delays[-1] > 1.2
    assert max(later - earlier for earlier, later in pairwise(delays)) < 0.02


def test_without_a_delay_a_retry_comes_at_once() -> None:
    driver = CoreDriver()
    driver.running([1])
    driver.join()
    driver.fail("n1", driver.held()[0], Cause.EXCEPTION)
    assert len(driver.held()) == 1


def test_a_retry_waits_longer_each_time_while_others_run() -> None:
    driver = CoreDriver()
    driver.running([1, 1], max_retries=3, retry_delay_s=2.0)
    driver.join(leases_max=1)
    waited = []
    for _ in range(3):
        driver.fail("n1", driver.held()[0], Cause.EXCEPTION)
        if not waited:
            # The slot is free for the other one meanwhile.
            (other,) = driver.held()
            assert other.mini_batch == 1
            driver.complete("n1", completion(other.lease_id))
        (reason,) = driver.do(commands.ExplainJob("job"))
        assert reason.code == Code.RETRY_DELAYED and "The next try is in" in words_of(reason)
        waited.append(waits_s(driver))
    for wait_s, plain_s in zip(waited, (2, 4, 8), strict=True):
        assert plain_s * 0.75 - 0.01 <= wait_s <= plain_s * 1.25 + 0.5


@pytest.mark.parametrize("cause", [Cause.CRASH, Cause.NODE_FAULT])
def test_what_is_not_the_scripts_failure_is_not_delayed_by_it(cause: Cause) -> None:
    driver = CoreDriver(timing=Timing(node_fault_delay_s=0.5))
    driver.running([1], retry_delay_s=30.0)
    driver.join()
    driver.fail("n1", driver.held()[0], cause)
    assert waits_s(driver) <= 1.0


@pytest.mark.parametrize(
    ("asked_s", "least_s", "most_s"),
    [(20.0, 20.0, 20.5), (0.0, 1.5, 3.0), (1e9, RETRY_AFTER_MAX_S, RETRY_AFTER_MAX_S + 1)],
)
def test_an_exception_says_when_to_come_back(asked_s: float, least_s: float, most_s: float) -> None:
    driver = CoreDriver()
    driver.running([1], retry_delay_s=2.0)
    driver.join()
    driver.fail("n1", driver.held()[0], Cause.EXCEPTION, retry_after_us=int(asked_s * 1e6))
    assert least_s - 0.01 <= waits_s(driver) <= most_s


def started(driver: CoreDriver, seconds: float, *names: str, alive: tuple[str, ...] = ()) -> list[float]:
    """Run everything at once that nodes get; return the moments at which it was leased. `alive`: if not only these."""
    moments: list[float] = []
    for _ in range(int(seconds / 0.25)):
        for name in names:
            while leases := driver.held(name):
                moments += [driver.now_s] * len(leases)
                driver.complete(name, *(completion(lease.lease_id) for lease in leases))
        driver.tick_alive(0.25, *(alive or names))
    return moments


def test_calls_of_all_nodes_together_keep_to_the_rate() -> None:
    driver = CoreDriver()
    driver.running(MANY, rate_per_s=10.0)
    for name in ("n1", "n2", "n3"):
        driver.join_slots(name, 4, depth=4)
    moments = started(driver, 21, "n1", "n2", "n3")
    assert len(moments) == 200
    assert 18.0 <= moments[-1] - moments[0] <= 20.5
    for at, moment in enumerate(moments):
        within = sum(moment <= other < moment + 1 for other in moments[at:])
        assert within <= 10 * (1 + CATCH_UP_S) + 1


def test_no_lease_waits_on_a_node_while_the_rate_is_limited() -> None:
    driver = CoreDriver()
    driver.running(MANY, rate_per_s=1000.0)
    driver.join_slots("n1", 4, depth=4)
    assert len(driver.held()) == 1  # until a worker is ready
    driver.complete("n1", completion(driver.held()[0].lease_id))
    driver.tick_alive(0.25, "n1")
    assert len(driver.held()) == 4


def test_time_without_work_is_not_caught_up_with() -> None:
    driver = CoreDriver()
    driver.running(MANY, rate_per_s=10.0)
    driver.tick(30.0)
    driver.join_slots("n1", 1)
    assert len(started(driver, 1.0, "n1")) <= 10 * (1 + CATCH_UP_S) + 1


def test_retries_count_as_calls() -> None:
    driver = CoreDriver()
    driver.running([1], rate_per_s=0.5, max_retries=3)
    driver.join()
    for _ in range(3):
        driver.fail("n1", driver.held()[0], Cause.EXCEPTION)
        (reason,) = driver.do(commands.ExplainJob("job"))
        assert reason.code == Code.RATE_LIMITED
        assert "waits for the rate limit of 30 calls of run() per minute" in words_of(reason)
        assert 1.5 <= waits_s(driver) <= 2.25


def test_a_rate_of_items_counts_the_items_of_mini_batches() -> None:
    driver = CoreDriver()
    driver.running([5] * 40, rate_per_s=10.0, rate_counts_items=True)
    driver.join_slots("n1", 4)
    begun_s = driver.now_s
    while driver.step().counters.succeeded < 40:
        driver.finish_all()
        driver.tick_alive(0.25, "n1")
        assert driver.now_s - begun_s < 30
    assert 18.0 <= driver.now_s - begun_s <= 21.0


def test_a_mini_batch_with_more_items_than_the_rate_still_runs() -> None:
    driver = CoreDriver()
    driver.running([100, 100], rate_per_s=10.0, rate_counts_items=True)
    driver.join_slots("n1", 4)
    assert len(driver.held()) == 1
    driver.finish_all()
    assert 9.5 <= waits_s(driver) <= 10.5


def test_while_one_is_split_the_others_have_what_is_left_of_the_rate() -> None:
    driver = CoreDriver()
    driver.running([2, *[1] * 100], rate_per_s=10.0, max_retries=0, split=1)
    driver.join_slots("n1", 1)
    driver.fail("n1", driver.held()[0], Cause.EXCEPTION, items=2, phase=Phase.RUNNING)
    while not (held := driver.held()) or held[0].split is None:
        driver.tick_alive(0.25, "n1")
        for lease in driver.held():
            if lease.split is None:
                driver.complete("n1", completion(lease.lease_id))
    driver.join_slots("n2", 4)
    assert 45 <= len(started(driver, 10, "n2", alive=("n1", "n2"))) <= 55


@given(st.lists(st.floats(0, 2), min_size=1, max_size=60), st.floats(0.1, 1000))
def test_no_schedule_allows_more_than_its_rate(pauses: list[float], rate_per_s: float) -> None:
    pace, now_s, begun = Pace(), 100.0, 0
    for pause_s in pauses:
        now_s += pause_s
        count = pace.allowed(rate_per_s, now_s)
        if count:
            pace.charge(count, rate_per_s, now_s)
            begun += count
    assert begun <= (now_s - 100.0 + CATCH_UP_S) * rate_per_s + 1 + 1e-6


def test_a_stall_of_the_master_moves_the_schedule() -> None:
    driver = CoreDriver()
    driver.running(MANY, rate_per_s=1.0)
    driver.join_slots("n1", 1)
    driver.finish_all()
    driver.now_s += 10.0
    driver.beat()
    driver.tick()
    assert len(driver.held()) == 1
    driver.finish_all()
    assert waits_s(driver) >= 0.7
