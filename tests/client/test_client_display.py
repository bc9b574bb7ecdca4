"""What the display of a run says: what it waits for, which steps it shows, whose times and rates."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from windrow.cli.display.live import steps_shown
from windrow.cli.display.plain import PlainDisplay
from windrow.sdk.figures import Figures, age_s
from windrow.sdk.job import Job, JobState, MiniBatchCounts, Step, StepReason
from windrow.sdk.waiting import waiting_line

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


def step(name: str = "score", state: str = "running", number: int = 1, **more: object) -> Step:
    return Step(name, state, step_id=number, **more)  # type: ignore[arg-type]


def job(*steps: Step, **more: object) -> Job:
    return Job("j", "j", JobState.RUNNING, steps=steps or (step(),), **more)  # type: ignore[arg-type]


def test_steps_that_wait_for_the_same_are_counted_where_there_are_several() -> None:
    steps = [step(f"s{number}", number=number) for number in range(6)]
    reasons = [StepReason(one.name, "DIVIDING_INPUT", "", "listing the input for 3 s") for one in steps]
    reasons[1] = StepReason("s1", "WORKERS_STARTING", "", "init() for 12 s on 2 workers")
    assert waiting_line(job(*steps), reasons) == "5 steps: listing the input for 3 s; s1: init() for 12 s on 2 workers"
    assert waiting_line(job(), [StepReason("score", "X", "", "paused")]) == "paused", "the only step has no name"


def test_steps_that_have_ended_or_wait_for_others_are_not_waited_for() -> None:
    several = job(step("a", "completed"), step("b", "waiting"))
    reasons = [StepReason("a", "COMPLETED", "It is done."), StepReason("b", "WAITS_FOR_STEPS", "It reads", "waits")]
    assert waiting_line(several, reasons) == ""


def test_many_different_reasons_are_counted() -> None:
    steps = [step(f"s{number}", number=number) for number in range(6)]
    reasons = [StepReason(one.name, f"CODE_{one.name}", "", "why") for one in steps]
    assert waiting_line(job(*steps), reasons) == "s0: why; s1: why; s2: why; 3 more steps"


@given(st.lists(st.sampled_from(["waiting", "running", "concatenating", "completed", "failed"])), st.integers(1, 30))
def test_of_many_steps_those_at_work_are_shown(states: list[str], most: int) -> None:
    steps = [step(f"s{number}", state) for number, state in enumerate(states)]
    shown, rest = steps_shown(steps, most)
    assert len(shown) == min(most, len(steps))
    assert shown == [one for one in steps if one in shown], "in the job's order"
    working = {"running", "concatenating"}
    hidden = [one for one in steps if one not in shown]
    if any(one.state in working for one in hidden):
        assert all(one.state in working for one in shown)
    assert bool(rest) == bool(hidden)
    if hidden:
        counts = sum(int(word) for word in rest.partition(": ")[2].replace(",", " ").split() if word.isdigit())
        assert counts == len(hidden)


def test_a_job_that_is_joined_later_has_its_own_times_and_rates() -> None:
    begun = step(start_time=NOW - timedelta(seconds=100), mini_batches=MiniBatchCounts(total=100, succeeded=50))
    joined = job(begun._replace(planned=True))
    assert age_s(joined, NOW) == 100.0
    figures = Figures()
    figures.begin(100.0, 5000.0)
    figures.add(joined, 5000.0)
    assert figures.mini_batches_per_s() == 0.5
    assert figures.remaining_s(joined) == 100.0
    assert age_s(job(step()), NOW) == 0.0
    assert age_s(joined._replace(generation=2), NOW) == 0.0, "it was retried, perhaps days later"


def test_plain_lines_repeat_what_it_waits_for_less_and_less_often(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr("windrow.cli.display.plain.time.monotonic", lambda: clock[0])
    display = PlainDisplay()
    display.show(job())
    told = []
    for second in range(600):
        clock[0] = 1000.0 + second
        display.show_fleet([], [StepReason("score", "WORKERS_STARTING", "", f"init() for {second} s")])
        if capsys.readouterr().err:
            told.append(second)
    gaps = [later - earlier for earlier, later in pairwise(told)]
    assert told[0] <= 1
    assert gaps == sorted(gaps) and gaps[0] <= 6 and gaps[-1] == 60
