"""Rewrites the CSV with concurrent.futures.ProcessPoolExecutor."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor

from benchmarks.peers import csv_ranges
from benchmarks.work import batch_work


def main() -> None:
    options = csv_ranges.parse()
    with ProcessPoolExecutor(options.workers, initializer=batch_work.stamp_into, initargs=(options.stamps,)) as pool:
        csv_ranges.rewrite(pool.map, options)


if __name__ == "__main__":
    main()
