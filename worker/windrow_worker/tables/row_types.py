"""The types of Parquet's values where steps take rows one by one: in Azure ML's reader, they are few.

Reference: docs/reference/azure-ml/mltable.md#parquet.
"""

from __future__ import annotations

from typing import Any, Sequence, Set, Tuple

import numpy
import pandas
import pyarrow

from windrow_worker.tables.dates import NS_MAX, NS_MIN

Misfit = Tuple[str, int, str]
_UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def is_time(kind: Any) -> bool:
    """Whether a column of this Arrow type has times with a date, or dates."""
    return bool(pyarrow.types.is_timestamp(kind) or pyarrow.types.is_date(kind))


def type_by_row(kind: Any) -> Any:
    """The type that a column of an Arrow type is read as. Times and dates keep their units and ranges for the steps:
    see `with_nanoseconds`.
    """
    types = pyarrow.types
    if types.is_integer(kind):
        return pyarrow.int64()
    if types.is_floating(kind) or types.is_decimal(kind):
        return pyarrow.float64()
    return pyarrow.timestamp(kind.unit) if types.is_timestamp(kind) else kind


def converted_by_row(column: Any, kind: Any) -> Tuple[Any, int, int]:
    """Converts a column to what `type_by_row` gives, as (column, misfits, first misfit). Misfits are whole numbers that
    64 bits have only without a sign: they wrap around, as seen.
    """
    if not pyarrow.types.is_uint64(column.type):
        return column.cast(kind), 0, -1
    from pyarrow import compute

    made = column.cast(kind, safe=False)
    misfits = compute.indices_nonzero(compute.less(made, 0))
    return made, len(misfits), misfits[0].as_py() if len(misfits) else -1


def has_not_a_number(column: Any) -> bool:
    """Whether a column of Arrow's has NaN, which a DataFrame shows as null."""
    from pyarrow import compute

    return pyarrow.types.is_floating(column.type) and compute.any(compute.is_nan(column)).as_py() is True


def with_nanoseconds(
    rows: pandas.DataFrame, columns: Sequence[str], where: str, shown_as_null: Set[str]
) -> Tuple[pandas.DataFrame, Sequence[Misfit]]:
    """The rows that steps have left, with times in nanoseconds in these columns: also where the file has dates. Those
    out of range become null, are counted as misfits, and their columns added to `shown_as_null`.
    """
    held, misfits = {}, []
    for name in columns:
        given = rows[name] if name in rows.columns else None
        if given is None or given.dtype == "datetime64[ns]":
            continue
        # Seconds have room for every date.
        values = given.to_numpy(dtype="datetime64[s]") if given.dtype == object else given.to_numpy()
        unit = _UNITS[numpy.datetime_data(values.dtype)[0]]
        counts = values.astype("int64")
        null = numpy.isnat(values)
        fits = (counts >= -(-NS_MIN // unit)) & (counts <= NS_MAX // unit)
        made = numpy.where(fits, counts, 0) * unit
        made[~fits] = numpy.iinfo("int64").min
        held[name] = pandas.Series(made.view("datetime64[ns]"), index=rows.index)
        beyond = numpy.flatnonzero(~fits & ~null)
        if len(beyond):
            shown_as_null.add(name)
            example = "%s: row %d: %s is not a time that a DataFrame can hold"
            first = int(beyond[0])
            misfits.append((name, len(beyond), example % (where, rows.index[first] + 1, given.iloc[first])))
    return (rows.assign(**held) if held else rows), misfits
