"""A CSV of 200 MB goes through DataFrames into a CSV, byte for byte what `DataFrame.to_csv` writes."""

from __future__ import annotations

import filecmp
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.measurement import Contender, Metric, Outcome, Row
from benchmarks.programs import Timeline, missing_module, peer
from benchmarks.windrow_job import table_job

BYTES = 200_000_000
BLOCK_ROWS = 500_000
CITIES = np.array(["Aachen", "Bern", "Cádiz", "Delft", "Évora", "Faro", "Ghent", "Huelva"])


def make_csv(path: Path) -> int:
    """Write integers, floats of all kinds and text with pandas, so that the file is its own result. Returns the number
    of rows."""
    random = np.random.default_rng(1)
    first = 1_000_000
    with path.open("w", newline="") as file:
        while file.tell() < BYTES:
            block = pd.DataFrame(
                {
                    "order": np.arange(first, first + BLOCK_ROWS),
                    "price": random.integers(0, 100_000, BLOCK_ROWS) / 100,
                    "weight": random.integers(0, 50, BLOCK_ROWS).astype(float),
                    "measure": random.normal(0, 1, BLOCK_ROWS).round(9),
                    "city": random.choice(CITIES, BLOCK_ROWS),
                    "code": pd.Series(random.integers(0, 2**32, BLOCK_ROWS)).map("c{:08x}".format),
                }
            )
            block.to_csv(file, index=False, header=first == 1_000_000)
            first += BLOCK_ROWS
    return first - 1_000_000


PEERS = {
    "multiprocessing.Pool": ("csv_pool", None),
    "concurrent.futures": ("csv_futures", None),
    "Dask": ("csv_dask", "dask.dataframe"),
    "Daft": ("csv_daft", "daft"),
}


def _reading(times: Timeline) -> dict[str, float]:
    assert times.after_start is not None
    return {"whole": times.end, "after_start": times.after_start}


def _contenders(folder: Path) -> list[Contender]:
    source = folder / "input.csv"
    make_csv(source)

    def verdict(output: Path) -> str:
        if output.is_dir():
            return "writes a folder of files"
        return "" if filecmp.cmp(source, output, shallow=False) else "output is not byte-equal"

    def windrow(run: Path) -> Outcome:
        job = table_job(run, input_path=source, mini_batch_size="10mb")
        times = job.run()
        if not filecmp.cmp(source, job.output, shallow=False):
            raise RuntimeError(f"{job.output} differs from what DataFrame.to_csv writes")
        job.output.unlink()
        return Outcome(_reading(times))

    def other(module: str, optional: bool) -> Callable[[Path], Outcome]:
        def run_peer(run: Path) -> Outcome:
            times = peer(module, run, {"input": source}, optional=optional)
            if times.exit_code != 0:
                return Outcome({}, "fails: " + (times.errors.strip().splitlines() or ["?"])[-1][:60])
            return Outcome(_reading(times), verdict(run / "rows.txt"))

        return run_peer

    return [Contender("Windrow", windrow)] + [
        Contender(name, other(program, module is not None), missing_module(module) if module else None)
        for name, (program, module) in PEERS.items()
    ]


ROW = Row(
    key="csv",
    title="A CSV of 200 MB → DataFrame → one CSV, byte-equal to DataFrame.to_csv",
    aim="Windrow ≤ 3 s, stretch 2 s",
    metrics=[Metric("after_start", "first run() to output", "s"), Metric("whole", "whole command", "s")],
    contenders=_contenders,
    runs=3,
)
