"""Steps that are skipped: by a condition, by the end of their loop, or because they read an output of such a step."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping

import pytest
from core_driver import CoreDriver
from hypothesis import given, settings
from hypothesis import strategies as st
from windrow_master.core import commands
from windrow_master.core import effects as fx
from windrow_master.core.settings import Iteration, RunIf, StepSettings
from windrow_master.core.states import JobState, StepState
from windrow_master.store.records import Reopening

COMMAND = {"append_row": False, "without_input": True, "is_command": True}


def step(name: str, *depends_on: str, reads: tuple[str, ...] = (), **more: object) -> StepSettings:
    return StepSettings(name, depends_on=tuple(dict.fromkeys((*depends_on, *reads))), reads=reads, **COMMAND, **more)  # type: ignore[arg-type]


def condition(wanted: bool, *, name: str = "if", of: str = "check") -> tuple[RunIf, ...]:
    return (RunIf(name, wanted, of, "go"),)


def loop(most: int) -> list[StepSettings]:
    """The iterations of a loop, `body1` to `body<most>`."""
    found = [step("body1")]
    for number in range(2, most + 1):
        before = f"body{number - 1}"
        again = (Iteration("loop", number, before, before, "go"),)
        found.append(step(f"body{number}", reads=(before,), iterations=again))
    return found


BRANCHES = (
    step("check"),
    step("yes", "check", run_if=condition(True)),
    step("no", "check", run_if=condition(False)),
    step("after_no", reads=("no",)),
    step("waits_for_no", "no"),
    step("after_yes", reads=("yes",)),
)


def states(driver: CoreDriver) -> dict[str, StepState]:
    return {one.settings.name: one.state for one in driver.job().steps}


def skipped(driver: CoreDriver) -> set[str]:
    return {name for name, state in states(driver).items() if state == StepState.SKIPPED}


def end(driver: CoreDriver, name: str, values: Mapping[str, str] | None = None) -> None:
    """Let a step that is RUNNING run and end. `values`: what its outputs hold."""
    (one,) = (one for one in driver.job().steps if one.settings.name == name)
    assert one.state == StepState.RUNNING, f"{name} is {one.state.name}"
    driver.plan(one.step_id, [0])
    driver.join(step_id=one.step_id) if driver.known("n1") is None else driver.capacity("n1", 9, step_id=one.step_id)
    driver.finish_all()
    paths = {"inputs": {}, "outputs": {"go": f"/{name}"}, "values": values or {}}
    driver.do(commands.FinishStep(one.step_id, driver.job().generation, "", json.dumps(paths).encode()))
    driver.assert_reload_equals_live()


@pytest.mark.parametrize("restarts", [False, True], ids=["", "over a restart of the master"])
def test_one_block_runs_and_what_reads_the_other_is_skipped_too(restarts: bool) -> None:
    driver = CoreDriver()
    driver.submit(*BRANCHES)
    assert states(driver)["yes"] == StepState.WAITING
    end(driver, "check", {"go": "True"})
    if restarts:
        driver.restart()
        driver.open()
    assert skipped(driver) == {"no", "after_no"}
    assert states(driver)["waits_for_no"] == states(driver)["yes"] == StepState.RUNNING
    told = {one.settings.name: one.message for one in driver.job().steps}
    assert told["no"] == "The condition of 'if' is true: output 'go' of step 'check'."
    assert told["after_no"] == "Step 'no', whose output it reads, was skipped."
    for name in ("yes", "waits_for_no", "after_yes"):
        end(driver, name)
    assert driver.job().state == JobState.COMPLETED
    assert all(one.end_time for one in driver.job().steps)
    assert [reason.code for reason in driver.do(commands.ExplainJob("job"))].count("SKIPPED") == 2


def test_a_condition_that_is_known_skips_steps_when_the_job_is_submitted() -> None:
    driver = CoreDriver()
    driver.submit(step("never", run_if=(RunIf("if", True),)), step("then", reads=("never",)))
    assert skipped(driver) == {"never", "then"}
    assert driver.job().state == JobState.COMPLETED
    assert driver.sent(fx.PrepareStep) == [] and driver.sent(fx.NotifyJob)[-1].ended
    assert driver.step().message == "The condition of 'if' is false, as the job file says."


def test_a_condition_of_a_skipped_step_skips_both_blocks() -> None:
    driver = CoreDriver()
    driver.submit(
        step("check", run_if=(RunIf("outer", True),)),
        step("yes", "check", run_if=condition(True)),
        step("no", "check", run_if=condition(False)),
    )
    assert skipped(driver) == {"check", "yes", "no"}


@pytest.mark.parametrize("runs", [1, 2, 4])
def test_a_loop_ends_when_its_condition_is_false_and_leaves_the_outputs_of_its_last_iteration(runs: int) -> None:
    driver = CoreDriver()
    driver.submit(*loop(4), step("last", reads=("body4",)))
    for number in range(1, runs + 1):
        assert states(driver)["last"] == StepState.WAITING
        end(driver, f"body{number}", {"go": str(number < runs)})
    assert skipped(driver) == {f"body{number}" for number in range(runs + 1, 5)}
    assert states(driver)["last"] == StepState.RUNNING
    last = driver.step(4)
    assert json.loads(last.paths)["outputs"] == {"go": f"/body{runs}"}
    if runs < 4:
        iterations = "1 iteration" if runs == 1 else f"{runs} iterations"
        assert last.message == f"Loop 'loop' has ended after {iterations}: output 'go' of step 'body{runs}' is false."
    end(driver, "last")
    assert driver.job().state == JobState.COMPLETED


def test_no_iteration_runs_of_a_loop_that_is_skipped() -> None:
    driver = CoreDriver()
    first, *others = loop(3)
    never = (RunIf("if", True),)
    driver.submit(
        *(StepSettings(**{**_fields(one), "run_if": never}) for one in (first, *others)), step("last", reads=("body3",))
    )
    assert skipped(driver) == {"body1", "body2", "body3", "last"}
    assert driver.job().state == JobState.COMPLETED


def test_in_a_loop_the_blocks_are_chosen_anew_and_the_last_choice_counts() -> None:
    """`small` runs in the first iteration, `big` in the second, which is the last."""
    again = (Iteration("loop", 2, "check", "check", "more"),)
    small, big = _of(again, "small"), _of(again, "big")
    driver = CoreDriver()
    driver.submit(
        step("check"),
        step("small", "check", run_if=condition(False)),
        step("big", "check", run_if=condition(True)),
        step("check2", "check", iterations=again),
        step("small2", "check2", "check", "small", run_if=condition(False, of="check2"), iterations=small),
        step("big2", "check2", "check", "big", run_if=condition(True, of="check2"), iterations=big),
        step("reads_small", reads=("small2",)),
        step("reads_big", reads=("big2",)),
    )
    end(driver, "check", {"go": "False", "more": "True"})
    end(driver, "small")
    end(driver, "check2", {"go": "True", "more": "False"})
    assert skipped(driver) == {"big", "small2", "reads_small"}
    end(driver, "big2")
    end(driver, "reads_big")
    assert driver.job().state == JobState.COMPLETED


def test_a_condition_that_failed_cancels_both_blocks() -> None:
    driver = CoreDriver()
    driver.submit(*BRANCHES)
    driver.do(commands.FailStep(driver.step().step_id, "Output 'go' holds 'maybe'."))
    assert set(states(driver).values()) == {StepState.FAILED, StepState.CANCELLED}
    driver.retry(**{one.name: Reopening.ANEW for one in BRANCHES[1:]})
    end(driver, "check", {"go": "False"})
    assert "yes" in skipped(driver) and driver.job().state == JobState.RUNNING


def test_a_value_that_is_not_known_pauses_the_job() -> None:
    driver = CoreDriver()
    driver.submit(*BRANCHES)
    driver.plan(1, [0])
    driver.join()
    driver.finish_all()
    with pytest.raises(AssertionError, match="its output 'go' is None"):
        driver.do(commands.FinishStep(driver.step().step_id, 1))


@settings(deadline=None)
@given(st.lists(st.booleans(), min_size=4, max_size=4), st.integers(0, 40))
def test_however_often_the_master_dies_each_step_runs_or_is_skipped_as_the_conditions_say(
    values: list[bool], dies_at: int
) -> None:
    driver = CoreDriver()
    inner = (*condition(values[0]), RunIf("inner", True, "second", "go"))
    driver.submit(
        step("check"),
        step("second", reads=("check",)),
        step("both", "check", "second", run_if=inner),
        *loop(3),
        step("joined", "both", reads=("body3",)),
    )
    wanted = {"check": values[1], "second": values[2], "body1": values[3], "body2": values[0], "body3": True}
    for turn in itertools.count():
        running = [one.settings.name for one in driver.job().steps if one.state == StepState.RUNNING]
        if driver.job().state == JobState.COMPLETED:
            break
        if turn == dies_at % 7:
            driver.restart()
            driver.open()
        end(driver, running[turn % len(running)], {"go": str(wanted.get(running[turn % len(running)], True))})
    expected = set()
    if not (values[1] is values[0] and values[2]):
        expected.add("both")
    if not values[3]:
        expected |= {"body2", "body3"}
    elif not values[0]:
        expected.add("body3")
    assert skipped(driver) == expected


def _of(again: tuple[Iteration, ...], follows: str) -> tuple[Iteration, ...]:
    return tuple(one._replace(follows=follows) for one in again)


def _fields(settings: StepSettings) -> dict[str, object]:
    return {name: getattr(settings, name) for name in StepSettings._fields}
