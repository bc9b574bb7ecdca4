"""Fleets: who runs them, what becomes of their allocations, and of the nodes that run in these."""

from __future__ import annotations

from typing import Any

import pytest
from core_driver import CoreDriver, completion
from hypothesis import given, settings
from hypothesis import strategies as st
from windrow_master.core import fleets
from windrow_master.core.allocations import Allocation, Fleet, FleetGroup, Shape
from windrow_master.core.commands import (
    AllocationReport,
    BeginAllocations,
    CordonNode,
    DeleteFleet,
    ExplainJob,
    HeartbeatNode,
    ReleaseLeases,
    RemoveNode,
    SyncFleet,
    UpdateFleet,
)
from windrow_master.core.fleets import Served, Synced, served
from windrow_master.core.ids import NodeId
from windrow_master.core.reasons import Code, FleetAsk
from windrow_master.core.refused import Refused
from windrow_master.core.states import AllocationState, AttemptState, Cause
from windrow_master.core.transitions import ALLOCATION
from windrow_master.rpc.reason_briefs import brief_of
from windrow_master.rpc.reason_words import words_of

S = AllocationState
GPU = FleetGroup("gpu", "gpu", "slurm", Shape(2, gpus=1), 0, 10)
TAKEN = (S.PREEMPTED, S.EXPIRED, S.CANCELLED, S.COMPLETED, S.LOST)
SECOND_US = 1_000_000


def sync(
    driver: CoreDriver, *reports: AllocationReport, by: str = "a1", groups: tuple[FleetGroup, ...] = (GPU,)
) -> Any:
    return driver.do(SyncFleet("cluster", by, f"program {by}", groups, reports))


def said(name: str, state: AllocationState, reason: str = "") -> AllocationReport:
    return AllocationReport(name, "gpu", state, reason=reason)


def begin(driver: CoreDriver, *names: str, by: str = "a1") -> Any:
    return driver.do(BeginAllocations("cluster", by, tuple((name, "gpu") for name in names)))


def driver_with(*names: str) -> CoreDriver:
    driver = CoreDriver()
    assert isinstance(sync(driver), Synced)
    assert begin(driver, *names) is None
    return driver


def state_of(driver: CoreDriver, name: str) -> AllocationState:
    state = driver.core.state
    return (state.allocations.get(name) or state.ended_allocations[name]).state


def why(reply: object) -> str:
    return reply.reason if isinstance(reply, Refused) else ""


def why_not(reply: object) -> str:
    assert isinstance(reply, Refused)
    return reply.message


def working(driver: CoreDriver, allocation: str = "one", name: str = "n1") -> None:
    """A node in an allocation runs two mini-batches, for so long that they are written down."""
    if not driver.core.state.steps:
        driver.running([1] * 20)
    driver.register(name, allocation=allocation)
    driver.open(name)
    driver.capacity(name, 2, 2)
    driver.tick_alive(2, name)


# Who runs a fleet


@settings(deadline=None)
@given(st.lists(st.sampled_from(["a1", "b2", "c3", "restart"]), max_size=12))
def test_the_program_that_came_last_has_the_fleet_and_no_earlier_one_gets_it_back(calls: list[str]) -> None:
    driver = CoreDriver()
    seen: list[str] = []
    for call in calls:
        if call == "restart":
            driver.restart()
            continue
        if call not in seen:
            seen.append(call)
        is_newest = call == seen[-1]
        assert why(sync(driver, by=call)) == ("" if is_newest else "FLEET_TAKEN")
        assert why(begin(driver, f"one-{call}", by=call)) == ("" if is_newest else "FLEET_TAKEN")
    assert {one.name for one in driver.core.state.allocations.values()} == {f"one-{call}" for call in seen}


def test_a_take_over_is_told_once_with_who_had_it() -> None:
    driver = driver_with()
    assert sync(driver).before is None
    assert sync(driver, by="b2").before == "program a1"
    assert sync(driver, by="b2").before is None
    kinds = [event.kind for event in driver.tables.events]
    assert kinds == ["fleet_began", "fleet_taken"]


def test_what_only_swings_is_not_written_each_second() -> None:
    driver = driver_with()

    def writes(group: FleetGroup) -> bool:
        driver.core.handle(SyncFleet("cluster", "a1", "program a1", (group,)), driver.now)
        dirty = driver.core.take_dirty()
        driver.tables.commit(driver.core.state.incarnation, dirty, [])
        return bool(dirty)

    wanted = GPU._replace(status=GPU.status._replace(wanted=3))
    assert not writes(wanted) and driver.core.state.fleets["cluster"].groups == (wanted,)
    assert writes(GPU._replace(status=GPU.status._replace(reason="QOSMaxJobsPerUserLimit")))
    assert not writes(GPU._replace(status=GPU.status._replace(reason="QOSMaxJobsPerUserLimit", wanted=9)))
    assert writes(GPU._replace(max=11))


def test_what_an_operator_has_set_stays_while_the_group_does() -> None:
    driver = driver_with()
    fleet = driver.do(UpdateFleet("cluster", bounds=(("gpu", 1, 4),), by="ann"))
    assert isinstance(fleet, Fleet) and fleets.bounds_of(fleet.groups[0]) == (1, 4)
    driver.restart()
    assert fleets.bounds_of(sync(driver, by="b2").fleet.groups[0]) == (1, 4)
    assert why(driver.do(UpdateFleet("cluster", bounds=(("gpu", 11, None),)))) == "FLEET_INVALID"
    fleet = driver.do(UpdateFleet("cluster", bounds=(("gpu", None, None),)))
    assert fleets.bounds_of(fleet.groups[0]) == (0, 10) and fleet.revision == 2


def test_a_fleet_is_forgotten_with_its_ended_allocations_once_nobody_uses_it() -> None:
    driver = driver_with("one")
    assert why(driver.do(DeleteFleet("cluster"))) == "FLEET_IN_USE"
    driver.now_s += fleets.IN_USE_S
    assert why(driver.do(DeleteFleet("cluster"))) == "FLEET_IN_USE"
    sync(driver, said("one", S.CANCELLED))
    driver.now_s += fleets.IN_USE_S
    assert driver.do(DeleteFleet("cluster")) is None
    driver.restart()
    state = driver.core.state
    assert not (state.fleets or state.allocations or state.ended_allocations)
    assert why(driver.do(DeleteFleet("cluster"))) == "FLEET_NOT_FOUND"


def test_ended_allocations_are_kept_for_a_month_and_not_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = driver_with("one", "two", "three")
    sync(driver, said("two", S.COMPLETED))
    driver.now_s += 20 * 86_400
    sync(driver, said("one", S.FAILED))
    driver.now_s += 11 * 86_400
    sync(driver)
    assert list(driver.core.state.ended_allocations) == ["one"] and list(driver.core.state.allocations) == ["three"]
    monkeypatch.setattr(fleets, "ENDED_KEPT", 1)
    sync(driver, said("three", S.LOST))
    driver.restart()
    assert list(driver.core.state.ended_allocations) == ["three"]


# What becomes of allocations


REPORTS = st.lists(st.tuples(st.sampled_from(["one", "two", "new"]), st.sampled_from(list(S))), max_size=15)


@settings(deadline=None)
@given(REPORTS, st.integers(0, 15))
def test_an_allocation_goes_forward_whatever_is_reported_and_a_restart_changes_nothing(
    reports: list[tuple[str, AllocationState]], restarts_at: int
) -> None:
    driver = driver_with("one", "two")
    for at, (name, reported) in enumerate(reports):
        if at == restarts_at:
            before = (dict(driver.core.state.allocations), dict(driver.core.state.ended_allocations))
            driver.restart()
            after = (driver.core.state.allocations, driver.core.state.ended_allocations)
            assert before == after
        known = driver.core.state.allocations.get(name) or driver.core.state.ended_allocations.get(name)
        sync(driver, said(name, reported), said(name, reported))
        now = state_of(driver, name)
        if known is not None and now != known.state:
            assert ALLOCATION.allows(known.state, now) and now == reported
        assert (name in driver.core.state.allocations) != (name in driver.core.state.ended_allocations)
        assert name in driver.core.state.ended_allocations or now in (S.BEGUN, S.QUEUED, S.STARTED)
        # The same again changes nothing.
        driver.core.handle(SyncFleet("cluster", "a1", "program a1", (GPU,), (said(name, reported),)), driver.now)
        assert not driver.core.take_dirty()


def test_the_times_of_an_allocation_are_those_of_its_states() -> None:
    driver = driver_with("one")
    begun_s = driver.now.wall_s
    driver.now_s += 5
    sync(driver, said("one", S.QUEUED, "Priority"))
    driver.now_s += 5
    sync(driver, said("one", S.STARTED))
    one = driver.core.state.allocations["one"]
    assert (one.begin_time, one.queue_time, one.start_time) == (begun_s, begun_s + 5, begun_s + 10)
    driver.now_s += 5
    sync(driver, said("one", S.QUEUED, "BeginTime"))
    one = driver.core.state.allocations["one"]
    assert (one.queue_time, one.start_time, one.reason) == (begun_s + 15, None, "BeginTime")


def test_an_agent_that_joins_before_its_fleet_knows_its_allocation_is_linked_then() -> None:
    driver = driver_with()
    driver.register("n1", allocation="one")
    assert begin(driver, "one") is None
    one = driver.core.state.allocations["one"]
    assert (one.state, one.node_id, one.join_time) == (S.STARTED, "n1", driver.now.wall_s)
    driver.register("n2", allocation="two")
    sync(driver, said("two", S.STARTED))
    assert driver.core.state.allocations["two"].node_id == "n2"


def test_how_the_node_of_an_allocation_stands() -> None:
    driver = driver_with("one")

    def stands() -> Served:
        return served(driver.core.state, driver.core.state.allocations["one"], driver.now)

    assert stands() == Served()
    driver.register("n1", allocation="one")
    assert stands() == Served(is_alive=True)
    working(driver)
    assert stands() == Served(is_alive=True, is_busy=True)
    driver.do(CordonNode(NodeId("n1"), True))
    assert stands() == Served(is_alive=True, is_busy=True, is_leaving=True)
    driver.do(CordonNode(NodeId("n1"), False))
    driver.node().ends_s = driver.now_s + 30
    assert stands().is_leaving


def test_a_node_that_does_not_live_long_enough_for_what_waits_counts_as_leaving() -> None:
    driver = driver_with("one")
    working(driver)
    driver.complete("n1", *(completion(one.lease_id, elapsed_us=600 * SECOND_US) for one in driver.held()))
    driver.node().ends_s = driver.now_s + 300
    driver.tick_alive(2, "n1")
    sync(driver)
    assert served(driver.core.state, driver.core.state.allocations["one"], driver.now).is_leaving


# What becomes of the nodes


@pytest.mark.parametrize("ending", TAKEN)
def test_what_an_engine_has_ended_is_lost_at_once_and_charged_to_nobody(ending: AllocationState) -> None:
    driver = driver_with("one")
    working(driver)
    held = [lease.mini_batch for lease in driver.held()]
    sync(driver, said("one", ending, "the engine's words"))
    assert NodeId("n1") not in driver.core.state.nodes and not driver.core.state.leases
    step = driver.step()
    assert (step.counters.failed_attempts, step.counters.retries, step.counters.leased) == ({}, 0, 0)
    assert all(one not in step.mini_batches.tries for one in held)
    rows = [row for row in driver.tables.attempts.values() if row.state != AttemptState.RUNNING]
    assert {(row.state, row.cause) for row in rows} == {(AttemptState.ABANDONED, Cause.PREEMPTED)}
    assert all("The allocation one of the fleet cluster" in row.message for row in rows)
    (told,) = (event for event in driver.tables.events if event.kind == "allocation_ended")
    assert told.job_key is not None and "2 mini-batches that it held run again, charged to nobody" in told.message
    assert "the engine's words" in told.message
    assert why(driver.register("n1", "b", allocation="one")) == "ALLOCATION_ENDED"
    driver.assert_reload_equals_live()


def test_what_fails_in_an_allocation_that_failed_counts_as_any_loss_of_a_node() -> None:
    """A mini-batch that brings its node down must not do so for ever."""
    driver = driver_with("one")
    working(driver)
    sync(driver, said("one", S.FAILED, "OUT_OF_MEMORY"))
    assert NodeId("n1") not in driver.core.state.nodes
    assert driver.step().counters.failed_attempts == {str(int(Cause.NODE_LOST)): 2}


@pytest.mark.parametrize("ending", [*TAKEN, S.FAILED])
def test_the_engine_s_word_may_come_after_the_loss_was_charged(ending: AllocationState) -> None:
    driver = driver_with("one")
    working(driver)
    driver.tick(60)
    assert NodeId("n1") not in driver.core.state.nodes
    step = driver.step()
    assert (step.counters.failed_attempts, step.counters.retries) == ({str(int(Cause.NODE_LOST)): 2}, 2)
    assert state_of(driver, "one") == S.STARTED
    working(driver, "two", "n2")
    sync(driver, said("one", ending))
    counters = driver.step().counters
    if ending == S.FAILED:
        assert counters.failed_attempts == {str(int(Cause.NODE_LOST)): 2}
        return
    assert (counters.failed_attempts, counters.retries, counters.kinds, counters.examples) == ({}, 0, {}, {})
    assert all(not tries.failures for tries in step.mini_batches.tries.values())
    assert {lease.attempt for lease in driver.held("n2")} == {1}
    assert AttemptState.FAILED not in {row.state for row in driver.tables.attempts.values()}
    driver.finish_all("n2")
    driver.assert_reload_equals_live()


def test_a_restart_between_the_loss_and_the_engine_s_word_leaves_the_charge() -> None:
    driver = driver_with("one")
    working(driver)
    driver.tick(60)
    driver.restart()
    sync(driver, said("one", S.PREEMPTED))
    assert driver.step().counters.failed_attempts == {str(int(Cause.NODE_LOST)): 2}


def test_a_node_of_an_earlier_master_is_lost_with_its_allocation() -> None:
    driver = driver_with("one")
    working(driver)
    driver.restart()
    assert driver.node().allocation == "one"
    sync(driver, said("one", S.PREEMPTED))
    assert NodeId("n1") not in driver.core.state.nodes
    assert driver.step().counters.failed_attempts == {}


@pytest.mark.parametrize("allocation", ["two", ""])
def test_the_end_of_an_earlier_allocation_does_not_touch_a_node(allocation: str) -> None:
    driver = driver_with("one", "two")
    working(driver)
    driver.register("n1", "b", "a", allocation=allocation)
    driver.open("n1", "b")
    driver.capacity("n1", 2, 2)
    held = [lease.lease_id for lease in driver.held()]
    assert len(held) == 2
    sync(driver, said("one", S.PREEMPTED))
    assert [lease.lease_id for lease in driver.held()] == held
    assert state_of(driver, "two") == (S.STARTED if allocation else S.BEGUN)


def test_an_agent_that_leaves_by_itself_completes_its_allocation_and_the_engine_may_say_why() -> None:
    driver = driver_with("one", "two")
    for name, allocation in (("n1", "one"), ("n2", "two")):
        driver.register(name, allocation=allocation)
        driver.open(name)
        driver.capacity(name, 0, 2, draining=True)
        driver.close(name)
        assert state_of(driver, allocation) == S.COMPLETED
    sync(driver, said("two", S.PREEMPTED, "PreemptMode"), said("one", S.STARTED))
    assert (state_of(driver, "one"), state_of(driver, "two")) == (S.COMPLETED, S.PREEMPTED)
    # Whose stream had only broken comes back; another agent does not.
    assert driver.register("n1", allocation="one") is None
    assert why(driver.register("n3", allocation="one")) == "ALLOCATION_ENDED"
    assert why(driver.register("n3", "b", allocation="one")) == "ALLOCATION_ENDED"


def test_a_node_that_names_the_allocation_of_another_neither_takes_nor_ends_it() -> None:
    driver = driver_with("one")
    working(driver)
    assert why(driver.register("liar", "b", allocation="one")) == "ALLOCATION_TAKEN"
    # One that was there before its words were known to be wrong is in no allocation, and its leaving ends none.
    driver.register("early", "c", allocation="two")
    driver.register("later", "c", allocation="two")
    assert begin(driver, "two") is None
    two = driver.core.state.allocations["two"]
    assert two.node_id == "early"
    found = fleets.others(driver.core.state, "cluster", driver.now)
    assert sum(one.agents for one in found) == 0, "no node that does not serve counts"
    for name in ("later", "early"):
        driver.open(name, "c")
        driver.capacity(name, 0, 2, draining=True)
        driver.close(name)
        assert state_of(driver, "two") == (S.STARTED if name == "later" else S.COMPLETED)
    sync(driver, said("one", S.PREEMPTED))
    assert NodeId("n1") not in driver.core.state.nodes and driver.step().counters.failed_attempts == {}


def test_the_agent_that_a_fleet_has_started_gets_its_allocation_from_whoever_named_it_before() -> None:
    driver = driver_with("one")
    driver.register("liar", "b", allocation="one")
    assert driver.core.state.allocations["one"].node_id == "liar"
    assert driver.register("one", "a", allocation="one") is None
    assert driver.core.state.allocations["one"].node_id == "one"
    assert why(driver.register("liar", "b", allocation="one")) == "ALLOCATION_TAKEN"
    sync(driver, said("one", S.PREEMPTED))
    assert NodeId("one") not in driver.core.state.nodes and NodeId("liar") in driver.core.state.nodes


def test_what_a_node_loses_that_names_another_s_allocation_is_not_taken_back() -> None:
    driver = driver_with("one")
    driver.register("liar", allocation="one")
    driver.running([1] * 20)
    driver.open("liar")
    driver.capacity("liar", 2, 2)
    driver.tick_alive(2, "liar")
    assert driver.register("one", "a", allocation="one") is None
    driver.open("one", "a")
    driver.core.state.nodes[NodeId("liar")].expires_s = 0.0
    driver.tick_alive(2, "one")
    assert NodeId("liar") not in driver.core.state.nodes
    charged = dict(driver.step().counters.failed_attempts)
    assert charged
    sync(driver, said("one", S.PREEMPTED))
    assert driver.step().counters.failed_attempts == charged


def test_a_job_is_told_what_an_engine_says_and_not_what_an_agent_has_logged() -> None:
    driver = driver_with("one")
    working(driver)
    sync(driver, said("one", S.FAILED, "exit code 1.\nstep of another job"))
    assert driver.core.state.ended_allocations["one"].reason == "exit code 1.\nstep of another job"
    words = why_not(driver.register("n2", "b", allocation="one"))
    assert "is failed (exit code 1)" in words and "another job" not in words


def test_a_node_that_an_operator_removes_says_nothing_of_its_allocation() -> None:
    driver = driver_with("one")
    working(driver)
    driver.do(RemoveNode(NodeId("n1"), force=True))
    assert state_of(driver, "one") == S.STARTED


def test_what_an_engine_queues_again_is_charged_to_nobody_and_a_connected_node_stays() -> None:
    driver = driver_with("one")
    working(driver)
    driver.close("n1")
    sync(driver, said("one", S.QUEUED, "BeginTime"))
    assert NodeId("n1") not in driver.core.state.nodes and driver.step().counters.failed_attempts == {}
    driver.register("n1", "b", allocation="one")
    driver.open("n1", "b")
    driver.capacity("n1", 2, 2)
    # The engine's list may be older than the agent.
    sync(driver, said("one", S.STARTED))
    sync(driver, said("one", S.QUEUED))
    assert len(driver.held()) == 2 and state_of(driver, "one") == S.STARTED


# What is told


def test_a_step_that_waits_for_a_pool_says_what_its_fleets_do() -> None:
    driver = driver_with("one", "two", "three", "four")
    driver.running([1] * 9, compute="gpu")
    sync(
        driver,
        said("one", S.QUEUED, "Priority"),
        said("two", S.QUEUED, "Resources"),
        said("four", S.STARTED),
        groups=(GPU, GPU._replace(name="cpu", pool="cpu")),
    )
    (reason,) = driver.do(ExplainJob("job"))
    assert reason.code == Code.WAITS_FOR_AGENTS
    assert reason.fleets == (FleetAsk("cluster", "gpu", "slurm", asked=3, starting=1, engine_says="Priority"),)
    words = words_of(reason)
    assert "No node of the pool 'gpu' (compute) is connected" in words
    assert "Fleet cluster (slurm, group gpu): 3 agents asked for, the engine says: Priority; 1 agent starting." in words
    assert "waits for an agent of fleet cluster: 3 agents asked for" in brief_of(reason)
    driver.do(UpdateFleet("cluster", paused=True, by="ann"))
    sync(driver, said("one", S.CANCELLED), said("two", S.CANCELLED), said("three", S.LOST), said("four", S.LOST))
    (reason,) = driver.do(ExplainJob("job"))
    assert "it was paused by ann, and asks for nothing more (windrow fleet resume cluster)" in words_of(reason)
    driver.do(UpdateFleet("cluster", paused=False))
    failing = GPU._replace(status=GPU.status._replace(reason="sbatch: error:\n  invalid account"))
    sync(driver, groups=(failing,))
    (reason,) = driver.do(ExplainJob("job"))
    assert "Fleet cluster (slurm, group gpu): sbatch: error: invalid account." in words_of(reason)
    driver.now_s += 120
    (reason,) = driver.do(ExplainJob("job"))
    assert "its program has not been heard for 2 min; start it" in words_of(reason)


def test_where_nodes_serve_nothing_is_told_of_fleets() -> None:
    driver = driver_with("one")
    working(driver)
    (reason,) = driver.do(ExplainJob("job"))
    assert not reason.fleets


# Mini-batches that ends of nodes cut off again and again


def cut_off(driver: CoreDriver, name: str, ran_s: float, lifetime_s: float) -> None:
    """A node gets what waits, runs it for a while, and its end cuts that off."""
    driver.register(name, lifetime_s=lifetime_s)
    driver.open(name)
    driver.capacity(name, 1, 1)
    (lease,) = driver.held(name)
    driver.now_s += ran_s
    beat = HeartbeatNode(NodeId(name), "a", 1, lease.lease_id, running=((lease.lease_id, ran_s),))
    driver.do(beat)
    driver.node(name).ends_s = driver.now_s
    driver.capacity(name, 0, 1, draining=True)
    driver.do(ReleaseLeases(NodeId(name), [lease.lease_id]))
    driver.close(name)


def test_a_mini_batch_that_was_cut_off_late_waits_for_a_node_that_lives_twice_as_long() -> None:
    driver = CoreDriver()
    driver.running([1] * 4)
    driver.join_slots("known", 3)
    driver.complete("known", *(completion(one.lease_id, elapsed_us=60 * SECOND_US) for one in driver.held("known")))
    driver.capacity("known", 0, 0)
    driver.do(ReleaseLeases(NodeId("known"), [one.lease_id for one in driver.held("known")]))
    driver.do(RemoveNode(NodeId("known"), force=True))
    cut_off(driver, "n1", 600, 3600)
    assert driver.step().counters.failed_attempts == {}
    driver.register("short", lifetime_s=1100)
    driver.open("short")
    driver.capacity("short", 1, 1)
    assert not driver.held("short")
    (reason,) = driver.do(ExplainJob("job"))
    assert reason.code == Code.NODES_END_TOO_SOON
    assert (reason.ran_s, reason.wanted_s, reason.next_s) == (600, 1200, 1100)
    assert "it had run for 10 min, far longer than others of its step" in words_of(reason)
    outlook = fleets.outlook(driver.core.state, driver.now)
    assert (outlook.demands[0].ready, outlook.demands[0].longest_s) == (1, 1200)
    driver.register("long", lifetime_s=1300)
    driver.open("long")
    driver.capacity("long", 1, 1)
    assert len(driver.held("long")) == 1
    driver.finish_all("long")


def test_a_mini_batch_that_was_cut_off_early_runs_where_any_other_does() -> None:
    driver = CoreDriver()
    driver.running([1] * 4)
    driver.join_slots("known", 3)
    driver.complete("known", *(completion(one.lease_id, elapsed_us=600 * SECOND_US) for one in driver.held("known")))
    driver.capacity("known", 0, 0)
    driver.do(ReleaseLeases(NodeId("known"), [one.lease_id for one in driver.held("known")]))
    driver.do(RemoveNode(NodeId("known"), force=True))
    cut_off(driver, "n1", 300, 3600)
    driver.register("next", lifetime_s=1000)
    driver.open("next")
    driver.capacity("next", 1, 1)
    assert len(driver.held("next")) == 1


def test_all_that_fleets_keep_is_the_same_after_a_restart() -> None:
    driver = driver_with("one", "two")
    working(driver)
    sync(driver, said("two", S.EXPIRED, "TimeLimit"), by="b2")
    driver.do(UpdateFleet("cluster", paused=True, bounds=(("gpu", None, 3),), by="ann"))
    before = (driver.core.state.fleets, driver.core.state.allocations, driver.core.state.ended_allocations)
    driver.restart()
    after = (driver.core.state.fleets, driver.core.state.allocations, driver.core.state.ended_allocations)
    assert before == after
    assert isinstance(after[1]["one"], Allocation) and after[1]["one"].node_id == "n1"
