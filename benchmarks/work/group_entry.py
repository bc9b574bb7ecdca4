"""Windrow's entry script for groups: one line a group, its key, rows and sum."""

from __future__ import annotations

import argparse
import typing

import batch_work

if typing.TYPE_CHECKING:
    import pandas as pd


def init() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--stamps", required=True)
    args, _ = parser.parse_known_args()
    batch_work.stamp_into(args.stamps)


def run(mini_batch: pd.DataFrame, context: typing.Any) -> list[str]:
    batch_work.stamped(list, [])
    return [f"{context.partition_key_value['key']},{len(mini_batch)},{mini_batch['amount'].sum()}"]
