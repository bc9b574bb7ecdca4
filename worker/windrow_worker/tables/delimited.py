"""Mini-batches of delimited files, as DataFrames."""

from __future__ import annotations

import json
import os
from io import open  # a script may replace the one in builtins
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

import pandas

from windrow_worker.loaded import Loaded
from windrow_worker.tables.columns import Column, Misfits, convert
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
    """A slice by position in the file: Arrow arrays or lists of values; values that did not fit; records that are
    too wide.
    """

    arrays: List[Any]
    rows: int
    misfits: List[Misfits]
    wide_rows: int
    first_wide_row: int


class DelimitedLoader:
    """Reads slices of delimited files by the columns and types that the planner pinned.

    `reader`: `columns` (`Column`), `layouts` (for each kind of file, the column at each position),
    `text`, `encoding`, `path_column`. A recipe: file, size, mtime_ns, begin and end (record boundaries), layout;
    `order`: the layout itself, of a file whose columns come in an order of their own.
    """

    def __init__(self, reader: Dict[str, Any], fast: bool = True, exact_integers: bool = False) -> None:
        """`fast`: False for the exact way only, without pyarrow."""
        self._exact_integers = exact_integers
        self._columns = [Column.from_json(value) for value in reader["columns"]]
        self.whole: Dict[str, bool] = {column.name: column.as_floats for column in self._columns if column.exact}
        """The columns that hold integers of plain files, and of each whether it holds floats."""
        self._layouts: List[List[int]] = reader["layouts"]
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
        positions = {index: at for at, index in enumerate(layout)}

        def places() -> Any:
            return record_positions(data, where["begin"], self._encoding, self._text)

        try:
            table = None
            if self._fast:
                utf8 = to_utf8(data, self._encoding, where["begin"])
                as_text = self._as_text.setdefault(tuple(layout), set())
                table = read_fast(utf8, self._text, columns, as_text)
            if table is not None:
                check_records(where, table.rows)
                value = self._arrow_frame(table, positions, where["file"])
                return Loaded(value, table.rows, self._misfits(table, columns, where, data), None, places)
            text = to_text(data, self._encoding, where["begin"])
            exact = _read_exact(text, self._text, columns, is_last=where["end"] == where["size"])
        except OpenQuote:
            raise misread(where, "ends within quotes that are closed after it") from None
        except ValueError as error:
            raise ValueError("%s cannot be read: %s." % (where["file"], error)) from error
        check_records(where, exact.rows)
        value = self._exact_frame(exact, positions, where["file"])
        return Loaded(value, exact.rows, self._misfits(exact, columns, where, data), None, places)

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
        self, table: Any, columns: Sequence[Column], where: Dict[str, Any], data: bytes
    ) -> List[Tuple[str, int, str]]:
        found = []
        for one in table.misfits:
            place = self._place(where, one.row, data)
            example = "%s: %.200r is not of type %s" % (place, one.value, columns[one.position].type)
            found.append((columns[one.position].name, one.number, example))
        if table.wide_rows:
            place = self._place(where, table.first_wide_row, data)
            example = "%s: has more fields than the %d of the table" % (place, len(columns))
            found.append(("Column%d" % (len(columns) + 1), table.wide_rows, example))
        return found

    def _place(self, where: Dict[str, Any], row: int, data: bytes) -> str:
        """The place of a record: its line if lines and records are the same, or else its number in the slice."""
        file, begin = printable(where["file"]), where["begin"]
        plain = "local" not in where and not self._text.multi_line and self._encoding in ("utf-8", "windows-1252")
        if plain and begin <= _LINES_COUNTED_BYTES_MAX and not data.startswith(b"\n") and b"\n\n" not in data:
            with open(os.fsencode(where["file"]), "rb", buffering=0) as opened:
                return "%s, line %d" % (file, opened.read(begin).count(b"\n") + row + 1)
        return "%s, record %d after byte %d" % (file, row + 1, begin)


def _read_exact(data: str, text: Text, columns: Sequence[Column], is_last: bool) -> _Table:
    """The exact way. It needs a few hundred bytes of memory per field. Raises OpenQuote, unless this is the last slice
    of its file.
    """
    width = len(columns)
    rows: List[List[Optional[str]]] = []
    wide_rows, first_wide_row = 0, -1
    for record in records(data, text, is_last):
        if len(record) != width:
            if len(record) > width:
                if not wide_rows:
                    first_wide_row = len(rows)
                wide_rows += 1
                del record[width:]
            else:
                record.extend([None] * (width - len(record)))
        rows.append(record)
    arrays: List[Any] = []
    misfits: List[Misfits] = []
    for at, column in enumerate(columns):
        values = [row[at] for row in rows]
        converted = convert(column, values)
        arrays.append(converted.values)
        if converted.misfits:
            first = converted.first_misfit
            misfits.append(Misfits(at, converted.misfits, first, values[first]))
    return _Table(arrays, len(rows), misfits, wide_rows, first_wide_row)
