"""The fast way to read delimited text: Arrow's CSV reader with pinned types, where it agrees with the exact rule.

Where it does not, `read_fast` returns None, and the caller uses the exact way. This module checks for all known
differences: Arrow drops a byte order mark, ends a line at a lone carriage return, lets a quote swallow line ends in
single-line mode, drops an open quote at the end, skips blank CRLF lines, reads `0x10` and `nan(1)` as numbers, and
cannot pad short records. A value that does not fit its column's type makes Arrow fail; that column is then read as
text and converted by the exact rule, alone.
"""

from __future__ import annotations

import codecs
import re
from typing import Any, List, NamedTuple, Optional, Sequence, Set, Tuple

import numpy
import pyarrow
import pyarrow.compute
from pyarrow import csv

from windrow_worker.tables.columns import Column, Misfits, OtherWidth, Widths, convert
from windrow_worker.tables.delimited_text import Text, records

TYPES = {
    "text": pyarrow.string(),
    "int": pyarrow.int64(),
    "float": pyarrow.float64(),
    "bool": pyarrow.bool_(),
    "datetime": pyarrow.timestamp("ns"),
}
_FAILED_COLUMN = re.compile(r"In CSV column #(\d+): ")
_DAY = r"(1[7-9]|20|21)\d\d-\d\d-\d\d"
_TIME = r"\d\d:\d\d:\d\d"
_FAST_DATES = {
    "yyyy-M-d": _DAY,
    "yyyy-M-d HH:mm:ss": f"{_DAY} {_TIME}",
    "yyyy-M-dTHH:mm:ss": f"{_DAY}T{_TIME}",
    "yyyy-M-d HH:mm:ss.f": rf"{_DAY} {_TIME}(\.\d{{1,9}})?",
    "yyyy-M-dTHH:mm:ss.f": rf"{_DAY}T{_TIME}(\.\d{{1,9}})?",
}
"""Date formats that Arrow reads as `windrow_worker.tables.dates` does."""
_BLOCK_MAX = 1 << 30
_ODD_RECORDS_MAX = 1000
"""Most records of a wrong width that are corrected one by one; with more, the exact way is as fast."""


class FastTable(NamedTuple):
    """A slice as Arrow arrays, one for each position in the file; values that did not fit; records with more or fewer
    fields than the header; positions of columns with values that a DataFrame shows as null.
    """

    arrays: List[Any]
    rows: int
    misfits: List[Misfits]
    other_widths: List[OtherWidth]
    shown_as_null: Set[int]


def read_fast(
    data: bytes, text: Text, columns: Sequence[Column], as_text: Set[int], fields: Optional[int]
) -> Optional[FastTable]:
    """Reads UTF-8 bytes that begin at a record; None if only the exact way is right.

    `columns`: one for each position in the file. `as_text`: positions known to hold misfits; this function adds to it.
    `fields`: of the header, if there is one.
    """
    if not data or not columns or len(text.delimiter) != 1 or not text.delimiter.isascii():
        return None
    quotes = b'"' in data
    if data.startswith(codecs.BOM_UTF8) or _has_odd_lines(data, text, quotes):
        return None
    lines = data.count(b"\n") + (not data.endswith(b"\n")) if quotes and not text.multi_line else -1
    if quotes:
        if len(columns) == 1 and columns[0].type != "text":
            return None
        # A last record of nulls, or (one null would be a blank line) of a word: an open quote would swallow it.
        guard = text.delimiter.encode() * (len(columns) - 1) or b"-"
        data += (b"" if data.endswith(b"\n") else b"\n") + guard + b"\n"
    forced = {at for at, column in enumerate(columns) if column.type == "int"}
    if forced and not _has_hexadecimal(data):
        forced = set()
    while True:
        odd: List[Any] = []
        try:
            table = _parse(data, text, columns, as_text | forced, quotes, odd)
        except _TooManyOddRecords:
            return None
        except pyarrow.ArrowInvalid as error:
            failed = _FAILED_COLUMN.match(str(error))
            if failed is None or int(failed[1]) in as_text:
                return None
            as_text.add(int(failed[1]))
            continue
        if quotes:
            if odd and odd[-1].number == table.num_rows + len(odd):
                # An open quote has swallowed it: not what stands last among the full records is the guard.
                return None
            last = table.num_rows - 1
            found = {table.column(at)[last].as_py() or "" for at in range(len(columns))} if last >= 0 else set()
            if found != ({""} if len(columns) > 1 else {"-"}):
                return None
            table = table.slice(0, last)
        if lines >= 0 and table.num_rows + len(odd) != lines:
            return None
        spelled = {at for at, column in enumerate(columns) if column.type == "float" and _has_nan(table.column(at))}
        if not spelled:
            return _complete(table, text, columns, odd, fields)
        # Arrow accepts more spellings of "not a number" than the exact rule.
        forced |= spelled


class _TooManyOddRecords(Exception):
    pass


def _has_odd_lines(data: bytes, text: Text, quotes: bool) -> bool:
    """Whether there are line ends that Arrow treats differently, or blank lines where lines are counted."""
    if b"\r" in data:
        if data.count(b"\r") != data.count(b"\r\n"):
            return True
        counted = quotes and not text.multi_line
        if (counted or not text.returns_are_blank) and (data.startswith(b"\r\n") or b"\n\r\n" in data):
            return True
    return quotes and not text.multi_line and (data.startswith(b"\n") or b"\n\n" in data)


def _has_hexadecimal(data: bytes) -> bool:
    # Searching for one byte is forty times faster than for two.
    return (b"x" in data and b"0x" in data) or (b"X" in data and b"0X" in data)


def _parse(data: bytes, text: Text, columns: Sequence[Column], as_text: Set[int], quotes: bool, odd: List[Any]) -> Any:
    """One pass of Arrow's reader: typed columns, those in `as_text` and datetimes as text; odd records go to
    `odd`."""

    def note(row: Any) -> str:
        odd.append(row)
        if len(odd) > _ODD_RECORDS_MAX:
            raise _TooManyOddRecords
        return "skip"

    words = next((_words(column) for column in columns if column.type == "bool"), ((), ()))
    types = {}
    for at, column in enumerate(columns):
        typed = column.type in ("int", "float")
        if column.type == "bool":
            # Arrow has one list of words for all columns; bools of other words go the exact way. So do those to which
            # an empty text means something: it is null to Arrow.
            typed = _words(column) == words and (column.mismatch is None or not text.empty_as_string)
        types[str(at)] = TYPES[column.type] if typed and at not in as_text else pyarrow.string()
    return csv.read_csv(
        pyarrow.BufferReader(data),
        read_options=csv.ReadOptions(
            use_threads=False, column_names=list(types), block_size=min(max(len(data) + 1, 4096), _BLOCK_MAX)
        ),
        parse_options=csv.ParseOptions(
            delimiter=text.delimiter,
            quote_char='"' if quotes else False,
            double_quote=True,
            newlines_in_values=quotes and text.multi_line,
            ignore_empty_lines=True,
            invalid_row_handler=note,
        ),
        convert_options=csv.ConvertOptions(
            check_utf8=False,
            column_types=types,
            null_values=[""],
            true_values=list(words[0]),
            false_values=list(words[1]),
            strings_can_be_null=not text.empty_as_string,
            quoted_strings_can_be_null=False,
        ),
    )


def _words(column: Column) -> Tuple[Tuple[str, ...], Tuple[str, ...]]:
    return column.true_words, column.false_words


def _has_nan(array: Any) -> bool:
    return array.type == pyarrow.float64() and bool(pyarrow.compute.any(pyarrow.compute.is_nan(array)).as_py())


def _complete(
    table: Any, text: Text, columns: Sequence[Column], odd: List[Any], fields: Optional[int]
) -> Optional[FastTable]:
    """Converts what was read as text, and puts the odd records where they belong."""
    odd_records = [list(records(row.text, text)) for row in odd]
    if any(len(parsed) != 1 for parsed in odd_records):
        return None
    rows = table.num_rows + len(odd)
    at_odd = [row.number - 1 for row in odd]
    at_good = numpy.delete(numpy.arange(rows), at_odd) if odd else None
    order = None
    if at_good is not None:
        order = numpy.empty(rows, dtype="int64")
        order[at_good] = numpy.arange(table.num_rows)
        order[at_odd] = numpy.arange(table.num_rows, rows)
    arrays, misfits = [], []
    shown_as_null: Set[int] = set()
    for at, column in enumerate(columns):
        array = _one_chunk(table.column(at))
        found: List[Misfits] = []
        if array.type != TYPES[column.type]:
            given = array
            array, count, first, hidden = _from_text(given, column)
            if hidden:
                shown_as_null.add(at)
            if count:
                row = first if at_good is None else int(at_good[first])
                found.append(Misfits(at, count, row, given[first].as_py()))
        if order is not None:
            values = [parsed[0][at] if at < len(parsed[0]) else None for parsed in odd_records]
            converted = convert(column, values)
            if converted.shown_as_null:
                shown_as_null.add(at)
            if converted.misfits:
                first = converted.first_misfit
                found.append(Misfits(at, converted.misfits, at_odd[first], values[first]))
            array = pyarrow.concat_arrays([array, _array(converted.values, column)]).take(pyarrow.array(order))
        if found:
            misfits.append(min(found, key=lambda one: one.row)._replace(number=sum(one.number for one in found)))
        arrays.append(array)
    widths = Widths(fields, len(columns))
    for row, parsed in zip(at_odd, odd_records):
        widths.add(len(parsed[0]), row)
    if table.num_rows:
        widths.add(len(columns), 0 if at_good is None else int(at_good[0]), table.num_rows)
    return FastTable(arrays, rows, misfits, widths.others, shown_as_null)


def _one_chunk(column: Any) -> Any:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pyarrow.concat_arrays(column.chunks) if column.num_chunks else pyarrow.array([], column.type)


def _from_text(array: Any, column: Column) -> Tuple[Any, int, int, bool]:
    """Converts text to the column's type, as (array, misfits, first misfit, whether values are shown as null). In a
    large column, equal texts are converted only once.
    """
    encoded = array.dictionary_encode()
    texts = encoded.dictionary
    fast = [_FAST_DATES[form] for form in column.dates if form in _FAST_DATES]
    if fast:
        compute = pyarrow.compute
        if compute.all(compute.match_substring_regex(texts, "^(%s)$" % "|".join(fast))).as_py():
            try:
                return texts.cast(TYPES["datetime"]).take(encoded.indices), 0, -1, False
            except pyarrow.ArrowInvalid:
                pass
    if len(texts) * 2 < len(array):
        converted = convert(column, texts.to_pylist())
        if not converted.misfits:
            return _array(converted.values, column).take(encoded.indices), 0, -1, converted.shown_as_null
    converted = convert(column, array.to_pylist())
    return _array(converted.values, column), converted.misfits, converted.first_misfit, converted.shown_as_null


def _array(values: List[Any], column: Column) -> Any:
    if column.type == "datetime":
        return pyarrow.array(values, pyarrow.int64()).cast(TYPES["datetime"])
    return pyarrow.array(values, TYPES[column.type])
