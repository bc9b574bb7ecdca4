"""A Parquet file from the rows of mini-batches, each an Arrow IPC stream, in output order and bounded memory.

The file is a function of the rows: it has their columns, with the types that hold for all (`output/fitting.py`). A row
group ends at the end of a batch, where it would pass ROW_GROUP_ROWS rows or ROW_GROUP_BYTES bytes.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, BinaryIO

import pyarrow
import pyarrow.parquet
from windrow.common.arrow_rows import ArrowRows

from windrow_master.arrow_sink import ArrowSink
from windrow_master.output.fitting import ArrowFitting

ROW_GROUP_ROWS = 1 << 20
ROW_GROUP_BYTES = 64 << 20
"""Of rows in memory; they are smaller in the file."""


class ParquetFile:
    """One file: `append` each mini-batch, then `finish`."""

    def __init__(self, fitting: ArrowFitting, put: Callable[[memoryview], object]) -> None:
        """`put` takes the file's bytes in order, and keeps no view of them."""
        self._fitting = fitting
        self._target = ArrowSink(put)
        self._writer = pyarrow.parquet.ParquetWriter(pyarrow.PythonFile(self._target, "w"), fitting.schema)
        self._batches: list[Any] = []
        self._rows = 0
        self._bytes = 0

    def append(self, rows: BinaryIO | io.RawIOBase) -> None:
        """Append a mini-batch: a file that holds its Arrow stream. Raises OSError, RowsForged, and as
        `ArrowFitting.fit_batch`.
        """
        for batch in ArrowRows(rows, len(self._fitting.schema)):
            if self._rows and (
                self._rows + batch.num_rows > ROW_GROUP_ROWS or self._bytes + batch.nbytes > ROW_GROUP_BYTES
            ):
                self._write_row_group()
            self._batches.append(self._fitting.fit_batch(batch))
            self._rows += batch.num_rows
            self._bytes += batch.nbytes

    def finish(self) -> None:
        """Write what is left, and the footer. Raises OSError."""
        self._write_row_group()
        self._writer.close()

    def abandon(self) -> None:
        """Close an unfinished file without writing another byte. Does nothing after `finish`."""
        self._target.put = _nothing
        self._writer.close()

    def _write_row_group(self) -> None:
        if self._rows:
            table = pyarrow.Table.from_batches(self._batches, self._fitting.schema)
            self._writer.write_table(table, row_group_size=table.num_rows)
            self._batches, self._rows, self._bytes = [], 0, 0


def _nothing(piece: memoryview) -> None:
    """Discards a piece."""
