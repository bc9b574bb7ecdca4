"""A hundred jobs at once on four agents in containers, and one that is as large as all of them."""

from __future__ import annotations

from pathlib import Path

from benchmarks.measurement import Contender, Metric, Row
from benchmarks.rows.fairness import contender


def _contenders(folder: Path) -> list[Contender]:
    return [contender("100 jobs of 100 mini-batches", "many")]


ROW = Row(
    key="many_jobs",
    title="100 jobs at once on four agents in containers, 10,000 mini-batches of 0.1 s in all, and one job of as many",
    aim="at most 5 % longer than the one job; `job list` ≤ 50 ms meanwhile",
    metrics=[
        Metric("longer", "longer by", "%", 1),
        Metric("many", "100 jobs", "s", 1),
        Metric("one", "one job", "s", 1),
        Metric("list", "job list, median", "ms", 1),
        Metric("slowest", "slowest", "ms", 1),
    ],
    contenders=_contenders,
    runs=1,
)
