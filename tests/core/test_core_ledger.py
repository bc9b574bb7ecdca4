"""The ledger: what worker time is counted as, under which day, project and pool, and that nothing of it is lost."""

from __future__ import annotations

from typing import Any

import pytest
from core_driver import WALL_S, CoreDriver, completion
from windrow.rpc.v1 import work_pb2
from windrow_master.core import commands
from windrow_master.core.commands import UpdateJob
from windrow_master.core.ids import JobKey, NodeId
from windrow_master.core.ledger import DAY_S, NOTED_S
from windrow_master.core.records import LedgerRow
from windrow_master.core.states import Cause, Verdict
from windrow_master.store.records import Reopening

OLD_S = 6.0
"""After this, a lease is old enough to be stored."""


def driver_with(items: int = 1, pool: str = "", workers: int = 1, **settings: Any) -> CoreDriver:
    driver = CoreDriver()
    driver.running([1] * items, **settings)
    driver.register("n1", pool=pool)
    driver.open("n1")
    driver.capacity("n1", items, workers)
    return driver


def spent(driver: CoreDriver, job: int = 1) -> dict[str, float]:
    """What the stored ledger says of a job, in seconds, without what workers lived; only what is not 0."""
    rows = [row for row in driver.tables.ledger.values() if row.job_key == job]
    names = LedgerRow._fields[6:-1]
    sums = {name.removesuffix("_us"): sum(getattr(row, name) for row in rows) / 1e6 for name in names}
    assert driver.tables.spent_us == driver.tables.took_us
    return {name: seconds for name, seconds in sums.items() if seconds}


def lived_s(driver: CoreDriver) -> float:
    return sum(row.lived_us for row in driver.tables.ledger.values()) / 1e6


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (Cause.NONE, "useful"),
        (Cause.EXCEPTION, "retried"),
        (Cause.NODE_FAULT, "retried"),
        (Cause.PREEMPTED, "preempted"),
        (Cause.CANCELLED, "cancelled"),
    ],
)
def test_an_attempt_counts_as_what_its_end_makes_of_it(cause: Cause, kind: str) -> None:
    driver = driver_with()
    (lease,) = driver.held()
    driver.complete("n1", completion(lease.lease_id, int(cause), elapsed_us=2_500_000))
    assert spent(driver) == {kind: 2.5}


def test_the_start_of_a_worker_counts_once_with_its_first_result() -> None:
    driver = driver_with(2)
    first, second = driver.held()
    start = work_pb2.WorkerStart(prepare_us=9_000_000, start_us=1_000_000, init_us=2_000_000)
    driver.complete(
        "n1",
        completion(first.lease_id, elapsed_us=500_000, worker_start=start),
        completion(second.lease_id, elapsed_us=250_000),
    )
    assert spent(driver) == {"useful": 0.75, "started": 3.0}


def test_what_ran_on_a_lost_node_is_lost_and_what_was_too_young_to_run_is_nothing() -> None:
    driver = driver_with()
    driver.tick_alive(OLD_S, "n1")
    driver.tick(60.0)
    assert driver.known("n1") is None
    (row,) = driver.tables.attempts.values()
    assert row.cause == Cause.NODE_LOST and row.elapsed_us > OLD_S * 1e6 and row.process_number == -1
    assert spent(driver) == {"lost": row.elapsed_us / 1e6}
    driver.join("n2")
    driver.do(commands.RemoveNode(NodeId("n2"), force=True))
    assert spent(driver) == {"lost": row.elapsed_us / 1e6}


def test_what_was_never_begun_costs_nothing_however_long_it_waited() -> None:
    driver = driver_with()
    driver.tick_alive(OLD_S, "n1")
    (lease,) = driver.held()
    assert lease.stored
    driver.do(commands.ReleaseLeases(NodeId("n1"), [lease.lease_id]))
    assert spent(driver) == {}


def test_what_a_killed_worker_had_spent_counts_as_preempted_but_no_more_than_its_lease_is_old() -> None:
    driver = driver_with()
    driver.tick_alive(OLD_S, "n1")
    (lease,) = driver.held()
    told = {lease.lease_id: commands.CutShort(int((OLD_S - 1) * 1e6), 3)}
    driver.do(commands.ReleaseLeases(NodeId("n1"), [lease.lease_id], told))
    (row,) = driver.tables.attempts.values()
    assert (row.cause, row.elapsed_us, row.process_number) == (Cause.PREEMPTED, int((OLD_S - 1) * 1e6), 3)
    assert spent(driver) == {"preempted": OLD_S - 1}
    assert not driver.step(1).counters.ran, "it is charged to nobody"


def test_a_young_attempt_that_was_cut_short_is_counted_and_a_lie_about_it_is_cut() -> None:
    driver = driver_with()
    (lease,) = driver.held()
    assert not lease.stored
    driver.now_s += 0.25
    told = {lease.lease_id: commands.CutShort(1 << 60, 3)}
    driver.do(commands.ReleaseLeases(NodeId("n1"), [lease.lease_id], told))
    assert spent(driver) == {"preempted": 0.25}


def test_a_lease_that_its_node_does_not_know_costs_nothing() -> None:
    driver = driver_with()
    driver.tick_alive(OLD_S, "n1")
    (lease,) = driver.held()
    assert lease.stored
    driver.open("n1")
    assert spent(driver) == {}


def test_what_is_revoked_when_a_job_is_cancelled_counts_as_cancelled() -> None:
    driver = driver_with()
    driver.tick_alive(OLD_S, "n1")
    driver.cancel()
    assert spent(driver) == {"cancelled": OLD_S}


def test_a_superseded_attempt_counts_as_preempted() -> None:
    driver = driver_with(6, speculate=True)
    *quick, slow = driver.held()
    driver.now_s += 0.1
    driver.complete("n1", *(completion(lease.lease_id, elapsed_us=100_000) for lease in quick))
    driver.join("n2", 1)
    driver.tick_alive(OLD_S, "n1", "n2")
    (second,) = driver.held("n2")
    assert second.rival is not None and second.rival.lease_id == slow.lease_id
    driver.complete("n2", completion(second.lease_id, elapsed_us=50_000))
    assert spent(driver) == {"useful": 0.55, "preempted": pytest.approx(OLD_S + 0.1)}


def test_time_is_kept_by_day_project_and_pool() -> None:
    driver = driver_with(3, pool="gpu, big")
    one, two, three = driver.held()
    driver.complete("n1", completion(one.lease_id, elapsed_us=1_000_000))
    driver.do(UpdateJob("job", project="vision"))
    driver.complete("n1", completion(two.lease_id, elapsed_us=2_000_000))
    driver.now_s += DAY_S
    driver.complete("n1", completion(three.lease_id, elapsed_us=4_000_000))
    today = int(WALL_S + 1000) // DAY_S
    found = {(row.day - today, row.project, row.pool): row.useful_us for row in driver.tables.ledger.values()}
    assert found == {
        (0, "default", "big,gpu"): 1_000_000,
        (0, "vision", "big,gpu"): 2_000_000,
        (1, "vision", "big,gpu"): 4_000_000,
    }


def test_workers_live_as_long_as_their_node_reports_them() -> None:
    driver = driver_with(workers=3)
    driver.now_s += 10.0
    driver.capacity("n1", 1, workers=1)
    assert lived_s(driver) == 30.0
    driver.now_s += 5.0
    driver.capacity("n1", 2, workers=1)
    assert lived_s(driver) == 30.0, "nothing has changed: it is counted later"
    driver.now_s += 5.0
    driver.do(commands.CloseWork(NodeId("n1"), driver.node().stream))
    assert lived_s(driver) == 40.0
    driver.now_s += 5.0
    driver.open("n1", held=driver.as_held(*driver.held()))
    driver.capacity("n1", 1, workers=2)
    driver.now_s += 1.0
    (lease,) = driver.held()
    driver.complete("n1", completion(lease.lease_id, elapsed_us=1))
    driver.finish_step()
    assert lived_s(driver) == 42.0, "an absent node reports nothing; the workers of a step that ends are counted"


def test_while_nothing_changes_what_workers_live_is_noted_now_and_then() -> None:
    driver = driver_with(workers=2)
    commits = driver.tables.ledger.copy()
    driver.now_s += NOTED_S - 1.0
    driver.beat()
    assert driver.tables.ledger == commits
    driver.now_s += 1.0
    driver.beat()
    assert lived_s(driver) == 2 * NOTED_S


def test_a_new_master_goes_on_from_what_is_stored() -> None:
    driver = driver_with(2)
    first, _ = driver.held()
    driver.complete("n1", completion(first.lease_id, elapsed_us=1_000_000))
    driver.restart()
    driver.join("n1", incarnation="b")
    (lease,) = driver.held()
    driver.complete("n1", completion(lease.lease_id, elapsed_us=2_000_000))
    assert spent(driver) == {"useful": 3.0} and len(driver.tables.ledger) == 1


def test_a_lease_that_was_given_back_is_not_taken_up_by_a_new_master() -> None:
    """Its time is counted: a second end of the same attempt would count it twice."""
    driver = driver_with()
    driver.tick_alive(OLD_S, "n1")
    (lease,) = driver.held()
    held = driver.as_held(lease)
    driver.do(commands.RemoveNode(NodeId("n1"), force=True))
    assert spent(driver) == {"preempted": OLD_S}
    driver.restart()
    driver.register("n1")
    driver.open("n1", held=held)
    assert driver.held() == []
    assert driver.complete("n1", completion(lease.lease_id, elapsed_us=1)) == {Verdict.SUPERSEDED: [lease.lease_id]}
    assert spent(driver) == {"preempted": OLD_S}


@pytest.mark.parametrize("how", [Reopening.RESUMED, Reopening.ANEW])
def test_a_retry_adds_to_what_was_spent(how: Reopening) -> None:
    driver = driver_with(max_retries=0)
    (lease,) = driver.held()
    driver.complete("n1", completion(lease.lease_id, int(Cause.EXCEPTION), elapsed_us=1_000_000))
    driver.finish_step()
    driver.retry(step=how)
    if how == Reopening.ANEW:
        driver.plan(1, [1])
    driver.capacity("n1", 1)
    (lease,) = driver.held()
    driver.complete("n1", completion(lease.lease_id, elapsed_us=2_000_000))
    assert spent(driver) == {"retried": 1.0, "useful": 2.0}


def test_the_user_is_whoever_submitted_the_job() -> None:
    driver = driver_with()
    driver.job().submitter = "ann"
    (lease,) = driver.held()
    driver.complete("n1", completion(lease.lease_id, elapsed_us=1))
    (row,) = driver.tables.ledger.values()
    assert (row.job_key, row.job_id, row.submitter) == (JobKey(1), "job", "ann")
