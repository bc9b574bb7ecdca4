"""Windrow's entry script for the work on files."""

from __future__ import annotations

import argparse

import batch_work

work: batch_work.BatchWork


def init() -> None:
    global work
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--work", required=True)
    parser.add_argument("--stamps", required=True)
    args, _ = parser.parse_known_args()
    batch_work.stamp_into(args.stamps)
    work = batch_work.WORK[args.work]


def run(mini_batch: list[str]) -> list[str]:
    rows: list[str] = batch_work.stamped(work, mini_batch)
    return rows
