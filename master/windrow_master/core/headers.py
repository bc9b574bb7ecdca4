"""What the mini-batches of a step must agree on: a header line, or the columns of a Parquet file.

A header line is the same everywhere. Columns have the same names. Their types are also the same, except in three cases:
only missing values fit anything, int64 fits float64 (as where a mini-batch without missing values meets one with them),
and decimals fit those with more digits after the point. These are chains: whichever mini-batch ends first, the
columns come out the same.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

_DECIMAL = re.compile(r"decimal128\(38, (-?\d{1,2})\)", re.ASCII)


class HeaderMisfit(Exception):
    """The rows of a mini-batch do not fit those before; the message shows the user what differs."""


class Column(NamedTuple):
    """A column of a Parquet file: the text of its Arrow type, and the type itself, packed by the worker.

    Not the worker's `Column`, which says how text becomes values.
    """

    name: str
    type: str
    packed: str


def join_headers(row_format: str, pinned: bytes | None, header: bytes) -> bytes:
    """The header that holds for all mini-batches so far. Raises HeaderMisfit."""
    if row_format == "parquet":
        found = columns_of(header)
        return header if pinned is None else _join_columns(columns_of(pinned), found)
    if pinned is None or header == pinned:
        return header
    what, more = (
        ("a DataFrame", "")
        if row_format == "text"
        else ("rows", " (in dicts: all keys, with None for a missing value)")
    )
    raise HeaderMisfit(
        f"run() returned {what} with other columns than before: {_shown(header)}, where {_shown(pinned)} was expected. "
        f"Return the same columns in the same order from every mini-batch{more}."
    )


def _shown(header: bytes) -> str:
    return repr(header.decode("utf-8", "backslashreplace").rstrip("\r\n"))


def columns_of(header: bytes) -> list[Column]:
    """The columns that a worker reports. Raises HeaderMisfit if they cannot be read."""
    try:
        return [Column(str(name), str(kind), str(packed)) for name, kind, packed in json.loads(header)]
    except (ValueError, TypeError, RecursionError) as error:
        raise HeaderMisfit(f"The columns of the returned rows cannot be read: {header[:200]!r}.") from error


def _join_columns(pinned: list[Column], found: list[Column]) -> bytes:
    by_name = {column.name: column for column in found}
    known = {column.name for column in pinned}
    more, less = sorted(by_name.keys() - known), sorted(known - by_name.keys())
    if more or less:
        said = [f"{', '.join(map(repr, more))} more"] if more else []
        said += [f"{', '.join(map(repr, less))} less"] if less else []
        raise HeaderMisfit(
            f"run() returned rows with other columns than the mini-batches before: {' and '.join(said)}. Return "
            "the same columns from every mini-batch (in dicts: all keys, with None for a missing value)."
        )
    joined = [_join(column, by_name[column.name]) for column in pinned]
    return json.dumps(joined, separators=(",", ":")).encode()


def _join(pinned: Column, found: Column) -> Column:
    for one, other in ((pinned, found), (found, pinned)):
        if _holds(one.type, other.type):
            return one
    raise HeaderMisfit(
        f"The column {pinned.name!r} of the rows that run() returned is of type {found.type}, which does not fit the "
        f"{pinned.type} of the mini-batches before. Return the same type from every mini-batch, as by astype()."
    )


def _holds(wide: str, narrow: str) -> bool:
    """Whether a column of type `wide` can hold every value of type `narrow`."""
    if wide == narrow or narrow == "null":
        return True
    if wide == "double":
        return narrow == "int64"
    digits, fewer = _DECIMAL.fullmatch(wide), _DECIMAL.fullmatch(narrow)
    return digits is not None and fewer is not None and int(fewer[1]) < int(digits[1])
