"""The file of sorted rows: Arrow batches of so many rows each, which workers map, and the groups in it.

Beside it stand its checksums: one for what comes before the first batch, one for each batch, and one for what comes
behind the last, so that a worker verifies what it reads, when it reads it.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from typing import Any
from zlib import crc32

import numpy
import pyarrow
import pyarrow.compute

BATCH_ROWS = 65_536
SUMS = ".sums"
"""Added to the name of the file: that of its checksums."""
SUM = struct.Struct("<QI")
"""Of a part of the file: where it ends, and its crc32."""


class SortedRows:
    """Writes sorted rows, and tells where their groups begin."""

    def __init__(self, path: str, schema: pyarrow.Schema, keys: Sequence[str]) -> None:
        """Raises OSError."""
        self._path = path
        self._file = _Summed(path)
        self._writer = pyarrow.ipc.new_file(self._file, schema)
        self._file.end_part()
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
        self._file.end_part()
        self._file.finish()
        sums = b"".join(self._file.sums)
        with open(self._path + SUMS, "wb") as file:
            file.write(sums)
            file.flush()
            os.fsync(file.fileno())
        return crc32(sums)

    def _write(self, rows: int) -> None:
        joined = pyarrow.concat_tables(self._waiting)
        (batch,) = joined.slice(0, rows).combine_chunks().to_batches()
        self._writer.write_batch(batch)
        self._file.end_part()
        self._waiting_rows -= rows
        self._waiting = [joined.slice(rows)] if self._waiting_rows else []

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


class _Summed:
    """A file that only takes bytes, for Arrow, and keeps the checksums of what it was given."""

    closed = False

    def __init__(self, path: str) -> None:
        self._file = open(path, "wb")  # noqa: SIM115  # closed by `finish`
        self._length = 0
        self._checksum = 0
        self.sums: list[bytes] = []

    def write(self, data: Any) -> int:
        piece = memoryview(data).cast("B")
        self._file.write(piece)
        self._checksum = crc32(piece, self._checksum)
        self._length += len(piece)
        return len(piece)

    def tell(self) -> int:
        return self._length

    def flush(self) -> None:
        """Nothing waits here that `finish` does not write."""

    def close(self) -> None:
        """Arrow is done with it."""

    def end_part(self) -> None:
        """What comes now has a checksum of its own."""
        self.sums.append(SUM.pack(self._length, self._checksum))
        self._checksum = 0

    def finish(self) -> None:
        """Put all on disk. Raises OSError."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()


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
