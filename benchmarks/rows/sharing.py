"""Decisions about shares, and a core with many nodes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.measurement import Contender, Metric, Outcome, Row
from benchmarks.programs import ROOT


def _cluster(nodes: int, jobs: int, slots: int, queued: int = 0) -> Callable[[Path], Outcome]:
    def run(scratch: Path) -> Outcome:
        command = [sys.executable, "-m", "benchmarks.sharing"]
        command += ["--nodes", str(nodes), "--jobs", str(jobs), "--slots", str(slots)]
        command += ["--queued", str(queued), "--kinds", "32"]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
        return Outcome(json.loads(done.stdout))

    return run


def _contenders(folder: Path) -> list[Contender]:
    return [
        Contender("Windrow, 1,000 nodes with 8 slots, 200 jobs", _cluster(1_000, 200, 8)),
        Contender("Windrow, the same with 1,000 jobs queued, of 32 kinds", _cluster(1_000, 200, 8, 1_000)),
        Contender("Windrow, 2,000 nodes with 4 slots, 20 jobs", _cluster(2_000, 20, 4)),
    ]


ROW = Row(
    key="sharing",
    title="Shares of simulated nodes, mini-batches of 10 s: processor time of the core, without calls and disk",
    aim="a decision ≤ 5 ms for 1,000 nodes and 200 jobs; less than one processor for 2,000 nodes",
    metrics=[
        Metric("decision", "a decision (median)", "ms"),
        Metric("longest", "the longest one", "ms"),
        Metric("core", "processors used by the core", ""),
        Metric("admission", "of that, admission of jobs", "", 3),
        Metric("round", "a look at what queued jobs would get (median)", "ms"),
        Metric("rate", "mini-batches", "/s", 0),
    ],
    contenders=_contenders,
    runs=3,
)
