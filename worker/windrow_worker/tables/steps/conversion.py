"""Columns of any type to a type that convert_column_types gives.

Reference: docs/reference/azure-ml/mltable.md#conversion.
"""

from __future__ import annotations

import datetime
import decimal
from typing import Any, Callable, List, Optional, Tuple

import numpy
import pandas

from windrow_worker.tables.columns import INT_MAX, INT_MIN, Column, convert
from windrow_worker.tables.frames import series

_EPOCH = datetime.datetime(1970, 1, 1)
_NONE = (None, False)


def convert_series(given: pandas.Series, column: Column) -> Tuple[pandas.Series, int, int]:
    """The column converted to the type of `column`, how many values became null because they cannot be converted, and
    the index of the first of those (-1 if there is none).
    """
    kind = _kind(given)
    if kind == column.type:
        return given, 0, -1
    if kind == "int" and column.type == "float":
        return given.astype("float64"), 0, -1
    if kind == "int" and column.type == "text":
        # Common for ids, and much faster than value by value.
        return series("text", list(map(str, given.tolist()))).set_axis(given.index), 0, -1
    values = _plain(given)
    if kind == "text":
        converted = convert(column, values)
        made, misfits, first = converted.values, converted.misfits, converted.first_misfit
    else:
        made, misfits, first = _each(values, _reader(column))
    return series(column.type, made, exact_integers=True).set_axis(given.index), misfits, first


def _kind(given: pandas.Series) -> str:
    """The type of all values, as in `Column`; `any` if they have to be checked one by one."""
    if pandas.api.types.is_bool_dtype(given.dtype):
        return "bool"
    if given.dtype == "int64":
        return "int"
    if given.dtype == "float64":
        return "float"
    if given.dtype == "datetime64[ns]":
        return "datetime"
    if isinstance(given.dtype, pandas.CategoricalDtype):
        return "any"
    if pandas.api.types.infer_dtype(given, skipna=True) in ("string", "empty"):
        return "text"
    return "any"


def _plain(given: pandas.Series) -> List[Any]:
    """Plain values, None for null; times as datetime64."""
    null = given.isna().to_numpy()
    if pandas.api.types.is_datetime64_any_dtype(given.dtype):
        if getattr(given.dtype, "tz", None) is not None:
            given = given.dt.tz_convert("UTC").dt.tz_localize(None)
        values = list(given.to_numpy())
    else:
        values = given.tolist()
    if null.any():
        for at in numpy.flatnonzero(null):
            values[at] = None
    return values


def _each(values: List[Any], read: Callable[[Any], Tuple[Any, bool]]) -> Tuple[List[Any], int, int]:
    made: List[Any] = []
    misfits, first = 0, -1
    for value in values:
        result, fits = (None, True) if value is None else read(value)
        if not fits:
            if not misfits:
                first = len(made)
            misfits += 1
        made.append(result)
    return made, misfits, first


def _reader(column: Column) -> Callable[[Any], Tuple[Any, bool]]:
    """A function from a value that is not null to (value, whether it can be converted)."""
    target = {
        "text": _to_text,
        "int": _to_int,
        "float": _to_float,
        "bool": _to_bool,
        "datetime": _to_datetime,
    }[column.type]

    def read(value: Any) -> Tuple[Any, bool]:
        if isinstance(value, str):
            converted = convert(column, [value])
            return converted.values[0], not converted.misfits
        return target(value)

    return read


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, numpy.integer, numpy.floating, decimal.Decimal)) and not isinstance(
        value, bool
    )


def _to_text(value: Any) -> Tuple[Any, bool]:
    if isinstance(value, (bool, numpy.bool_)):
        return ("True" if value else "False"), True
    if isinstance(value, (int, numpy.integer)):
        return str(int(value)), True
    if isinstance(value, (float, numpy.floating)):
        return _float_text(value), True
    time = _nanoseconds(value)
    return (str(value) if time is None else _time_text(time)), True


def _float_text(value: Any) -> str:
    """The shortest digits that read back as the number, without exponent, and without `.0`."""
    text = numpy.format_float_positional(value, trim="-")
    return "NaN" if text == "nan" else text


def _time_text(nanoseconds: int) -> str:
    seconds, fraction = divmod(nanoseconds, 10**9)
    text = (_EPOCH + datetime.timedelta(seconds=seconds)).isoformat()
    if fraction:
        digits = "%09d" % fraction
        while digits.endswith("000"):
            digits = digits[:-3]
        text += "." + digits
    return text + "+00:00"


def _to_int(value: Any) -> Tuple[Any, bool]:
    if not _is_number(value):
        return _NONE
    if isinstance(value, (int, numpy.integer)):
        value = int(value)
        return min(max(value, INT_MIN), INT_MAX), INT_MIN <= value <= INT_MAX
    if value != value or value in (float("inf"), float("-inf")):
        return _NONE
    cut = int(value)
    return min(max(cut, INT_MIN), INT_MAX), cut == value and INT_MIN <= cut <= INT_MAX


def _to_float(value: Any) -> Tuple[Any, bool]:
    try:
        return (float(value), True) if _is_number(value) else _NONE
    except OverflowError:  # a whole number of JSON's may have any length
        return _NONE


def _to_bool(value: Any) -> Tuple[Any, bool]:
    if isinstance(value, (bool, numpy.bool_)):
        return bool(value), True
    return (bool(value != 0), True) if _is_number(value) else _NONE


def _to_datetime(value: Any) -> Tuple[Any, bool]:
    time = _nanoseconds(value)
    return _NONE if time is None else (time, True)


def _nanoseconds(value: Any) -> Optional[int]:
    """A time as nanoseconds since 1970-01-01 UTC; None if it is not a time, or does not fit into 64 bits."""
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        value = datetime.datetime(value.year, value.month, value.day)
    if not isinstance(value, (datetime.datetime, numpy.datetime64)):
        return None
    try:
        time = pandas.Timestamp(value)
        time = time if time.tzinfo is None else time.tz_convert(None)
        # Before version 2, the only unit is nanoseconds.
        return int(time.as_unit("ns").value if hasattr(time, "as_unit") else time.value)
    except (ValueError, OverflowError):
        return None
