"""Makes DataFrames from columns of plain values, with the types of Arrow's own conversion, but without pyarrow."""

from __future__ import annotations

from typing import Any, List, Mapping, Sequence, Tuple

import numpy
import pandas

from windrow_worker.tables.columns import FLOAT_EXACT

_TEXT: Any = "str" if int(pandas.__version__.split(".")[0]) >= 3 else object
TYPES_WITHOUT_NULLS = {"int": "int64", "bool": "bool"}
"""Types of columns that hold objects if there are nulls among integers (with `exact_integers`) or booleans, and the
numpy type that they have without nulls."""
WHOLE, WHOLE_AS_FLOATS = "whole", "whole_as_floats"
"""Types of columns that `whole_numbers` makes."""
_NOT_A_TIME = -(2**63)


def frame(columns: Sequence[Tuple[str, str, List[Any]]], rows: int, exact_integers: bool = False) -> pandas.DataFrame:
    """A DataFrame of (name, type, values) columns; types as in `windrow_worker.tables.columns.Column`, `any`, or
    `WHOLE` and `WHOLE_AS_FLOATS` (as `whole_numbers` makes them).

    With nulls, an int column becomes float64 (object if `exact_integers`), and a bool column becomes object. Datetimes
    are given as nanoseconds.
    """
    made = {name: series(kind, values, exact_integers) for name, kind, values in columns}
    return pandas.DataFrame(made, index=pandas.RangeIndex(rows))


def settled(rows: pandas.DataFrame, types: Mapping[str, str], whole: Mapping[str, bool]) -> pandas.DataFrame:
    """Rows that steps have left, with the types that they would have if only they had been read. `types`: see
    `TYPES_WITHOUT_NULLS`. `whole`: the integers of plain files, and of each whether it holds floats.
    """
    held = {}
    for name in rows.columns:
        if name in whole:
            nulls = rows[name].isna()
            there = rows[name].mask(nulls, 0).astype(types[name])
            held[name] = whole_numbers(there.to_numpy(), nulls.to_numpy(), whole[name]).set_axis(rows.index)
        elif name in types and rows[name].dtype == object:
            if not rows[name].isna().any():
                held[name] = rows[name].astype(types[name])
            elif types[name] != "bool":
                held[name] = rows[name].astype("float64")
    return rows.assign(**held) if held else rows


def whole_numbers(values: Any, nulls: Any, as_floats: bool) -> pandas.Series:
    """Integers of a plain file, of which none is rounded (docs/reference/azure-ml/mltable.md#plain-files).

    `values`: a numpy array of integers; `nulls`: which of them are null, a numpy array of booleans. `as_floats`: the
    column holds floats, since there are nulls in its sample: only where a float does not have one of the numbers does
    it hold Int64. Else it holds integers, Int64 where there are nulls.
    """
    if as_floats and not _is_beyond_floats(values, nulls):
        return pandas.Series(numpy.where(nulls, numpy.nan, values).astype("float64"))
    if as_floats or nulls.any():
        return pandas.Series(pandas.arrays.IntegerArray(values, nulls))
    return pandas.Series(values)


def _is_beyond_floats(values: Any, nulls: Any) -> bool:
    there = values[~nulls]
    return bool(len(there)) and (int(there.max()) > FLOAT_EXACT or int(there.min()) < -FLOAT_EXACT)


def series(kind: str, values: List[Any], exact_integers: bool = False) -> pandas.Series:
    """One column of a frame."""
    if kind == "text":
        return pandas.Series(values, dtype=_TEXT)
    nulls = None in values
    if kind in (WHOLE, WHOLE_AS_FLOATS):
        there = numpy.array([0 if value is None else value for value in values], dtype="int64")
        return whole_numbers(there, numpy.array([value is None for value in values], dtype="bool"), kind != WHOLE)
    if kind == "float" or (kind == "int" and nulls and not exact_integers):
        return pandas.Series(numpy.array([numpy.nan if value is None else value for value in values], dtype="float64"))
    if kind == "int" and not nulls:
        return pandas.Series(numpy.array(values, dtype="int64"))
    if kind == "bool" and not nulls:
        return pandas.Series(numpy.array(values, dtype="bool"))
    if kind == "datetime":
        times = numpy.array([_NOT_A_TIME if value is None else value for value in values], dtype="int64")
        return pandas.Series(times.view("datetime64[ns]"))
    held = numpy.empty(len(values), dtype=object)
    for at, value in enumerate(values):
        held[at] = value
    return pandas.Series(held, dtype=object)
