"""The file of sorted rows: Arrow batches of a fixed number of rows, which workers map, and the groups in it.

Beside it stand its checksums: one for what comes before the first batch, one for each batch, and one for what comes
after the last, so that a worker verifies what it reads, when it reads it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO
from zlib import crc32

import numpy
import pyarrow
import pyarrow.compute
from windrow_worker.tables.sorted_sums import SUM, SUMS

from windrow_master.arrow_sink import ArrowSink

BATCH_ROWS = 65_536


class SortedRows:
    """Writes sorted rows and finds where their groups begin.

    Not the `SortedRows` of `shell.sorted_rows`, which knows where such rows are and when they go.
    """

    def __init__(self, path: str, schema: pyarrow.Schema, keys: Sequence[str]) -> None:
        """Raises OSError."""
        self._path = path
        self._file = open(path, "wb")  # noqa: SIM115  # closed by `finish`
        self._target = ArrowSink(self._put)
        self._part_crc32 = 0
        self._sums: list[bytes] = []
        self._writer = pyarrow.ipc.new_file(self._target, schema)
        self._end_part()
        self._keys = keys
        self._waiting: list[pyarrow.Table] = []
        self._waiting_rows = 0
        self._last: pyarrow.Table | None = None
        self.rows = 0

    def append(self, rows: pyarrow.Table) -> Iterator[tuple[int, list[Any]]]:
        """Append rows; yield (number of its first row, values of the keys) of each group that begins in them."""
        first = self.rows
        keys = rows.select(self._keys).combine_chunks()
        begins = self._begins(keys)
        self.rows += rows.num_rows
        self._last = keys.slice(rows.num_rows - 1)
        columns = [column.take(pyarrow.array(begins)).to_pylist() for column in keys.columns]
        yield from zip((begins + first).tolist(), map(list, zip(*columns, strict=True)), strict=True)
        self._waiting.append(rows)
        self._waiting_rows += rows.num_rows
        while self._waiting_rows >= BATCH_ROWS:
            self._write(BATCH_ROWS)

    def finish(self) -> int:
        """Put all on disk; return the crc32 of the file of checksums. Raises OSError."""
        if self._waiting_rows:
            self._write(self._waiting_rows)
        self._writer.close()
        self._end_part()
        _close_durably(self._file)
        sums = b"".join(self._sums)
        with open(self._path + SUMS, "wb") as file:
            file.write(sums)
            _close_durably(file)
        return crc32(sums)

    def _write(self, rows: int) -> None:
        joined = pyarrow.concat_tables(self._waiting)
        (batch,) = joined.slice(0, rows).combine_chunks().to_batches()
        self._writer.write_batch(batch)
        self._end_part()
        self._waiting_rows -= rows
        self._waiting = [joined.slice(rows)] if self._waiting_rows else []

    def _put(self, piece: memoryview) -> None:
        self._file.write(piece)
        self._part_crc32 = crc32(piece, self._part_crc32)

    def _end_part(self) -> None:
        """End a part: what follows has its own checksum."""
        self._sums.append(SUM.pack(self._target.length, self._part_crc32))
        self._part_crc32 = 0

    def _begins(self, keys: pyarrow.Table) -> numpy.ndarray:
        """The positions in these rows at which a group begins."""
        rows = keys.num_rows
        changed = numpy.zeros(rows, dtype=bool)
        changed[0] = self._last is None
        for name in self._keys:
            column = _comparable(keys.column(name))
            if self._last is not None:
                before = self._last.column(name)[0]
                changed[0] |= before.as_py() != column[0].as_py()
            changed[1:] |= _differ(column.slice(0, rows - 1), column.slice(1))
        return numpy.flatnonzero(changed)


def _close_durably(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
    file.close()


def _comparable(column: pyarrow.ChunkedArray) -> pyarrow.Array:
    array = column.chunk(0) if column.num_chunks == 1 else pyarrow.concat_arrays(column.chunks)
    # Arrow does not compare half floats.
    return array.cast(pyarrow.float32()) if pyarrow.types.is_float16(array.type) else array


def _differ(left: pyarrow.Array, right: pyarrow.Array) -> numpy.ndarray:
    compute = pyarrow.compute
    nulls = compute.xor(compute.is_null(left), compute.is_null(right))
    differ = compute.or_(compute.fill_null(compute.not_equal(left, right), False), nulls)
    found: numpy.ndarray = differ.to_numpy(zero_copy_only=False)
    return found
