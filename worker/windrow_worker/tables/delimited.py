"""Mini-batches of delimited files, as DataFrames."""

from __future__ import annotations

import json
import os
from io import open  # a script may replace the one in builtins
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

import pandas

from windrow_worker.loaded import Loaded
from windrow_worker.tables.columns import Column, Misfits, OtherWidth, Widths, convert
from windrow_worker.tables.delimited_text import OpenQuote, Text, records
from windrow_worker.tables.encodings import to_text, to_utf8
from windrow_worker.tables.files import PATH, check_records, misread, printable, read_slice
from windrow_worker.tables.frames import TYPES_WITHOUT_NULLS, WHOLE, WHOLE_AS_FLOATS, frame
from windrow_worker.tables.positions import record_positions

try:
    import pyarrow

    if int(pyarrow.__version__.split(".")[0]) < 10:
        raise ImportError
    from windrow_worker.tables.arrow_delimited import TYPES, read_fast
    from windrow_worker.tables.arrow_frames import frame_of
except ImportError:
    # No pyarrow in the user's environment, or too old a version: only the exact way.
    read_fast = None  # type: ignore[assignment]

_LINES_COUNTED_BYTES_MAX = 64 * 1024 * 1024


class _Table(NamedTuple):
    """A slice by position in the file: Arrow arrays or lists of values; values that did not fit; records with more or
    fewer fields than the header; positions of columns with values that a DataFrame shows as null.
    """

    arrays: List[Any]
    rows: int
    misfits: List[Misfits]
    other_widths: List[OtherWidth]
    shown_as_null: Set[int]


class DelimitedLoader:
    """Reads slices of delimited files by the columns and types that the planner pinned.

    `reader`: `columns` (`Column`), `layouts` (for each kind of file, the column at each position),
    `text`, `encoding`, `path_column`; `fields`: for each kind of file, the fields of its header, null if it has none. A
    recipe: file, size, mtime_ns, begin and end (record boundaries), layout;
    `order`: the layout itself, of a file whose columns come in an order of their own.
    """

    def __init__(self, reader: Dict[str, Any], fast: bool = True, exact_integers: bool = False) -> None:
        """`fast`: False for the exact way only, without pyarrow."""
        self._exact_integers = exact_integers
        self._columns = [Column.from_json(value) for value in reader["columns"]]
        self.whole: Dict[str, bool] = {column.name: column.as_floats for column in self._columns if column.exact}
        """The columns that hold integers of plain files, and of each whether it holds floats."""
        self.as_they_stand: Dict[str, str] = {}
        self.times: List[str] = []
        self._layouts: List[List[int]] = reader["layouts"]
        self._fields: List[Optional[int]] = reader["fields"]
        self._text = Text(**reader["text"])
        self._encoding: str = reader["encoding"]
        self._path_column: bool = reader["path_column"]
        self._fast = fast and read_fast is not None
        self._as_text: Dict[Tuple[int, ...], Set[int]] = {}

    @property
    def types_without_nulls(self) -> Dict[str, str]:
        """The types that integer and boolean columns have without nulls, as `windrow_worker.tables.frames.settled`
        takes them.
        """
        known = TYPES_WITHOUT_NULLS
        return {column.name: known[column.type] for column in self._columns if column.type in known}

    def load(self, recipe: bytes) -> Loaded:
        """Loads one mini-batch. Raises InputChanged, InputMisread, OSError, and ValueError for bytes that are not
        text in the encoding.
        """
        where = json.loads(recipe)
        data = read_slice(where, self._encoding)
        layout = where.get("order") or self._layouts[where["layout"]]
        columns = [self._columns[index] for index in layout]
        fields = self._fields[where["layout"]]
        positions = {index: at for at, index in enumerate(layout)}

        def places() -> Any:
            return record_positions(data, where["begin"], self._encoding, self._text)

        try:
            table = None
            if self._fast:
                utf8 = to_utf8(data, self._encoding, where["begin"])
                as_text = self._as_text.setdefault(tuple(layout), set())
                table = read_fast(utf8, self._text, columns, as_text, fields)
            if table is not None:
                check_records(where, table.rows)
                value = self._arrow_frame(table, positions, where["file"])
                misfits = self._misfits(table, columns, fields, where, data)
                shown_as_null = {columns[at].name for at in table.shown_as_null}
                return Loaded(value, table.rows, misfits, None, places, shown_as_null=shown_as_null)
            text = to_text(data, self._encoding, where["begin"])
            exact = _read_exact(text, self._text, columns, fields, is_last=where["end"] == where["size"])
        except OpenQuote:
            raise misread(where, "ends within quotes that are closed after it") from None
        except ValueError as error:
            raise ValueError("%s cannot be read: %s." % (where["file"], error)) from error
        check_records(where, exact.rows)
        value = self._exact_frame(exact, positions, where["file"])
        misfits = self._misfits(exact, columns, fields, where, data)
        shown_as_null = {columns[at].name for at in exact.shown_as_null}
        return Loaded(value, exact.rows, misfits, None, places, shown_as_null=shown_as_null)

    def _arrow_frame(self, table: Any, positions: Dict[int, int], file: str) -> pandas.DataFrame:
        names, arrays = [], []
        if self._path_column:
            names.append(PATH)
            arrays.append(pyarrow.repeat(printable(file), table.rows))
        for index, column in enumerate(self._columns):
            names.append(column.name)
            arrays.append(
                table.arrays[positions[index]] if index in positions else pyarrow.nulls(table.rows, TYPES[column.type])
            )
        return frame_of(names, arrays, self.whole, self._exact_integers)

    def _exact_frame(self, table: _Table, positions: Dict[int, int], file: str) -> pandas.DataFrame:
        made: List[Tuple[str, str, List[Any]]] = []
        if self._path_column:
            made.append((PATH, "text", [printable(file)] * table.rows))
        for index, column in enumerate(self._columns):
            values = table.arrays[positions[index]] if index in positions else [None] * table.rows
            kind = column.type
            if column.exact and not self._exact_integers:
                kind = WHOLE_AS_FLOATS if column.as_floats else WHOLE
            made.append((column.name, kind, values))
        return frame(made, table.rows, self._exact_integers)

    def _misfits(
        self, table: Any, columns: Sequence[Column], fields: Optional[int], where: Dict[str, Any], data: bytes
    ) -> List[Tuple[str, int, str]]:
        found = []
        for one in table.misfits:
            place = self._place(where, one.row, data)
            example = "%s: %.200r is not of type %s" % (place, one.value, columns[one.position].type)
            found.append((columns[one.position].name, one.number, example))
        norm = "the table %d" % len(columns) if fields is None else "the header %d" % fields
        by_column: Dict[str, List[OtherWidth]] = {}
        for width in table.other_widths:
            # The first column that gets no value, or more than the header names.
            at = min(width.fields, len(columns) if fields is None else fields)
            beyond = width.fields > len(columns) or at == len(columns)
            name = "Column%d" % (len(columns) + 1) if beyond else columns[at].name
            by_column.setdefault(name, []).append(width)
        for name, widths in by_column.items():
            first = min(widths, key=lambda one: one.row)
            fields_of = "%d field%s" % (first.fields, "s" * (first.fields != 1))
            example = "%s: has %s, and %s" % (self._place(where, first.row, data), fields_of, norm)
            found.append((name, sum(one.number for one in widths), example))
        return found

    def _place(self, where: Dict[str, Any], row: int, data: bytes) -> str:
        """The place of a record: its line if lines and records are the same, or else its number in the slice."""
        file, begin = printable(where["file"]), where["begin"]
        plain = "local" not in where and not self._text.multi_line and self._encoding in ("utf-8", "windows-1252")
        if plain and begin <= _LINES_COUNTED_BYTES_MAX and not data.startswith(b"\n") and b"\n\n" not in data:
            with open(os.fsencode(where["file"]), "rb", buffering=0) as opened:
                return "%s, line %d" % (file, opened.read(begin).count(b"\n") + row + 1)
        return "%s, record %d after byte %d" % (file, row + 1, begin)


def _read_exact(data: str, text: Text, columns: Sequence[Column], fields: Optional[int], is_last: bool) -> _Table:
    """The exact way. It needs a few hundred bytes of memory per field. Raises OpenQuote, unless this is the last slice
    of its file.
    """
    width = len(columns)
    rows: List[List[Optional[str]]] = []
    widths = Widths(fields, width)
    for record in records(data, text, is_last):
        widths.add(len(record), len(rows))
        if len(record) > width:
            del record[width:]
        elif len(record) < width:
            record.extend([None] * (width - len(record)))
        rows.append(record)
    arrays: List[Any] = []
    misfits: List[Misfits] = []
    shown_as_null: Set[int] = set()
    for at, column in enumerate(columns):
        values = [row[at] for row in rows]
        converted = convert(column, values)
        arrays.append(converted.values)
        if converted.shown_as_null:
            shown_as_null.add(at)
        if converted.misfits:
            first = converted.first_misfit
            misfits.append(Misfits(at, converted.misfits, first, values[first]))
    return _Table(arrays, len(rows), misfits, widths.others, shown_as_null)
