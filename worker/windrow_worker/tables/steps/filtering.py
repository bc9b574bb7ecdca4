"""Which rows pass a filter: its tree, made by the job file's reader, evaluated for all rows of a slice at once.

Null rules: a comparison or sum with a null is null, and so is `not` of it; `or` with a true side is true; `and`
with a null on its left is null, whatever the right. What is null does not pass. The right side of `and` and `or` is
evaluated only for rows that need it; what cannot be judged on the left of `or` does no harm where the right is true.
Values of different kinds are unequal, and ordered bool < number < text < time.
NaN counts as null: pandas does not distinguish the two. Reference: docs/reference/azure-ml/mltable.md#filters.
"""

from __future__ import annotations

import operator
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

import numpy
import pandas

BOOL, NUMBER, TEXT, TIME, MIXED = "bool", "number", "text", "time", "mixed"
_RANKS = {BOOL: 0, NUMBER: 1, TEXT: 2, TIME: 3}
_WORDS = {BOOL: "true or false", NUMBER: "a number", TEXT: "text", TIME: "a time", MIXED: "values of several kinds"}


class FilterFailed(Exception):
    """A filter cannot handle a row; the text says why."""


class Values(NamedTuple):
    """One value per row. `data` is undefined where `null` is true."""

    kind: str
    data: numpy.ndarray
    null: numpy.ndarray


def passing(tree: List[Any], rows: pandas.DataFrame) -> numpy.ndarray:
    """Which rows pass, as an array of bool. Raises FilterFailed."""
    result = _evaluate(tree, rows)
    _must_be(BOOL, result, "its result")
    return _truth(result)


def _evaluate(tree: List[Any], rows: pandas.DataFrame) -> Values:
    head = tree[0]
    if head == "column":
        return _column(rows[tree[1]])
    if head == "value":
        return _literal(tree[1], len(rows))
    if head == "datetime":
        return _literal(numpy.datetime64(tree[1], "ns"), len(rows))
    if head in ("and", "or"):
        return (_or if head == "or" else _and)(tree, rows)
    left = _evaluate(tree[1], rows)
    if head == "not":
        _must_be(BOOL, left, "the operand of `not`")
        if left.null.all():
            return _nulls(BOOL, left)
        return Values(BOOL, ~left.data.astype(bool), left.null)
    if len(tree) == 2:
        _must_be(NUMBER, left, "the operand of `-`")
        if left.null.all():
            return _nulls(NUMBER, left)
        return Values(NUMBER, -left.data, left.null)
    right = _evaluate(tree[2], rows)
    if head in _COMPARISONS:
        return _compared(head, left, right)
    return _starts(left, right) if head == "startswith" else _calculated(head, left, right)


def _literal(value: Any, rows: int) -> Values:
    kind = TEXT
    if isinstance(value, bool):
        kind = BOOL
    elif isinstance(value, (int, float)):
        kind = NUMBER
    elif isinstance(value, numpy.datetime64):
        kind = TIME
    data = numpy.full(rows, value, dtype=object if kind == TEXT else None)
    return Values(kind, data, numpy.zeros(rows, dtype=bool))


def _nulls(kind: str, like: Values) -> Values:
    """Null in every row: their type does not matter."""
    return Values(kind, numpy.zeros(len(like.null)), numpy.ones(len(like.null), dtype=bool))


def _column(series: pandas.Series) -> Values:
    types = pandas.api.types
    null = series.isna().to_numpy(dtype=bool)
    if isinstance(series.dtype, pandas.CategoricalDtype):
        series = series.astype(object)
    if types.is_bool_dtype(series.dtype):
        return Values(BOOL, series.to_numpy(), null)
    if types.is_integer_dtype(series.dtype) or types.is_float_dtype(series.dtype):
        return Values(NUMBER, series.to_numpy(), null)
    if types.is_datetime64_any_dtype(series.dtype):
        if getattr(series.dtype, "tz", None) is not None:
            series = series.dt.tz_convert("UTC").dt.tz_localize(None)
        return Values(TIME, series.to_numpy(), null)
    data = series.to_numpy(dtype=object)
    found = types.infer_dtype(data[~null], skipna=False)
    if found in ("string", "empty"):
        return Values(TEXT, data, null)
    if found == "boolean":
        return Values(BOOL, numpy.where(null, False, data).astype(bool), null)
    if found == "integer":
        # Integers beside nulls. Arrow's may exceed signed 64 bits, JSON's may have any length.
        whole = numpy.where(null, 0, data)
        small = not len(whole) or (whole.min() >= -(2**63) and whole.max() < 2**63)
        return Values(NUMBER, whole.astype("int64") if small else whole, null)
    if found in ("floating", "mixed-integer-float", "decimal"):
        return Values(NUMBER, numpy.where(null, 0, data), null)
    if found in ("date", "datetime", "datetime64"):
        times = pandas.to_datetime(pandas.Series(numpy.where(null, None, data)), utc=True)
        return Values(TIME, times.dt.tz_localize(None).to_numpy(), null)
    return Values(MIXED, data, null)


def _must_be(kind: str, values: Values, what: str) -> None:
    """Raises FilterFailed unless the values are of this kind, or all null."""
    if values.kind != kind and not values.null.all():
        raise FilterFailed("%s is %s, but must be %s" % (what, _WORDS[values.kind], _WORDS[kind]))


def _and(tree: List[Any], rows: pandas.DataFrame) -> Values:
    left = _evaluate(tree[1], rows)
    _must_be(BOOL, left, "the left side of `and`")
    # False and null decide it.
    needed = _truth(left)
    data, null = needed.copy(), left.null.copy()
    if needed.any():
        right = _evaluate(tree[2], rows if needed.all() else rows[needed])
        _must_be(BOOL, right, "the right side of `and`")
        data[needed], null[needed] = _truth(right), right.null
    return Values(BOOL, data, null)


def _or(tree: List[Any], rows: pandas.DataFrame) -> Values:
    data, null = numpy.zeros(len(rows), dtype=bool), numpy.zeros(len(rows), dtype=bool)
    undecided = ~data
    failed: List[Tuple[List[Any], int, FilterFailed]] = []

    def decide(part: List[Any]) -> None:
        found = _evaluate(part, rows if undecided.all() else rows[undecided])
        _must_be(BOOL, found, "a side of `or`")
        null[undecided] |= found.null
        data[undecided] = _truth(found)
        undecided[data] = False

    for part in _alternatives(tree):
        if not undecided.any():
            break
        try:
            decide(part)
        except FilterFailed as error:
            failed.append((part, int(undecided.sum()), error))
    for part, rows_then, why in failed:
        if undecided.sum() == rows_then:
            raise why
        if undecided.any():
            decide(part)
    return Values(BOOL, data, null & ~data)


def _alternatives(tree: List[Any]) -> List[List[Any]]:
    """The operands of a chain of `or`, from left to right."""
    parts = []
    while tree[0] == "or":
        parts.append(tree[2])
        tree = tree[1]
    return [tree, *reversed(parts)]


def _truth(values: Values) -> numpy.ndarray:
    """True where a bool is true and not null."""
    truth: numpy.ndarray = ~values.null
    truth[truth] = values.data[truth].astype(bool)
    return truth


_COMPARISONS: Dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _compared(sign: str, left: Values, right: Values) -> Values:
    compare = _COMPARISONS[sign]
    null = left.null | right.null
    result = numpy.zeros(len(null), dtype=bool)
    there = ~null
    if MIXED in (left.kind, right.kind):
        for at in numpy.flatnonzero(there):
            first, second = _ranked(left.data[at]), _ranked(right.data[at])
            result[at] = compare(first, second) if first[0] == second[0] else compare(first[0], second[0])
    elif left.kind == right.kind:
        result[there] = compare(left.data[there], right.data[there])
    else:
        result[there] = compare(_RANKS[left.kind], _RANKS[right.kind])
    return Values(BOOL, result, null)


def _ranked(value: Any) -> Tuple[int, Any]:
    if isinstance(value, (bool, numpy.bool_)):
        return 0, bool(value)
    if isinstance(value, (int, float, numpy.integer, numpy.floating)):
        return 1, value
    if isinstance(value, str):
        return 2, value
    raise FilterFailed("it cannot be compared with a value of type %s" % type(value).__name__)


def _starts(text: Values, start: Values) -> Values:
    for values, what in ((text, "the text"), (start, "the start")):
        if values.null.any():
            raise FilterFailed(
                "%s of startswith is null in some rows; write `x == x and x.startswith(...)` to drop them first" % what
            )
        _must_be(TEXT, values, what + " of startswith")
    result = [one.startswith(other) for one, other in zip(text.data, start.data)]
    return Values(BOOL, numpy.array(result, dtype=bool), text.null)


def _calculated(sign: str, left: Values, right: Values) -> Values:
    null = left.null | right.null
    if sign == "+" and left.kind == right.kind == TEXT:
        data = numpy.empty(len(null), dtype=object)
        data[~null] = left.data[~null] + right.data[~null]
        return Values(TEXT, data, null)
    _must_be(NUMBER, left, "the left side of `%s`" % sign)
    _must_be(NUMBER, right, "the right side of `%s`" % sign)
    if null.all():
        return _nulls(NUMBER, left)
    first, second = numpy.where(null, 1, left.data), numpy.where(null, 1, right.data)
    if sign in ("/", "//", "%") and (second == 0).any():
        raise FilterFailed("a row divides by zero")
    with numpy.errstate(all="ignore"):
        return Values(NUMBER, _SUMS[sign](first, second), null)


def _whole(first: numpy.ndarray, second: numpy.ndarray) -> numpy.ndarray:
    """Integers are truncated toward zero, decimals are rounded down."""
    if first.dtype.kind in "iu" and second.dtype.kind in "iu":
        rest = numpy.fmod(first, second)
        return (first - rest) // second  # type: ignore[no-any-return]
    return first // second  # type: ignore[no-any-return]


def _power(first: numpy.ndarray, second: numpy.ndarray) -> numpy.ndarray:
    return numpy.power(first.astype("float64"), second.astype("float64"))  # type: ignore[no-any-return]


_SUMS: Dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": _whole,
    "%": operator.mod,
    "**": _power,
}
