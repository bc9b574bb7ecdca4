"""The live display: it fits every terminal, and a pipeline of hundreds of steps does not flood one."""

from __future__ import annotations

import re

import pytest
from rich.console import Console
from windrow.cli.display.live_frame import Lines, live_frame, sums_of
from windrow.sdk.job import ItemCounts, Job, JobState, MiniBatchCounts, Step


def step(name: str, state: str, done: int = 3) -> Step:
    return Step(
        name,
        state,
        planned=True,
        mini_batches=MiniBatchCounts(10, 10 - done, 0, done),
        items=ItemCounts(1000, 100 * done),
    )


def drawn(job: Job, width: int, height: int, waits: str = "") -> list[str]:
    console = Console(width=width, height=height, record=True, file=None, quiet=True, force_terminal=True)
    frame = live_frame(job, Lines("12 s, 30 s to go, 4.2 items/s", "3 items failed", waits), width, height)
    lines = console.render_lines(frame, pad=False)
    return ["".join(segment.text for segment in line).rstrip() for line in lines]


def pipeline(*states: str) -> Job:
    steps = [step(f"s{number:03d}", state) for number, state in enumerate(states)]
    return Job("j", "j", JobState.RUNNING, steps=tuple(steps))


@pytest.mark.parametrize("width", [40, 80, 120, 200])
@pytest.mark.parametrize("height", [10, 24, 60])
@pytest.mark.parametrize("count", [1, 5, 640])
def test_a_frame_fits_the_terminal(width: int, height: int, count: int) -> None:
    job = pipeline(*["completed"] * (count // 2), *["running"] * (count - count // 2))
    lines = drawn(job, width, height, "s001: " + "a node failed: " * 50)
    assert len(lines) < height
    assert max(map(len, lines)) <= width
    bars = [len(bar) for line in lines for bar in re.findall(r"[━╸╺]+", line)]
    assert len(bars) == len(lines) - 3
    assert min(bars) >= (12 if width >= 80 else 1)


def test_of_hundreds_of_steps_those_at_work_are_shown_and_the_others_summed() -> None:
    job = pipeline(*["completed"] * 200, "running", "failed", "concatenating", *["waiting"] * 437)
    lines = drawn(job, 120, 24)
    assert [line.split()[0] for line in lines[:3]] == ["s200", "s201", "s202"]
    assert re.match(r"and 637 more +[━╸╺]+ +200 completed, 437 waiting +running$", lines[3])
    assert lines[4:] == ["12 s, 30 s to go, 4.2 items/s", "3 items failed"]
    many = drawn(pipeline(*["running"] * 640), 120, 24)
    assert len(many) == 12 + 2
    assert re.match(r"and 629 more +[━╸╺]+ +629 running +running$", many[11])


def test_a_few_steps_are_all_shown_in_their_order() -> None:
    lines = drawn(pipeline("completed", "running", "waiting"), 120, 24)
    assert [line.split()[0] for line in lines[:3]] == ["s000", "s001", "s002"]
    assert re.match(r"s001 +[━╸╺]+ +300/1,000 items, 3/10 mini-batches +running$", lines[1])


def test_what_is_waited_for_is_one_line() -> None:
    lines = drawn(pipeline("running"), 80, 24, "init() for 12 s on 4 workers")
    assert lines[1:] == ["12 s, 30 s to go, 4.2 items/s", "init() for 12 s on 4 workers", "3 items failed"]


def test_steps_are_summed_by_state() -> None:
    steps = (step("a", "completed"), step("b", "completed")._replace(reused_from="old"), step("c", "waiting"))
    assert sums_of(steps) == "1 completed, 1 reused, 1 waiting"
