"""200 mini-batches burn 50 ms of processor time each, on two workers: the share of two processors that the work
gets."""

from __future__ import annotations

from pathlib import Path

from benchmarks.measurement import Contender, Metric, Row
from benchmarks.programs import Timeline
from benchmarks.rows.file_work import contenders, make_files
from benchmarks.work.batch_work import SPIN_S

COUNT = 200
WORKERS = 2


def _reading(times: Timeline) -> dict[str, float]:
    assert times.after_start is not None
    return {"efficiency": 100 * COUNT * SPIN_S / WORKERS / times.after_start, "whole": times.end}


def _contenders(folder: Path) -> list[Contender]:
    names = make_files(folder / "input", COUNT)
    return contenders(folder / "input", names, work="spin", batch_size=1, reading=_reading)


ROW = Row(
    key="efficiency",
    title="200 mini-batches of 50 ms of processor time, two workers",
    aim="Windrow ≥ 97.5 %",
    metrics=[
        Metric("efficiency", "efficiency (first run() to output)", "%", 1, more_is_better=True),
        Metric("whole", "whole command", "s"),
    ],
    contenders=_contenders,
)
