"""Counts the rows of a CSV, a DataFrame for each range of 10 MiB: `--by pool`, `--by dask`."""

from __future__ import annotations

import argparse
import multiprocessing
import os
from collections.abc import Iterable

import pandas as pd

from benchmarks.peers import csv_ranges
from benchmarks.work import batch_work


def count(part: csv_ranges.CsvRange) -> int:
    batch_work.stamped(list, [])
    return len(csv_ranges.frame(part))


def by_pool(options: argparse.Namespace) -> Iterable[int]:
    with multiprocessing.Pool(options.workers, batch_work.stamp_into, (options.stamps,)) as pool:
        yield from pool.imap(count, csv_ranges.ranges(options.input))


def by_dask(options: argparse.Namespace) -> Iterable[int]:
    import dask
    import dask.dataframe as dd
    from dask.distributed import Client, LocalCluster

    stamps = options.stamps

    def rows(frame: pd.DataFrame) -> int:
        batch_work.stamp_into(stamps)
        batch_work.stamped(list, [])
        return len(frame)

    dask.config.set({"dataframe.convert-string": False})
    with (
        LocalCluster(n_workers=options.workers, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster),
    ):
        table = dd.read_csv(options.input, blocksize=csv_ranges.RANGE_BYTES)
        yield from table.map_partitions(rows, meta=("rows", int)).compute()


BY = {"pool": by_pool, "dask": by_dask}


def main() -> None:
    options = csv_ranges.parse(BY)
    with open(options.output + ".partial", "w") as file:
        file.writelines(f"{rows}\n" for rows in BY[options.by](options))
    os.rename(options.output + ".partial", options.output)


if __name__ == "__main__":
    main()
