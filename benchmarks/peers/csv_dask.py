"""Rewrites the CSV with Dask's DataFrame, on a local cluster of single-threaded processes."""

from __future__ import annotations

import os

import dask
import dask.dataframe as dd
from dask.distributed import Client, LocalCluster

from benchmarks.peers import csv_ranges
from benchmarks.work import batch_work


def main() -> None:
    options = csv_ranges.parse()
    dask.config.set({"dataframe.convert-string": False})
    with (
        LocalCluster(n_workers=options.workers, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster),
    ):
        batch_work.stamp_into(options.stamps)
        batch_work.stamped(list, [])
        table = dd.read_csv(options.input, blocksize=csv_ranges.RANGE_BYTES)
        table.to_csv(options.output + ".partial", single_file=True, index=False)
        os.rename(options.output + ".partial", options.output)


if __name__ == "__main__":
    main()
