"""The time from the start of the command to the first call of the user's function."""

from __future__ import annotations

from pathlib import Path

from benchmarks.measurement import Contender, Metric, Row
from benchmarks.programs import Timeline
from benchmarks.rows.file_work import contenders, make_files


def _reading(times: Timeline) -> dict[str, float]:
    assert times.first_run is not None
    return {"first_run": times.first_run, "whole": times.end}


def _contenders(folder: Path) -> list[Contender]:
    names = make_files(folder / "input", 10)
    return contenders(folder / "input", names, work="noop", batch_size=1, reading=_reading)


ROW = Row(
    key="cold_start",
    title="Cold start: from the command to the first run()",
    aim="Windrow ≤ 0.5 s, stretch 0.35 s",
    metrics=[
        Metric("first_run", "to the first run()", "s", 3),
        Metric("whole", "whole command (10 mini-batches)", "s"),
    ],
    contenders=_contenders,
)
