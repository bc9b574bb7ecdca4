"""A table divided by a column of its data: a million groups over ten million rows, one line for each group.

WINDROW_BENCH_GROUPS (default 1,000,000) makes it smaller. There are ten rows for each group on average; the largest
groups have far more.
"""

from __future__ import annotations

import contextlib
import filecmp
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import psutil

from benchmarks.measurement import Contender, Metric, Outcome, Row
from benchmarks.programs import Timeline, missing_module, peer
from benchmarks.windrow_job import RunningJob, partition_job

GROUPS = int(os.environ.get("WINDROW_BENCH_GROUPS", "1000000"))
ROWS = GROUPS * 10
BLOCK_ROWS = 1_000_000
SKEW = 3.0


def make_table(path: Path) -> None:
    """Write text keys: each at least once, low numbers far more often."""
    random = np.random.default_rng(1)
    with path.open("w", newline="") as file:
        file.write("key,amount,note\n")
        for first in range(0, ROWS, BLOCK_ROWS):
            rows = min(BLOCK_ROWS, ROWS - first)
            at = np.arange(first, first + rows)
            skewed = (random.random(rows) ** SKEW * GROUPS).astype(int)
            key = np.where(at < GROUPS, at, skewed)
            block = pd.DataFrame({"key": key, "amount": random.integers(0, 1000, rows), "note": at % 97})
            block["key"] = block["key"].map("k{:07d}".format)
            block["note"] = block["note"].map("note {}".format)
            block.to_csv(file, index=False, header=False)


def _reading(times: Timeline) -> dict[str, float]:
    assert times.first_run is not None
    return {"whole": times.end, "first_run": times.first_run, "groups": GROUPS / times.end}


def _contenders(folder: Path) -> list[Contender]:
    source, expected = folder / "input.csv", folder / "expected.txt"
    make_table(source)
    sums = pd.read_csv(source).groupby("key")["amount"].agg(["size", "sum"])
    expected.write_text("".join(f"{key},{rows},{total}\n" for key, rows, total in sums.itertuples()))

    def windrow(run: Path) -> Outcome:
        job = partition_job(run, input_path=source, key="key")
        peak = 0
        with RunningJob(job) as running:

            def ended() -> bool:
                nonlocal peak
                # Processes may end while they are looked at.
                with contextlib.suppress(psutil.Error):
                    planner = running.roles().get("windrow_master.planning")
                    peak = max(peak, planner.memory_info().rss if planner is not None else 0)
                return running.process.poll() is not None

            while not ended():
                psutil.wait_procs([running.process], timeout=0.2)
            times = running.finish()
        if not filecmp.cmp(expected, job.output, shallow=False):
            raise RuntimeError(f"{job.output} is not what pandas sums")
        return Outcome(_reading(times) | {"planner": peak / 1e6})

    def other(by: str) -> Callable[[Path], Outcome]:
        def run_peer(run: Path) -> Outcome:
            times = peer("group_sums", run, {"input": source, "by": by}, optional=False, timeout_s=1800)
            if times.exit_code != 0:
                return Outcome({}, "fails: " + (times.errors.strip().splitlines() or ["too slow"])[-1][:60])
            same = filecmp.cmp(expected, run / "rows.txt", shallow=False)
            return Outcome(_reading(times), "" if same else "output differs")

        return run_peer

    return [
        Contender("Windrow", windrow),
        Contender("pandas groupby, multiprocessing.Pool", other("pandas")),
        Contender("DuckDB COPY … PARTITION_BY, Pool", other("duckdb"), missing_module("duckdb")),
    ]


ROW = Row(
    key="partitions",
    title=f"{GROUPS:,} groups over {ROWS:,} rows by a column of the data, one line a group",
    aim="Windrow in bounded memory: the planner sorts on disk",
    metrics=[
        Metric("whole", "whole command", "s"),
        Metric("first_run", "until the first run()", "s"),
        Metric("groups", "groups", "/s", 0, more_is_better=True),
        Metric("planner", "planner, at most", "MB", 0),
    ],
    contenders=_contenders,
    runs=1,
)
