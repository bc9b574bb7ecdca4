"""What a bug does to the books of one job costs no other job its leases: that job alone is to be paused."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from core_driver import CoreDriver
from sim_view import settings_of
from windrow_master.core import attempts, commands, core, endings, invariants, recovery, ticks
from windrow_master.core import effects as fx
from windrow_master.core.commands import StepsRaised
from windrow_master.core.ids import JobKey, LeaseId, NodeId, StepId
from windrow_master.core.settings import StepSettings
from windrow_master.core.state import CoreState
from windrow_master.core.states import JobState, StepState
from windrow_master.core.transitions import InvariantBroken

N1 = NodeId("n1")
BROKEN, WHOLE = StepId(1), StepId(2)


@pytest.fixture
def two_jobs() -> CoreDriver:
    """A node with two leases of each of two jobs; those of the first are written down."""
    driver = CoreDriver()
    for number, name in enumerate("ab", 1):
        driver.submit(StepSettings("step"), job_id=name, request_id=name)
        assert driver.plan(number, [1, 1])
    driver.join(leases_max=2)
    driver.capacity("n1", 2, step_id=2)
    driver.tick_alive(2, "n1")
    assert sorted(lease.step_id for lease in driver.held()) == [1, 1, 2, 2]
    return driver


def plant(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> None:
    """A function raises for the first job."""
    sound = getattr(module, name)

    def broken(state: Any, *rest: Any, **named: Any) -> Any:
        if any(getattr(value, "step_id", None) == BROKEN for value in rest):
            raise ZeroDivisionError("planted")
        return sound(state, *rest, **named)

    monkeypatch.setattr(module, name, broken)


def raised_by(driver: CoreDriver, command: Any) -> StepsRaised:
    with pytest.raises(StepsRaised) as caught:
        driver.core.handle(command, driver.now)
    assert list(caught.value.errors) == [BROKEN] and isinstance(caught.value.errors[BROKEN], ZeroDivisionError)
    return caught.value


def lost(driver: CoreDriver) -> commands.Command:
    driver.now_s += 60
    return commands.Tick(60)


def removed(driver: CoreDriver) -> commands.Command:
    driver.do(commands.CloseWork(N1, driver.node().stream))
    return commands.RemoveNode(N1)


def replaced(driver: CoreDriver) -> commands.Command:
    return commands.RegisterNode(N1, "b", "a", b"{}", b"{}")


def given_back(driver: CoreDriver) -> commands.Command:
    return commands.ReleaseLeases(N1, sorted(driver.core.state.leases))


def forgotten_by_the_node(driver: CoreDriver) -> commands.Command:
    return commands.OpenWork(N1, "a", 99, (), ())


@pytest.mark.parametrize("event", [lost, removed, replaced, given_back, forgotten_by_the_node])
def test_what_raises_at_one_job_gives_the_leases_of_the_others_back(
    two_jobs: CoreDriver, event: Callable[[CoreDriver], commands.Command], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, state = two_jobs, two_jobs.core.state
    command = event(driver)
    plant(monkeypatch, attempts, "requeue")
    assert raised_by(driver, command).reply is None and not state.leases, "the command is carried out"
    monkeypatch.undo()
    driver.core.handle(commands.PauseJob(JobKey(1), "a bug"), driver.now)
    assert [state.jobs[JobKey(key)].state for key in (1, 2)] == [JobState.PAUSED, JobState.RUNNING]
    assert state.steps[WHOLE].ready.size == 2
    driver.core.handle(commands.RegisterNode(NodeId("n2"), "a", "", b"{}", b"{}"), driver.now)
    driver.core.handle(commands.OpenWork(NodeId("n2"), "a", 100, (), ()), driver.now)
    driver.core.handle(commands.SetCapacity(NodeId("n2"), 100, ((BROKEN, 2, 1), (WHOLE, 2, 1))), driver.now)
    driver.core.pick(driver.now)
    handed_out = [effect for effect in driver.core.take_effects() if isinstance(effect, fx.SendAssignments)]
    assert {effect.step_id for effect in handed_out} == {WHOLE}


def test_a_node_that_is_lost_is_gone_though_its_standing_with_one_step_raises(
    two_jobs: CoreDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = removed(two_jobs)
    plant(monkeypatch, endings, "_go_on_without")
    for step_id in (BROKEN, WHOLE):
        two_jobs.step(step_id).workers.ending_on = {N1}
    assert raised_by(two_jobs, command).reply is None
    assert not two_jobs.core.state.nodes and not two_jobs.step(WHOLE).workers.ending_on


def test_a_tick_that_raises_at_one_step_does_all_the_rest(
    two_jobs: CoreDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, ticks, "fail_if_given_up")
    two_jobs.now_s += 60
    raised_by(two_jobs, commands.Tick(60))
    assert not two_jobs.core.state.nodes and two_jobs.step(WHOLE).ready.size == 2


def test_leases_that_cannot_be_written_down_keep_no_node_alive(
    two_jobs: CoreDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step_id in (BROKEN, WHOLE):
        for lease_id in sorted(two_jobs.step(step_id).lease_ids):
            two_jobs.core.state.leases[lease_id].stored = False
            two_jobs.core.state.unstored.append(lease_id)
    sound = CoreState.store_attempt

    def broken(state: CoreState, lease: Any, *rest: Any, **named: Any) -> None:
        if lease.step_id == BROKEN:
            raise ZeroDivisionError("planted")
        sound(state, lease, *rest, **named)

    monkeypatch.setattr(CoreState, "store_attempt", broken)
    two_jobs.now_s += 60
    raised_by(two_jobs, commands.Tick(60))
    assert not two_jobs.core.state.nodes and two_jobs.step(WHOLE).ready.size == 2


def test_the_next_moment_is_known_though_one_step_raises(two_jobs: CoreDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    sound_s = two_jobs.core.next_due(two_jobs.now)
    plant(monkeypatch, ticks, "placement_due_s")
    assert two_jobs.core.next_due(two_jobs.now) < two_jobs.now_s, "the tick that pauses the job is due"
    raised_by(two_jobs, commands.Tick(60))
    two_jobs.do(commands.PauseJob(JobKey(1), "a bug"))
    assert two_jobs.core.next_due(two_jobs.now) == sound_s


def test_what_was_raised_at_a_step_is_told_with_what_ends_the_command(
    two_jobs: CoreDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def beat(state: CoreState, command: Any, now: Any) -> None:
        with state.contained(two_jobs.step(BROKEN)):
            raise ZeroDivisionError("planted")
        raise LookupError

    monkeypatch.setitem(core.HANDLERS, commands.HeartbeatNode, beat)
    with pytest.raises(StepsRaised) as caught:
        two_jobs.beat()
    assert list(map(type, caught.value.errors.values())) == [ZeroDivisionError, LookupError]
    assert caught.value.reply is commands.UNANSWERED
    monkeypatch.undo()
    two_jobs.beat()


def test_a_job_that_cannot_be_taken_up_keeps_no_master_from_starting(
    two_jobs: CoreDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_jobs.finish_all()
    assert {two_jobs.step(number).state for number in (1, 2)} == {StepState.CONCATENATING}
    plant(monkeypatch, recovery, "conclude_step")
    two_jobs.core = core.Core(two_jobs.tables.next_incarnation(), 99, two_jobs.timing)
    two_jobs.core.load(two_jobs.tables.load(), settings_of, two_jobs.now)
    assert fx.ConcatenateRows(WHOLE, 1) in two_jobs.core.take_effects()
    raised_by(two_jobs, commands.Tick())


def too_many_succeeded(driver: CoreDriver) -> None:
    driver.step(BROKEN).counters.succeeded = 50


def fewer_than_none(driver: CoreDriver) -> None:
    driver.step(BROKEN).counters.items_failed = -3


def not_held(driver: CoreDriver) -> None:
    driver.node().held[BROKEN] = 0


def a_lease_too_many(driver: CoreDriver) -> None:
    driver.step(BROKEN).lease_ids.add(LeaseId(12345))


def uneven_tables(driver: CoreDriver) -> None:
    driver.step(BROKEN).mini_batches.item_counts.append(1)


def half_ended(driver: CoreDriver) -> None:
    too_many_succeeded(driver)
    with pytest.raises(InvariantBroken):
        driver.core.handle(commands.FailStep(BROKEN, "it cannot go on"), driver.now)
    assert driver.step(BROKEN).state is StepState.FAILED


@pytest.mark.parametrize(
    "breaks", [too_many_succeeded, fewer_than_none, not_held, a_lease_too_many, uneven_tables, half_ended]
)
def test_a_job_whose_books_are_broken_can_be_cancelled(
    two_jobs: CoreDriver, breaks: Callable[[CoreDriver], None]
) -> None:
    driver = two_jobs
    breaks(driver)
    driver.core.handle(commands.PauseJob(JobKey(1), "a bug"), driver.now)
    with contextlib.suppress(StepsRaised):
        driver.core.handle(commands.CancelJob("a"), driver.now)
    invariants.check(driver.core.state)
    assert driver.job(1).state is JobState.CANCELLING
    assert {lease.step_id for lease in driver.held()} == {WHOLE}
    driver.group(commands.ConfirmStepEnd(N1, driver.node().stream, BROKEN))
    assert driver.job(1).state is JobState.CANCELLED
    driver.step(BROKEN).counters.check()
    driver.finish_all()
    assert driver.step(WHOLE).state is StepState.CONCATENATING
