"""Windrow's entry script for tables: returns the DataFrame that it gets, or one line about it (`--give`)."""

from __future__ import annotations

import argparse
import typing
from collections.abc import Callable

import batch_work

if typing.TYPE_CHECKING:
    import pandas as pd

    Rows: typing.TypeAlias = pd.DataFrame | list[str]
    Answer = Callable[[pd.DataFrame, typing.Any], Rows]


def frame(mini_batch: pd.DataFrame, context: typing.Any) -> Rows:
    return mini_batch


def count(mini_batch: pd.DataFrame, context: typing.Any) -> Rows:
    return [str(len(mini_batch))]


def group(mini_batch: pd.DataFrame, context: typing.Any) -> Rows:
    """The line of a group: key, number of rows, sum."""
    return [f"{context.partition_key_value['key']},{len(mini_batch)},{mini_batch['amount'].sum()}"]


ANSWERS: dict[str, Answer] = {answer.__name__: answer for answer in (frame, count, group)}
answer: Answer = frame


def init() -> None:
    global answer
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--stamps", required=True)
    parser.add_argument("--give", choices=ANSWERS, default="frame")
    args, _ = parser.parse_known_args()
    batch_work.stamp_into(args.stamps)
    answer = ANSWERS[args.give]


def run(mini_batch: pd.DataFrame, context: typing.Any) -> Rows:
    batch_work.stamped(list, [])
    return answer(mini_batch, context)
