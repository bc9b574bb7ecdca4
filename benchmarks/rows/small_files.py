"""10,000 files of 1 KB, read ten at a time."""

from __future__ import annotations

import random
from pathlib import Path

from benchmarks.measurement import Contender, Metric, Row
from benchmarks.programs import Timeline
from benchmarks.rows.file_work import contenders, make_files


def _reading(times: Timeline) -> dict[str, float]:
    assert times.after_start is not None
    return {"after_start": times.after_start, "whole": times.end}


def _contenders(folder: Path) -> list[Contender]:
    names = make_files(folder / "input", 10_000, random.Random(1).randbytes(1024))
    return contenders(folder / "input", names, work="read_files", batch_size=10, reading=_reading)


ROW = Row(
    key="small_files",
    title="10,000 files of 1 KB, read in mini-batches of 10",
    aim="Windrow ≤ 0.30 s after start",
    metrics=[Metric("after_start", "first run() to output", "s", 3), Metric("whole", "whole command", "s")],
    contenders=_contenders,
)
