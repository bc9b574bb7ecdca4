"""Rows of contenders. They run in turn, so that all meet the same changes in the load of the machine."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Metric:
    """One column of a table."""

    key: str
    title: str
    unit: str
    decimals: int = 2
    more_is_better: bool = False


@dataclass(frozen=True)
class Outcome:
    """The result of one run of one contender: values by metric key, some of which may be missing, and a note for the
    table."""

    values: dict[str, float]
    note: str = ""


@dataclass(frozen=True)
class Contender:
    """One program that does the work.

    `run` gets an empty folder of its own. `missing`: the module that it needs and that is not installed; None: it has
    all.
    """

    name: str
    run: Callable[[Path], Outcome]
    missing: str | None = None


@dataclass(frozen=True)
class Row:
    """One row of the table of aims: several contenders do the same work. The first metric is the one that is
    compared."""

    key: str
    title: str
    aim: str
    metrics: list[Metric]
    contenders: Callable[[Path], list[Contender]]
    """Prepares the input in a folder, which is kept for the whole row, and returns the contenders."""
    runs: int | None = None
    """The most runs, for rows that take minutes; None: no limit."""


@dataclass
class Line:
    """A contender's line in a table: medians over its runs."""

    name: str
    medians: dict[str, float] = field(default_factory=dict)
    spread: tuple[float, float] | None = None
    """The smallest and largest value of the compared metric."""
    note: str = ""


@dataclass(frozen=True)
class Table:
    """A measured row. Not a table of data."""

    row: Row
    lines: list[Line]
    runs: int


def measure(row: Row, runs: int, scratch: Path, *, peers: bool = True) -> Table:
    """Run all contenders in turn, `runs` times, each in a folder of its own. `peers` False: Windrow only."""
    folder = scratch / row.key
    folder.mkdir()
    contenders = [one for one in row.contenders(folder) if peers or one.name.startswith("Windrow")]
    runs = min(runs, row.runs or runs)
    outcomes: dict[str, list[Outcome]] = {contender.name: [] for contender in contenders}
    for number in range(runs):
        for contender in contenders:
            if contender.missing:
                outcomes[contender.name] = [Outcome({}, f"skipped: {contender.missing} is not installed")]
                continue
            print(f"  {row.key}: {contender.name}, run {number + 1} of {runs}", file=sys.stderr, flush=True)
            outcomes[contender.name].append(contender.run(_fresh(folder, contender.name, number)))
    return Table(row, [_line(row, name, done) for name, done in outcomes.items()], runs)


def _fresh(folder: Path, name: str, number: int) -> Path:
    slug = "".join(char if char.isalnum() else "-" for char in name.lower())
    fresh = folder / f"run-{slug}-{number}"
    fresh.mkdir()
    return fresh


def _line(row: Row, name: str, outcomes: list[Outcome]) -> Line:
    line = Line(name, note="; ".join(dict.fromkeys(outcome.note for outcome in outcomes if outcome.note)))
    for metric in row.metrics:
        values = [outcome.values[metric.key] for outcome in outcomes if metric.key in outcome.values]
        if values:
            line.medians[metric.key] = statistics.median(values)
        if values and metric is row.metrics[0]:
            line.spread = (min(values), max(values))
    return line
