"""A Parquet file from the rows of mini-batches, each an Arrow IPC stream, in output order and bounded memory.

The file is a function of the rows and of the step's columns (`core/headers.py`): columns stand in the order of the
first mini-batch that has rows, with the types that hold for all. A row group ends at the end of a batch, where it would
pass ROW_GROUP_ROWS rows or ROW_GROUP_BYTES bytes.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from typing import Any, BinaryIO

import pyarrow
import pyarrow.parquet

from windrow_master.arrow_sink import ArrowSink
from windrow_master.core.headers import columns_of

ROW_GROUP_ROWS = 1 << 20
ROW_GROUP_BYTES = 64 << 20
"""Of rows in memory; in the file they are smaller."""


class ParquetFile:
    """One file: `append` each mini-batch, then `finish`."""

    def __init__(self, header: bytes | None, put: Callable[[memoryview], object]) -> None:
        """`header`: the step's columns, None where no mini-batch had any; `put` takes the file's bytes in order,
        and keeps no view of them."""
        self._types = {column.name: _unpacked(column.packed) for column in columns_of(header or b"[]")}
        self._target = ArrowSink(put)
        self._writer: Any = None
        self._batches: list[Any] = []
        self._rows = 0
        self._bytes = 0

    def append(self, rows: BinaryIO | io.RawIOBase) -> None:
        """Append a mini-batch: a file that holds its Arrow stream. Raises OSError."""
        with pyarrow.ipc.open_stream(pyarrow.PythonFile(rows, "r")) as stream:
            if self._writer is None:
                self._begin(stream.schema.names)
            for batch in stream:
                if self._rows and (
                    self._rows + batch.num_rows > ROW_GROUP_ROWS or self._bytes + batch.nbytes > ROW_GROUP_BYTES
                ):
                    self._write_row_group()
                self._batches.append(self._fitted(batch))
                self._rows += batch.num_rows
                self._bytes += batch.nbytes

    def finish(self) -> None:
        """Write what is left, and the footer. Raises OSError."""
        if self._writer is None:
            self._begin(list(self._types))
        self._write_row_group()
        self._writer.close()

    def abandon(self) -> None:
        """Let go of what is begun and not finished, without another byte written. Nothing after `finish`."""
        self._target.put = _nothing
        if self._writer is not None:
            self._writer.close()

    def _begin(self, names: list[str]) -> None:
        self._schema = pyarrow.schema([pyarrow.field(name, self._types[name]) for name in names])
        self._writer = pyarrow.parquet.ParquetWriter(pyarrow.PythonFile(self._target, "w"), self._schema)

    def _fitted(self, batch: Any) -> Any:
        """A batch with the columns that hold for the whole file."""
        arrays = []
        for field in self._schema:
            array = batch.column(batch.schema.get_field_index(field.name))
            # Not checked for digits lost: of int64 in a column of float64, these are the ones beyond 2**53.
            arrays.append(array if array.type == field.type else array.cast(field.type, safe=False))
        return pyarrow.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _write_row_group(self) -> None:
        if self._rows:
            table = pyarrow.Table.from_batches(self._batches, self._schema)
            self._writer.write_table(table, row_group_size=table.num_rows)
            self._batches, self._rows, self._bytes = [], 0, 0


def _nothing(piece: memoryview) -> None:
    """Takes a piece nowhere."""


def _unpacked(packed: str) -> Any:
    kind = pyarrow.ipc.read_schema(pyarrow.BufferReader(base64.b64decode(packed))).field(0).type
    # A column without any value is one of texts: few readers know a column without a type.
    return pyarrow.string() if pyarrow.types.is_null(kind) else kind
