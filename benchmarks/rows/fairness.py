"""Projects that share four agents in containers."""

from __future__ import annotations

from pathlib import Path

from benchmarks import fairness
from benchmarks.compose import compose_command
from benchmarks.measurement import Contender, Metric, Outcome, Row


def contender(name: str, scenario: str) -> Contender:
    """A scenario, as a line of a table."""

    def run(scratch: Path) -> Outcome:
        figures, _ = fairness.play(scenario, scratch)
        if figures.get("charged") or figures.get("others"):
            raise RuntimeError(f"{scenario}: {figures}")
        return Outcome(figures)

    return Contender(f"Windrow, {name}", run, None if compose_command() else "Docker with Compose")


def _contenders(folder: Path) -> list[Contender]:
    return [
        contender("an urgent project, all busy with 1 s", "urgent"),
        contender("a quota of 4 that is owed, all busy with 1 s", "quota"),
        contender("the same, all busy with 120 s", "reclaim"),
        contender("one of two projects was idle", "idle"),
        contender("the first of three priorities", "priorities"),
        contender("ten small jobs beside a huge one", "small_and_huge"),
        contender("weights 2:1 for 60 s", "weights"),
    ]


ROW = Row(
    key="fairness",
    title="Projects share four agents in containers, eight slots",
    aim="first run() of an urgent job ≤ 3 s; a quota after the 30 s of a reclaim, `init()` and a tick; 2:1 ± 5 %",
    metrics=[
        Metric("first", "first run() after submission (of several: the last one's)", "s"),
        Metric("reached", "what it is due, after", "s"),
        Metric("ratio", "worker-seconds, heavy to light", "", 3),
        Metric("busy", "slots busy", "%", 1),
    ],
    contenders=_contenders,
    runs=3,
)
