"""Rewrites the CSV with multiprocessing.Pool."""

from __future__ import annotations

import multiprocessing

from benchmarks.peers import csv_ranges
from benchmarks.work import batch_work


def main() -> None:
    options = csv_ranges.parse()
    with multiprocessing.Pool(options.workers, batch_work.stamp_into, (options.stamps,)) as pool:
        csv_ranges.rewrite(pool.imap, options)


if __name__ == "__main__":
    main()
