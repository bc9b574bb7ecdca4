"""Restarts: what a new master knows, what it adopts, how long it waits, what it owes."""

from __future__ import annotations

import pytest
from core_driver import CoreDriver, completion
from windrow_master.core import commands
from windrow_master.core import effects as fx
from windrow_master.core.causes import Budget
from windrow_master.core.commands import HeldLease
from windrow_master.core.ids import NodeId, StepId
from windrow_master.core.settings import StepSettings
from windrow_master.core.states import Cause, JobState, StepState, Verdict


def back(driver: CoreDriver, name: str = "n1", held: tuple[HeldLease, ...] = (), capacity: int = 0) -> None:
    """A node comes back to a restarted master."""
    assert driver.register(name) is None
    assert driver.open(name, held=held) is None
    if capacity:
        driver.capacity(name, capacity)


@pytest.mark.parametrize("written", [False, True], ids=["young", "written-down"])
def test_a_returning_node_keeps_what_it_holds(written: bool) -> None:
    driver = CoreDriver()
    driver.running([1, 1])
    driver.join(leases_max=1)
    if written:
        driver.tick_alive(2, "n1")
    (lease,) = driver.held()
    driver.restart()
    assert (lease.lease_id in driver.core.state.leases) == written
    back(driver, held=driver.as_held(lease), capacity=1)
    (kept,) = driver.held()
    assert (kept.lease_id, kept.attempt, kept.generation) == (lease.lease_id, 1, 1)
    driver.tick_alive(2, "n1")
    driver.assert_reload_equals_live()
    assert driver.complete("n1", completion(lease.lease_id)) == {Verdict.ACCEPTED: [lease.lease_id]}
    assert driver.step().counters.succeeded == 1


def test_what_a_returning_node_does_not_name_runs_again_uncounted() -> None:
    driver = CoreDriver()
    driver.running([1])
    driver.join()
    driver.tick_alive(2, "n1")
    driver.restart()
    back(driver, capacity=1)
    (lease,) = driver.held()
    assert lease.attempt == 1 and lease.lease_id not in (0, *list(driver.leases)[:-1])


def test_written_leases_wait_for_their_node_for_the_grace_and_no_longer() -> None:
    driver = CoreDriver()
    step_id = driver.running([1, 1]).step_id
    driver.join(leases_max=1)
    driver.tick_alive(2, "n1")
    driver.restart()
    driver.join("n2")
    driver.tick_alive(14, "n2")
    assert [lease.mini_batch for lease in driver.held("n2")] == [1]
    driver.tick_alive(2, "n2")
    assert [lease.mini_batch for lease in driver.held("n2")] == [0, 1]
    assert driver.step(step_id).mini_batches.tries[0].failures[Budget.NODE_LOSSES] == 1


def test_nothing_is_handed_out_until_known_nodes_have_said_what_they_hold() -> None:
    driver = CoreDriver()
    driver.running([1, 1, 1])
    driver.join("n1", 1)
    driver.join("n2", 1)
    young = driver.held("n1") + driver.held("n2")
    driver.restart()
    back(driver, "n1", driver.as_held(young[0]), capacity=2)
    assert driver.held("n1") == [driver.core.state.leases[young[0].lease_id]], "n2 may hold one of the others"
    back(driver, "n2", driver.as_held(young[1]), capacity=1)
    assert [lease.mini_batch for lease in driver.held("n1")] == [0, 2]
    assert [lease.mini_batch for lease in driver.held("n2")] == [1]


def test_a_known_node_that_stays_away_delays_work_by_no_more_than_the_settling() -> None:
    driver = CoreDriver()
    driver.running([1])
    driver.join("n1", 1)
    driver.join("n2", 0)
    driver.restart()
    back(driver, "n1", capacity=1)
    assert not driver.held("n1")
    driver.tick_alive(2, "n1")
    assert len(driver.held("n1")) == 1


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({"generation": 2}, Verdict.SUPERSEDED),
        ({"mini_batch": 5}, Verdict.UNKNOWN),
        ({"step_id": 9}, Verdict.UNKNOWN),
        ({"lease_id": 0}, Verdict.SUPERSEDED),
        ({"lease_id": 1 << 63}, Verdict.SUPERSEDED),
    ],
    ids=str,
)
def test_a_lease_that_cannot_be_is_not_adopted(change: dict[str, int], verdict: Verdict) -> None:
    driver = CoreDriver()
    driver.running([1])
    driver.join()
    (lease,) = driver.held()
    driver.restart()
    held = driver.as_held(lease)[0]._replace(**change)  # type: ignore[arg-type]
    back(driver, held=(held,))
    assert not driver.core.state.leases and [effect.lease_ids for effect in driver.sent(fx.RevokeLeases)] == [
        [held.lease_id]
    ]
    assert driver.complete("n1", completion(held.lease_id)) == {verdict: [held.lease_id]}
    assert driver.step().counters.succeeded == 0


def test_a_lease_of_this_master_that_it_never_gave_is_not_adopted() -> None:
    driver = CoreDriver()
    driver.running([1, 1])
    driver.register()
    future = driver.core.state.lease_prefix << 32 | 1
    driver.open(held=(HeldLease(future, StepId(1), 0, 1, driver.core.state.identity_of(driver.step())),))  # type: ignore[arg-type]
    assert not driver.core.state.leases
    driver.capacity("n1", 2)
    assert len(driver.held()) == 2


def test_one_lease_claimed_by_two_nodes_stays_with_the_first() -> None:
    driver = CoreDriver()
    driver.running([1, 1])
    driver.join(leases_max=1)
    (lease,) = driver.held()
    driver.restart()
    back(driver, "n1", driver.as_held(lease))
    stolen = driver.as_held(lease)[0]
    back(driver, "n2", (stolen, stolen._replace(mini_batch=1)))
    assert driver.held("n1")[0].lease_id == lease.lease_id and not driver.held("n2")


def test_two_leases_on_one_mini_batch_only_one_is_adopted() -> None:
    driver = CoreDriver()
    driver.running([1])
    driver.join()
    (lease,) = driver.held()
    driver.restart()
    held = driver.as_held(lease)[0]
    back(driver, held=(held, held._replace(lease_id=held.lease_id + (1 << 40))))  # type: ignore[arg-type]
    assert [at.lease_id for at in driver.held()] == [lease.lease_id]


def test_tries_and_blame_survive() -> None:
    driver = CoreDriver()
    driver.running([1, 1, 1], max_retries=2)
    driver.join()
    for cause in (Cause.EXCEPTION, Cause.CRASH, Cause.TIMEOUT):
        driver.fail("n1", driver.held()[0], cause)
    driver.restart()
    tries = driver.step().mini_batches.tries[0]
    assert tries.failures == {Budget.MAX_RETRIES: 2, Budget.CRASHES: 1}
    back(driver, capacity=1)
    driver.tick_alive(2, "n1")
    (lease,) = driver.held()
    assert lease.attempt == 4
    driver.fail("n1", lease, Cause.EXCEPTION)
    assert driver.step().counters.failed == 1


def test_a_new_incarnation_of_a_known_node_that_was_not_heard_of_is_admitted_at_once() -> None:
    driver = CoreDriver()
    driver.running([1])
    driver.join()
    driver.tick_alive(2, "n1")
    driver.restart()
    assert driver.register(incarnation="b") is None
    driver.open(incarnation="b")
    driver.capacity("n1", 1)
    driver.tick_alive(2, "n1")
    assert len(driver.held()) == 1 and driver.step().mini_batches.tries[0].failures[Budget.NODE_LOSSES] == 1


def test_a_lost_node_is_not_waited_for() -> None:
    driver = CoreDriver()
    driver.running([1])
    driver.join()
    driver.tick_alive(2, "n1")
    driver.tick(6)
    driver.restart()
    assert not driver.core.state.nodes and not driver.core.state.settle_until_s
    driver.join("n2")
    assert len(driver.held("n2")) == 1


def test_owed_effects_are_gathered_again() -> None:
    driver = CoreDriver()
    driver.submit(StepSettings("a"), StepSettings("b", depends_on=("a",)), StepSettings("c"))
    driver.plan(1, [1])
    driver.join()
    driver.finish_all()
    assert driver.step(1).state == StepState.CONCATENATING
    driver.restart()
    assert driver.sent(fx.ConcatenateRows) == [fx.ConcatenateRows(StepId(1), 1)]
    assert driver.sent(fx.PrepareStep) == [fx.PrepareStep(StepId(3))]
    driver.do(commands.FinishStep(StepId(1), 1))
    assert driver.step(2).state == StepState.RUNNING


def test_a_planner_goes_on_from_the_stored_checkpoint() -> None:
    driver = CoreDriver()
    driver.submit()
    driver.plan(1, [1, 1], done=False)
    driver.restart()
    assert driver.step().plan.checkpoint == driver.tables.steps[StepId(1)].checkpoint
    assert driver.plan(1, [1], done=True) and len(driver.step().mini_batches) == 3
    assert driver.plan(1, [1]) is False


def test_ended_jobs_are_not_loaded_and_numbers_go_on() -> None:
    driver = CoreDriver()
    driver.submit()
    driver.do(commands.CancelJob("job"))
    driver.restart()
    assert not driver.core.state.jobs
    assert driver.submit(job_id="next", request_id="n") == 2
    assert driver.step(2).step_id == 2


def test_a_node_that_held_leases_of_a_job_ended_meanwhile_is_told() -> None:
    driver = CoreDriver()
    driver.running([1])
    driver.join()
    (lease,) = driver.held()
    driver.cancel()
    driver.restart()
    driver.register()
    driver.do(commands.OpenWork(NodeId("n1"), "a", 99, driver.as_held(lease), (StepId(1),)))
    assert driver.sent(fx.EndStep) == [fx.EndStep(NodeId("n1"), 99, StepId(1), 0)]
    assert driver.complete("n1", completion(lease.lease_id)) == {Verdict.UNKNOWN: [lease.lease_id]}
    assert driver.tables.jobs[1].state == JobState.CANCELLED


def test_a_written_lease_of_an_earlier_generation_is_taken_back_when_its_node_returns() -> None:
    driver = CoreDriver()
    driver.running([1])
    driver.join()
    driver.tick_alive(2, "n1")
    (lease,) = driver.held()
    driver.core.state.touch_job(driver.job())
    driver.job().generation += 1
    driver.do(commands.Tick())
    driver.restart()
    back(driver, held=driver.as_held(lease), capacity=1)
    assert driver.complete("n1", completion(lease.lease_id)) == {Verdict.SUPERSEDED: [lease.lease_id]}
    (again,) = driver.held()
    assert (again.generation, again.attempt) == (2, 1) and again.lease_id != lease.lease_id


def test_an_adopted_lease_counts_the_attempts_that_failed_before_it_came_back() -> None:
    driver = CoreDriver()
    driver.running([1], max_retries=5)
    driver.join()
    (first,) = driver.held()
    driver.restart()
    driver.join("n2")
    driver.tick_alive(2, "n2")
    driver.fail("n2", driver.held("n2")[0], Cause.NODE_FAULT)
    back(driver, "n1", driver.as_held(first))
    assert driver.held("n1")[0].attempt == 2
    driver.tick_alive(2, "n1")
    driver.restart()
    assert driver.core.state.leases[first.lease_id].attempt == 2


def test_lease_ids_of_two_incarnations_never_meet() -> None:
    driver = CoreDriver()
    driver.running([1] * 5)
    for _ in range(3):
        driver.join(leases_max=2)
        driver.tick_alive(2, "n1")
        driver.restart()
    assert len(driver.leases) == len(set(driver.leases)) >= 4
