"""Columns of any type to a type that convert_column_types gives.

Reference: docs/reference/azure-ml/mltable.md#conversion.
"""

from __future__ import annotations

import datetime
import decimal
import json
from typing import Any, Callable, List, NamedTuple, Optional, Tuple

import numpy
import pandas

from windrow_worker.tables.columns import BEYOND, INT_MAX, INT_MIN, Column, Converted, convert
from windrow_worker.tables.frames import series

_EPOCH = datetime.datetime(1970, 1, 1)
_NONE = (None, False)


class ConvertedSeries(NamedTuple):
    """A converted column, how many values became null because they cannot be converted, and the index of the first of
    those (-1 if there is none). `shown_as_null`: as `windrow_worker.tables.columns.Converted` has it.
    """

    series: pandas.Series
    misfits: int = 0
    first_misfit: int = -1
    shown_as_null: bool = False


def convert_series(given: pandas.Series, column: Column) -> ConvertedSeries:
    """The column converted to the type of `column`."""
    kind = _kind(given)
    if kind == column.type:
        return ConvertedSeries(given)
    if kind == "int" and column.type == "float":
        return ConvertedSeries(given.astype("float64"))
    if kind == "int" and column.type == "text":
        # Common for ids, and much faster than value by value.
        return ConvertedSeries(series("text", list(map(str, given.tolist()))).set_axis(given.index))
    values = _plain(given)
    converted = convert(column, values) if kind == "text" else _each(values, _reader(column))
    made = series(column.type, converted.values, exact_integers=True).set_axis(given.index)
    return ConvertedSeries(made, converted.misfits, converted.first_misfit, converted.shown_as_null)


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


def _each(values: List[Any], read: Callable[[Any], Tuple[Any, bool]]) -> Converted:
    made: List[Any] = []
    misfits, first, shown_as_null = 0, -1, False
    for value in values:
        result, fits = (None, True) if value is None else read(value)
        if not fits:
            if not misfits:
                first = len(made)
            misfits += 1
        if result is BEYOND:
            result, shown_as_null = None, True
        made.append(result)
    return Converted(made, misfits, first, shown_as_null)


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
            made = converted.values[0]
            return (BEYOND if made is None and converted.shown_as_null else made), not converted.misfits
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
    if isinstance(value, (dict, list, numpy.ndarray)):
        return _nested_text(value), True
    time = _nanoseconds(value)
    if time is not None:
        return _time_text(time), True
    if isinstance(value, numpy.datetime64):
        # Beyond the range of nanoseconds.
        value = value.astype("datetime64[us]").item()
    if isinstance(value, datetime.datetime):
        return value.isoformat() + "+00:00", True
    return (value.isoformat() + "T00:00:00+00:00" if isinstance(value, datetime.date) else str(value)), True


def _nested_text(value: Any) -> str:
    """An object as `{name: text, …}`, with nothing in quotes; an array as JSON."""
    if isinstance(value, dict):
        inner = ("Null" if one is None else one if isinstance(one, str) else _to_text(one)[0] for one in value.values())
        return "{%s}" % ", ".join("%s: %s" % pair for pair in zip(value, inner))
    return json.dumps(_json_value(value), ensure_ascii=False)


def _json_value(value: Any) -> Any:
    """A value, and what is in it, as JSON has it: a float that is whole without `.0`."""
    if isinstance(value, (numpy.ndarray, numpy.generic)):
        value = value.tolist()
    if isinstance(value, dict):
        return {key: _json_value(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_json_value(one) for one in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if value is None or isinstance(value, (str, int, float)) else _to_text(value)[0]


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
    if time is not None:
        return time, True
    return (BEYOND, False) if isinstance(value, (datetime.date, numpy.datetime64)) else _NONE


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
