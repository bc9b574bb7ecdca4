"""Rows that `run()` returned as dicts: the checks that all formats share."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from numbers import Number

from windrow_worker.rows.return_values import BadReturn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List


def check_rows(values: Any, row_format: str) -> None:
    """Raises BadReturn if an element is not a dict."""
    for index, element in enumerate(values):
        if not isinstance(element, Mapping):
            raise BadReturn(
                f"Element {index} of what run() returned is of type {type(element).__name__}; rows of format "
                f"{row_format} have named columns. Return a pandas DataFrame, or a list with one dict for each row; or "
                "remove --append_row_format to get lines of text (without a job file: -o with a name that ends in .txt)"
            )


def column_names(rows: Any) -> List[str]:
    """The keys of all rows, in order of first appearance. Raises BadReturn for a key that is not text."""
    names: Dict[Any, None] = {}
    for row in rows:
        names.update(dict.fromkeys(row))
    for name in names:
        if not isinstance(name, str):
            raise BadReturn(
                f"A row that run() returned has the key {name!r}, of type {type(name).__name__}; column names must "
                "be strings. Use strings as keys"
            )
    return list(names)


def frame_names(frame: Any, row_format: str) -> List[str]:
    """The names of a DataFrame's columns, as text. Raises BadReturn if two are equal, or if they have several
    levels."""
    if frame.columns.nlevels > 1:
        raise BadReturn(
            f"The returned DataFrame has column names of {frame.columns.nlevels} levels; a {row_format} file has "
            "one. Flatten them, for example with df.columns = ['_'.join(map(str, name)) for name in df.columns]"
        )
    names = [str(name) for name in frame.columns]
    repeated = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if repeated:
        raise BadReturn(
            f"The returned DataFrame has several columns named {', '.join(map(repr, repeated))}; column names of a "
            f"{row_format} file must differ. Rename them"
        )
    return names


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN of any number type, NaT, or pandas' NA."""
    kind = type(value)
    if kind is float:
        return bool(value != value)
    if value is None or kind is str or kind is int or kind is bool:
        return value is None
    pandas = sys.modules.get("pandas")
    if pandas is not None and (value is getattr(pandas, "NaT", None) or value is getattr(pandas, "NA", None)):
        return True
    # A missing value does not equal itself: a float32, a Decimal, a datetime64.
    if not isinstance(value, Number) and getattr(value, "shape", None) != ():
        return False
    try:
        return bool(value != value)
    except (ArithmeticError, TypeError, ValueError):
        return False
