"""Mini-batches of a table that is divided by columns of its data: runs of rows in a sorted file, which is mapped.

A DataFrame of ten rows costs as much as one of ten thousand. So if several mini-batches come from one batch of the
file, the batch becomes a DataFrame once, which is then cut. This excludes columns whose part would differ from the
whole (integers and booleans beside nulls), or would share mutable values.

Each batch is verified when it is read, with the checksums beside the file.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Optional

import pandas
import pyarrow

from windrow_worker.loaded import InputMisread, Loaded
from windrow_worker.tables.files import check_unchanged, open_listed, printable
from windrow_worker.tables.sorted_sums import SortedSums

_COPIES_ON_WRITE = int(pandas.__version__.split(".")[0]) >= 3


class SortedRowsLoader:
    """Reads runs of rows. `reader`: `file`, `size`, `mtime_ns`, `sums_crc32`, `batch_rows`,
    `json_columns`, `categories`, `partition`.

    A recipe: `rows`, `begin` (the first one's number in the file), `key` (for reports).
    """

    def __init__(self, reader: Dict[str, Any]) -> None:
        self._reader = reader
        self._batch_rows: int = reader["batch_rows"]
        self._json_columns: List[str] = reader["json_columns"]
        self._categories: List[str] = reader["categories"]
        self._keys: List[str] = reader["partition"]["keys"]
        self._file: Any = None
        self._map: Any = None
        self._sums: Optional[SortedSums] = None
        self._batch_number = -1
        self._batch: Any = None
        self._frame: Any = None

    def load(self, recipe: bytes) -> Loaded:
        """Loads one mini-batch. Raises InputChanged, also for a damaged file, InputMisread and OSError."""
        where = json.loads(recipe)
        begin, end = where["begin"], where["begin"] + where["rows"]
        number = begin // self._batch_rows
        again = number == self._batch_number
        first = number * self._batch_rows
        batch = self._batch_of(number)
        key = {name: batch.column(name)[begin - first].as_py() for name in self._keys}
        if again and end - first <= batch.num_rows:
            value = self._cut(batch, begin - first, end - first)
        else:
            value = self._made(self._rows(begin, end))
        if len(value) != where["rows"]:
            raise InputMisread(
                "Rows %d to %d of the sorted rows in %s are not there: %d of them were found, and none was run. Run "
                "the job again, so that the rows are sorted again."
                % (begin, end, printable(self._reader["file"]), len(value))
            )
        return Loaded(value, len(value), (), key)

    def _cut(self, batch: Any, begin: int, end: int) -> pandas.DataFrame:
        """A run of rows, cut from the DataFrame of their batch."""
        if self._frame is None:
            alike = [column.name for column in batch.schema if _cuts_alike(batch.column(column.name))]
            own = [name for name in batch.schema.names if name not in alike or name in self._json_columns]
            own += [name for name in self._categories if name not in own]
            shared = batch.select([name for name in batch.schema.names if name not in own])
            self._frame = shared.to_pandas(), own
        shared, own = self._frame
        value = shared.iloc[begin:end]
        if not _COPIES_ON_WRITE:
            value = value.copy()
        value.index = pandas.RangeIndex(end - begin)
        if own:
            made = self._made(pyarrow.Table.from_batches([batch.slice(begin, end - begin)]).select(own))
            value = pandas.concat([value, made], axis=1)[batch.schema.names]
        return value

    def _rows(self, begin: int, end: int) -> Any:
        parts = []
        while begin < end:
            number = begin // self._batch_rows
            first = number * self._batch_rows
            part = self._batch_of(number).slice(begin - first, end - begin)
            parts.append(part)
            begin += part.num_rows
        return pyarrow.Table.from_batches(parts)

    def _made(self, table: Any) -> pandas.DataFrame:
        value = table.to_pandas()
        for name in self._categories:
            if name in value:
                value[name] = value[name].astype("category")
        for name in self._json_columns:
            if name in value:
                texts = table.column(name).to_pylist()
                value[name] = pandas.Series(
                    [None if text is None else json.loads(text) for text in texts], dtype=object
                )
        return value

    def _batch_of(self, number: int) -> Any:
        if self._file is None:
            self._file = self._opened()
        if number != self._batch_number:
            self._verify(number + 1)
            self._batch, self._frame = self._file.get_batch(number), None
            self._batch_number = number
        return self._batch

    def _opened(self) -> Any:
        name = self._reader["file"]
        with open_listed(name) as file:
            check_unchanged(file, name, self._reader["size"], self._reader["mtime_ns"])
        self._sums = SortedSums(name, self._reader["sums_crc32"])
        self._map = pyarrow.memory_map(name)
        # Batches are found by the parts before and after them.
        self._verify(0)
        self._verify(len(self._sums) - 1)
        return pyarrow.ipc.open_file(self._map)

    def _verify(self, part: int) -> None:
        """Raises InputChanged if a part of the file is not what was written."""
        assert self._sums is not None
        self._sums.verify(part, self._read)

    def _read(self, begin: int, length: int) -> Any:
        self._map.seek(begin)
        return self._map.read_buffer(length)


def _cuts_alike(column: Any) -> bool:
    """Whether a part of a column equals that part of the whole column, and shares no mutable values with other
    parts.
    """
    kind, types = column.type, pyarrow.types
    if types.is_integer(kind) or types.is_boolean(kind):
        return bool(column.null_count == 0)
    return bool(types.is_floating(kind) or types.is_string(kind) or types.is_timestamp(kind))
