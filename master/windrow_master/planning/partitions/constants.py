"""Columns that have one value per file, such as the partition columns of Delta tables, as keys. The listing holds
the values.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow
from windrow_worker.tables.parquet import unpack_constants

_DIGITS_MAX = 18
"""The most digits of a decimal that sorts as a number; longer ones sort as text."""


class Value(NamedTuple):
    """A value in the form that sorts and in the form of a recipe."""

    sorts: Any
    told: Any


def constant_values(packed: str) -> dict[str, Value]:
    """The values of a file by column; types that JSON does not have become text."""
    return {name: _value(scalar) for name, scalar in unpack_constants(packed).items()}


def _value(scalar: pyarrow.Scalar) -> Value:
    kind, types = scalar.type, pyarrow.types
    value = scalar.as_py()
    if value is None or isinstance(value, str | bool | int):
        return Value(value, value)
    if isinstance(value, float):
        return Value(value, None if value != value else value)
    if types.is_date(kind) or types.is_timestamp(kind):
        return Value(scalar.value, str(value))
    if types.is_decimal(kind) and kind.precision <= _DIGITS_MAX:
        return Value(int(value.scaleb(kind.scale)), str(value))
    return Value(value.hex() if isinstance(value, bytes) else str(value), str(value))
