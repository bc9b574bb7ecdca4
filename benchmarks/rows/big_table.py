"""A CSV of 10 GB divided by size: the time until the first run(), what was read before it, and the memory for the whole
job.

WINDROW_BENCH_GIGABYTES (default 10) makes it smaller.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from benchmarks.measurement import Contender, Metric, Outcome, Row
from benchmarks.programs import ROOT, missing_module, peer_command, timeline
from benchmarks.rows.csv_table import make_csv
from benchmarks.windrow_job import RunningJob, table_job

GIGABYTES = int(os.environ.get("WINDROW_BENCH_GIGABYTES", "10"))
TIMEOUT_S = 3600

PEERS = {"multiprocessing.Pool": ("pool", None), "Dask": ("dask", "dask.dataframe")}


def make_big_csv(path: Path) -> int:
    """Repeat the table of 200 MB under one header. Returns the number of rows."""
    rows = make_csv(path)
    header = len(path.read_bytes()[:1000].partition(b"\n")[0]) + 1
    body = path.stat().st_size - header
    times = GIGABYTES * 1_000_000_000 // body
    with path.open("rb") as source, path.open("ab") as target:
        for _ in range(times - 1):
            source.seek(header)
            left = body
            while left:
                left -= target.write(source.read(min(left, 1 << 24)))
        # The measurement must not wait until all this is on the disk.
        os.fsync(target.fileno())
    return rows * times


def _family(process: psutil.Popen) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return [process, *process.children(recursive=True)]
    return []


def _largest_mb(family: list[psutil.Process]) -> float:
    largest = 0
    for one in family:
        with contextlib.suppress(psutil.Error):
            largest = max(largest, one.memory_info().rss)
    return largest / 1e6


def _read_mb(family: list[psutil.Process]) -> float:
    """Megabytes read by these processes and by those of their children that have ended."""
    read = 0
    for one in family:
        with contextlib.suppress(psutil.Error):
            read += one.io_counters().read_chars
    return read / 1e6


def _counted(output: Path) -> int:
    return sum(int(line) for line in output.read_text().split())


def _contenders(folder: Path) -> list[Contender]:
    source = folder / "input.csv"
    rows = make_big_csv(source)
    gigabytes = source.stat().st_size / 1e9

    def watched(process: psutil.Popen, stamps: Path) -> dict[str, float]:
        """Wait for the end. Look at the processes only after the first run(), because looking takes their time."""
        while process.poll() is None and not any(stamps.glob("first-*")):
            time.sleep(0.01)
        read = _read_mb(_family(process))
        largest = 0.0
        while process.poll() is None:
            largest = max(largest, _largest_mb(_family(process)))
            time.sleep(0.1)
        return {"read": read, "largest": largest}

    def windrow(run: Path) -> Outcome:
        job = table_job(run, input_path=source, mini_batch_size="10mb", give="count")
        with RunningJob(job) as running:
            values = watched(running.process, job.stamps)
            times = running.finish()
        if _counted(job.output) != rows:
            raise RuntimeError(f"{job.output} counts {_counted(job.output)} rows, not {rows}")
        assert times.first_run is not None
        speed = gigabytes * 1000 / times.end
        return Outcome(values | {"first_run": times.first_run, "whole": times.end, "speed": speed})

    def other(by: str, optional: bool) -> Callable[[Path], Outcome]:
        def run_peer(run: Path) -> Outcome:
            command = peer_command("csv_count", run, {"input": source, "by": by}, optional=optional)
            start_ns = time.time_ns()
            process = psutil.Popen(command, cwd=run, env=os.environ | {"PYTHONPATH": str(ROOT)})
            values = watched(process, run / "stamps")
            times = timeline(start_ns, time.time_ns(), process.returncode, run / "stamps", run / "rows.txt", "")
            if times.exit_code != 0 or times.first_run is None:
                return Outcome({}, f"fails: exit {times.exit_code}")
            note = "" if _counted(run / "rows.txt") == rows else "counts differ"
            speed = gigabytes * 1000 / times.end
            return Outcome(values | {"first_run": times.first_run, "whole": times.end, "speed": speed}, note)

        return run_peer

    return [Contender("Windrow", windrow)] + [
        Contender(name, other(by, module is not None), missing_module(module) if module else None)
        for name, (by, module) in PEERS.items()
    ]


ROW = Row(
    key="big_table",
    title=f"A CSV of {GIGABYTES} GB by size, the rows of each DataFrame counted",
    aim="Windrow: first run() ≤ 1 s after the command, no scan before it, memory as for a small table",
    metrics=[
        Metric("first_run", "until the first run()", "s"),
        Metric("read", "read until then, MB", "", 0),
        Metric("whole", "whole command", "s", 1),
        Metric("speed", "speed", "MB/s", 0, more_is_better=True),
        Metric("largest", "largest process", "MB", 0),
    ],
    contenders=_contenders,
    runs=3,
)
