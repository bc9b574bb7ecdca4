"""Columns of a delimited table: inferring their types from a sample, and turning text into values of the pinned type.

This is the exact rule, in plain Python; the fast reader must agree with it.
Reference: docs/reference/azure-ml/mltable.md#misfits, #types, #plain-files.
"""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from windrow_worker.tables.dates import NS_MAX, NS_MIN, forms_of, parser

TRUE_WORDS = ("true", "True", "TRUE", "t", "T", "1", "Yes", "YES", "Y")
FALSE_WORDS = ("false", "False", "FALSE", "f", "F", "0", "No", "NO", "N")
PLAIN_TRUE_WORDS, PLAIN_FALSE_WORDS = TRUE_WORDS[:3], FALSE_WORDS[:3]

INT_MIN, INT_MAX = -(2**63), 2**63 - 1
FLOAT_EXACT = 2**53
"""Up to here, floats have every whole number."""
_INT = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(
    r"[+-]?(?:[0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|inf|infinity|nan)", re.IGNORECASE
)


class Column(NamedTuple):
    """A column and its pinned type: `text`, `int`, `float`, `bool` or `datetime`.

    Not the master's `Column`, which describes a written Parquet file.

    `dates`: date formats of `windrow_worker.tables.dates`; `formats`: `%` formats of the user, and `date_constant`, a
    prefix that is added to each text. `true_words` and `false_words` are the texts of a bool; `mismatch`: what any
    other text becomes (if None, null and a misfit). `exact`: of an int; a number that is not whole, or has more than 64
    bits, is null, not another number; and no number is rounded for the nulls beside it. `as_floats`: of an exact int
    whose sample has nulls, and no number that floats do not have: all mini-batches have floats, as far as these are
    the same numbers.
    """

    name: str
    type: str = "text"
    dates: Tuple[str, ...] = ()
    formats: Tuple[str, ...] = ()
    true_words: Tuple[str, ...] = ()
    false_words: Tuple[str, ...] = ()
    mismatch: Optional[bool] = None
    date_constant: str = ""
    exact: bool = False
    as_floats: bool = False

    def to_json(self) -> Dict[str, Any]:
        """The JSON form: the fields that differ from their defaults."""
        held, defaults = self._asdict(), self._field_defaults
        return {key: value for key, value in held.items() if key in ("name", "type") or value != defaults[key]}

    @classmethod
    def from_json(cls, value: Dict[str, Any]) -> Column:
        """A column from its JSON form."""
        fields: Dict[str, Any] = {key: tuple(item) if isinstance(item, list) else item for key, item in value.items()}
        return cls(**fields)


class Converted(NamedTuple):
    """Values of a column (datetimes as nanoseconds), how many did not fit its type, and the index of the first of
    those. `shown_as_null`: as `Loaded` has it, whether the column is one of these."""

    values: List[Any]
    misfits: int
    first_misfit: int
    shown_as_null: bool = False


class OtherWidth(NamedTuple):
    """Records of one number of fields, which is not that of the header. `row`: the first of them."""

    fields: int
    number: int
    row: int


class Widths:
    """Collects the records whose number of fields is not that of the header; without a header, those that are wider
    than the table.
    """

    def __init__(self, fields: Optional[int], width: int) -> None:
        """`fields`: of the header. `width`: of the table, which may be wider."""
        self._fields, self._width = fields, width
        self._found: Dict[int, List[int]] = {}

    def add(self, fields: int, row: int, number: int = 1) -> None:
        """Takes in `number` records of so many fields, the first of which is `row`."""
        if fields == self._fields or (self._fields is None and fields <= self._width):
            return
        found = self._found.setdefault(fields, [0, row])
        found[0] += number
        found[1] = min(found[1], row)

    @property
    def others(self) -> List[OtherWidth]:
        """What was collected, in the order of the first record of each."""
        found = [OtherWidth(fields, number, row) for fields, (number, row) in self._found.items()]
        return sorted(found, key=lambda one: one.row)


class Misfits(NamedTuple):
    """Values of one column that did not fit: its position, how many, the first one and its row."""

    position: int
    number: int
    row: int
    value: Optional[str]


def infer(name: str, sample: Sequence[Optional[str]], plain: bool, only_words: bool = False) -> Tuple[Column, bool]:
    """A column's type from the non-null values of its sample, as (column, whether its dates are undecidable).

    `only_words`: only the words true and false make a bool. `plain`: so, too, and whole numbers are never rounded: if
    one has more than 64 bits, they are text.
    """
    values = [value.strip() for value in sample if value is not None]
    only_words = only_words or plain
    true_words, false_words = (PLAIN_TRUE_WORDS, PLAIN_FALSE_WORDS) if only_words else (TRUE_WORDS, FALSE_WORDS)
    if not values:
        return Column(name), False
    if all(value in true_words + false_words or (not only_words and _is_0_or_1(value)) for value in values):
        return Column(name, "bool", true_words=true_words, false_words=false_words), False
    if are_whole(sample):
        numbers = [int(value[:40]) for value in values]
        if all(INT_MIN <= number <= INT_MAX for number in numbers):
            as_floats = plain and None in sample and all(abs(number) <= FLOAT_EXACT for number in numbers)
            return Column(name, "int", exact=plain, as_floats=as_floats), False
        return Column(name, "text" if plain else "float"), False
    if all(_FLOAT.fullmatch(value) for value in values):
        return Column(name, "float"), False
    forms, undecidable = forms_of((value for value in sample if value is not None), plain)
    return (Column(name, "datetime", dates=forms) if forms else Column(name)), undecidable


def are_whole(sample: Sequence[Optional[str]]) -> bool:
    """Whether all values that are not null are whole numbers, of any size."""
    return all(value is None or _INT.fullmatch(value.strip()) for value in sample)


def convert(column: Column, values: Sequence[Optional[str]]) -> Converted:
    """Converts texts to values. Null stays null. Empty text is null too, unless the column is text or gives it a
    meaning."""
    if column.type == "text":
        return Converted(list(values), 0, -1)
    read = _reader(column)
    empty = column.mismatch if column.type == "bool" else None
    known: Dict[Optional[str], Tuple[Any, bool]] = {None: (None, True), "": (empty, True)}
    converted: List[Any] = []
    misfits, first, shown_as_null = 0, -1, False
    for value in values:
        result = known.get(value)
        if result is None:
            result = read(value)  # type: ignore[arg-type]
            if len(known) < _KNOWN_MAX:
                known[value] = result
        if not result[1]:
            if not misfits:
                first = len(converted)
            misfits += 1
        made = result[0]
        if made is BEYOND or made != made:
            shown_as_null = True
            made = None if made is BEYOND else made
        converted.append(made)
    return Converted(converted, misfits, first, shown_as_null)


_KNOWN_MAX = 10000
BEYOND = object()
"""A time that 64 bits of nanoseconds do not have."""


def _is_0_or_1(value: str) -> bool:
    return _INT.fullmatch(value) is not None and len(value) < 40 and int(value) in (0, 1)


def _reader(column: Column) -> Callable[[str], Tuple[Any, bool]]:
    """A function from text to (value, whether it fits)."""
    if column.type == "int":
        return _read_exact_int if column.exact else _read_int
    if column.type == "float":
        return _read_float
    if column.type == "bool":
        words = dict.fromkeys(column.false_words, False)
        words.update((word, True) for word in column.true_words)
        mismatch = column.mismatch

        def read_bool(text: str) -> Tuple[Any, bool]:
            value = words.get(text)
            if value is None:
                value = words.get(text.strip())
            return (value, True) if value is not None else (mismatch, mismatch is not None)

        return read_bool
    parse = parser(column.dates, column.formats, column.date_constant)

    def read_date(text: str) -> Tuple[Any, bool]:
        value = parse(text)
        if value is None:
            return None, False
        return (value, True) if NS_MIN <= value <= NS_MAX else (BEYOND, False)

    return read_date


def _read_int(text: str) -> Tuple[Any, bool]:
    text = text.strip()
    if _INT.fullmatch(text) and len(text) < 40:
        value = int(text)
        if INT_MIN <= value <= INT_MAX:
            return value, True
    if not _FLOAT.fullmatch(text):
        return None, False
    # A decimal is truncated, a too large value becomes the largest, and nan becomes 0: all are misfits.
    number = float(text)
    if number != number:
        return 0, False
    return (INT_MAX if number > 0 else INT_MIN) if abs(number) >= 2.0**63 else int(number), False


def _read_exact_int(text: str) -> Tuple[Any, bool]:
    value, fits = _read_int(text)
    if not fits and value is not None:
        fits = float(text) == value and abs(value) < FLOAT_EXACT
    return (value, True) if fits else (None, False)


def _read_float(text: str) -> Tuple[Any, bool]:
    text = text.strip()
    return (float(text), True) if _FLOAT.fullmatch(text) else (None, False)
