"""What was planned and what was read must agree; where it does not, the step says so and fails, whatever it allows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from core_driver import CoreDriver, checkpoint, completion, records
from windrow_master.core import commands
from windrow_master.core import effects as fx
from windrow_master.core.counters import Counters
from windrow_master.core.ids import StepId
from windrow_master.core.settings import StepSettings
from windrow_master.core.state import Step
from windrow_master.core.states import Cause, MiniBatchState, StepState


@pytest.mark.parametrize("read", [3, 5, 1, 0])
def test_another_number_of_items_than_planned_is_a_misread_input(read: int) -> None:
    driver = CoreDriver()
    step = driver.running([4, 4], max_retries=3)
    driver.join()
    first, second = driver.held()
    driver.complete("n1", completion(first.lease_id, items=4))
    assert step.state == StepState.RUNNING
    driver.complete("n1", completion(second.lease_id, items=read, results=read))
    # At once, and although no threshold is set: what else was cut there may be wrong, too.
    assert (step.state, step.error_category) == (StepState.FAILED, "SystemError")
    told = "1 item" if read == 1 else f"{read} items"
    assert f"4 items of this mini-batch were planned, but the worker has read {told}" in step.message
    assert "mini-batch 1" in step.message and "Run the job again as a new one" in step.message
    assert step.counters.failed_attempts == {str(int(Cause.INPUT_MISREAD)): 1}
    assert (step.counters.succeeded, step.counters.failed, step.counters.rows) == (1, 1, 4)
    assert driver.tables.mini_batches[1][1].state == MiniBatchState.FAILED
    assert not any(isinstance(effect, fx.ConcatenateRows) for effect in driver.effects)


def test_where_only_loading_tells_any_number_is_right() -> None:
    driver = CoreDriver()
    step = driver.running([0, 0])
    driver.join()
    first, second = driver.held()
    driver.complete("n1", completion(first.lease_id, items=7), completion(second.lease_id, items=1))
    assert step.state == StepState.CONCATENATING and step.counters.items_ok == 8


def test_a_misread_that_a_worker_tells_fails_the_step() -> None:
    driver = CoreDriver()
    step = driver.running([0, 1], max_retries=3)
    driver.join()
    lease, _ = driver.held()
    driver.fail("n1", lease, Cause.INPUT_MISREAD)
    assert step.state == StepState.FAILED and "input_misread" in step.message
    # What a new master reads of it is the same.
    driver.assert_reload_equals_live()


def test_a_retry_gives_a_misread_step_a_new_chance() -> None:
    driver = CoreDriver()
    driver.running([1])
    driver.join()
    driver.fail("n1", driver.held()[0], Cause.INPUT_MISREAD)
    driver.retry()
    step = driver.step()
    driver.restart()
    driver.join(incarnation="b")
    driver.do(commands.StartStep(StepId(1), b"{}"))
    driver.finish_all()
    assert driver.step().state == StepState.CONCATENATING, step.message


PLANTED: dict[str, Callable[[Step], None]] = {
    "succeeded": lambda step: setattr(step.counters, "succeeded", 2),
    "planned": lambda step: setattr(step.counters, "planned", 1),
    "items_total": lambda step: setattr(step.counters, "items_total", 5),
    "items_ok": lambda step: setattr(step.counters, "items_ok", 1),
    "item_counts": lambda step: step.mini_batches.item_counts.__setitem__(0, 3),
}


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("planted", PLANTED)
def test_numbers_that_do_not_agree_at_the_end_fail_the_step(
    planted: str, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is looked at with each change is another net, and would hold some of these up before.
    monkeypatch.setattr(Counters, "check", lambda _: None)
    driver = CoreDriver()
    step = driver.running([2, 2] if known else [2, 0])
    driver.join()
    first, second = driver.held()
    driver.complete("n1", completion(first.lease_id, items=2))
    PLANTED[planted](step)
    driver.complete("n1", completion(second.lease_id, items=2))
    assert (step.state, step.error_category) == (StepState.FAILED, "SystemError")
    assert "does not agree" in step.message and "Run the job again as a new one" in step.message
    assert not any(isinstance(effect, fx.ConcatenateRows) for effect in driver.effects)


@pytest.mark.parametrize(("mini_batches", "items"), [(2, 5), (2, 3), (3, 4)])
def test_a_plan_that_arrived_otherwise_than_it_was_made_fails_the_step(mini_batches: int, items: int) -> None:
    driver = CoreDriver()
    driver.submit(StepSettings("step"))
    end = checkpoint(mini_batches, True, items=items)
    driver.do(commands.PlanGroup(StepId(1), None, end, 0, records(0, [2, 2]), True, b"{}"))
    driver.join()
    driver.finish_all()
    step = driver.step()
    assert step.state == StepState.FAILED
    what, number = ("items", items) if mini_batches == 2 else ("mini-batches", mini_batches)
    assert f"the number of its {what} does not agree: {number} by the planner" in step.message
