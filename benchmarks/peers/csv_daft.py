"""Rewrites the CSV with Daft: its own reader and writer, no pandas, a folder of files as output."""

from __future__ import annotations

import os

import daft

from benchmarks.peers import csv_ranges
from benchmarks.work import batch_work


def main() -> None:
    options = csv_ranges.parse()
    batch_work.stamp_into(options.stamps)
    batch_work.stamped(list, [])
    daft.read_csv(options.input).write_csv(options.output + ".partial")
    os.rename(options.output + ".partial", options.output)


if __name__ == "__main__":
    main()
