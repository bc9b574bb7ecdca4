"""A folder of 1,000,000 files: the time until the first mini-batch runs, beside a plain sorted listing."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.measurement import Contender, Metric, Outcome, Row
from benchmarks.programs import peer
from benchmarks.rows.file_work import make_files, million_files
from benchmarks.windrow_job import RunningJob, files_job

BATCH = 1000


def _first_run(folder: Path, run: Path, count: int) -> float:
    job = files_job(run, work="noop", input_path=folder, mini_batch_size=min(BATCH, count))
    with RunningJob(job) as running:
        running.wait_until("the first run()", lambda: any(job.stamps.glob("first-*")))
        return (
            min(int(path.read_text() or time.time_ns()) for path in job.stamps.glob("first-*")) - running.start_ns
        ) / 1e9


def _contenders(folder: Path) -> list[Contender]:
    make_files(folder / "one", 1)
    files, names = million_files(folder)

    def windrow(run: Path) -> Outcome:
        (run / "one").mkdir()
        (run / "million").mkdir()
        cold = _first_run(folder / "one", run / "one", 1)
        first = _first_run(files, run / "million", len(names))
        return Outcome({"beyond": first - cold, "first_run": first})

    def listing(run: Path) -> Outcome:
        start = time.perf_counter()
        with os.scandir(files) as entries:
            paths = sorted(entry.path for entry in entries)
        assert len(paths) == len(names)
        return Outcome({"beyond": time.perf_counter() - start})

    def other(module: str) -> Callable[[Path], Outcome]:
        def run_peer(run: Path) -> Outcome:
            firsts = []
            for name, source, size in (("one", folder / "one", 1), ("million", files, BATCH)):
                (run / name).mkdir()
                options: dict[str, object] = {"work": "noop", "folder": source, "batch-size": size}
                firsts.append(peer(module, run / name, options, optional=False).first_run or 0.0)
            return Outcome({"beyond": firsts[1] - firsts[0], "first_run": firsts[1]})

        return run_peer

    return [
        Contender("Windrow", windrow),
        Contender("sorted os.scandir, nothing else", listing),
        Contender("multiprocessing.Pool", other("pool")),
        Contender("concurrent.futures", other("futures")),
    ]


ROW = Row(
    key="million_files",
    title="A folder of 1,000,000 files, until the first run()",
    aim="Windrow ≤ 1.5 × the plain sorted listing, beyond cold start",
    metrics=[Metric("beyond", "beyond cold start", "s"), Metric("first_run", "from the command", "s")],
    contenders=_contenders,
    runs=3,
)
