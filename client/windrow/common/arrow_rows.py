"""Reads the Arrow streams that workers have sent as rows of Parquet.

Scripts run in workers, so a stream may be anything. Arrow trusts what it reads: places beyond the end of a buffer would
be read from the memory of this process, and a few bytes may stand for many gigabytes. So nothing of a batch is used
before it is known that

- it is not compressed: workers do not compress;
- its columns have types whose values are as large as their bytes (`_check_type`);
- what needs no byte, missing values and those of columns that it lacks, is not much more than its bytes;
- all offsets lead into its buffers (`validate(full=True)`).
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from typing import Any, BinaryIO

import pyarrow

from windrow.errors import JobFailed

EMPTY_VALUES_MAX = 1 << 26
EMPTY_VALUES_A_BYTE = 64
"""What needs no byte may be so many values, or this many for each byte that there is, whichever is more."""
_DEPTH_MAX = 64
"""Of types in each other."""
_TYPES = pyarrow.types
_RECORD_BATCH = 3
"""Among the kinds of headers of a message (Arrow's Message.fbs)."""
_COMPRESSION = 3
"""Among the fields of a record batch there."""


class RowsForged(JobFailed):
    """Rows are not what a worker writes; the text says why, and what to do."""


def read_schema(content: bytes) -> pyarrow.Schema:
    """The schema that a message of its own holds. Raises RowsForged."""
    return _checked(lambda: pyarrow.ipc.read_schema(pyarrow.BufferReader(content)))


def schema_of(head: bytes) -> pyarrow.Schema:
    """The schema with which a stream begins. Raises RowsForged."""
    return _checked(lambda: pyarrow.ipc.open_stream(head).schema)


def _checked(read: Any) -> pyarrow.Schema:
    try:
        schema = read()
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise _forged(str(error)) from error
    for field in schema:
        _check_type(field.type, 0)
    return schema


class ArrowRows:
    """The rows of one mini-batch: their schema, and the batches, one in memory at a time."""

    def __init__(self, rows: BinaryIO | io.RawIOBase | bytes, columns: int = 0) -> None:
        """`rows`: the stream, or a file that holds it. `columns`: how many each batch will get. Raises RowsForged,
        OSError.
        """
        self._columns = columns
        source = pyarrow.BufferReader(rows) if isinstance(rows, bytes) else pyarrow.PythonFile(rows, "r")
        self._messages = pyarrow.ipc.MessageReader.open_stream(source)
        first = self._next()
        if first is None or first.type != "schema":
            raise _forged("they do not begin with a schema")
        self.schema: pyarrow.Schema = _checked(lambda: pyarrow.ipc.read_schema(first))

    def __iter__(self) -> Iterator[pyarrow.RecordBatch]:
        """Raises RowsForged, OSError."""
        while (message := self._next()) is not None:
            if message.type != "record batch":
                raise _forged(f"they hold a message of the kind {message.type!r}")
            if _is_compressed(message.metadata):
                raise _forged("they are compressed")
            try:
                batch = pyarrow.ipc.read_record_batch(message, self.schema)
                # A batch without columns has rows, too.
                lacks = max(1, self._columns) - batch.num_columns
                empty = sum(_empty_values(column) for column in batch.columns) + batch.num_rows * max(0, lacks)
                if empty > max(EMPTY_VALUES_MAX, EMPTY_VALUES_A_BYTE * message.body.size):
                    raise _forged(f"{message.body.size:,} bytes of them stand for {empty:,} values")
                batch.validate(full=True)
            except (pyarrow.ArrowException, ValueError) as error:
                raise _forged(str(error)) from error
            yield batch

    def _next(self) -> Any:
        try:
            return self._messages.read_next_message()
        except StopIteration:
            return None
        except (pyarrow.ArrowException, ValueError) as error:
            raise _forged(str(error)) from error


def _check_type(kind: pyarrow.DataType, depth: int) -> None:
    """Raises RowsForged for a type of which a few bytes can stand for many values."""
    if depth < _DEPTH_MAX:
        if _TYPES.is_list(kind) or _TYPES.is_large_list(kind):
            return _check_type(kind.value_type, depth + 1)
        if _TYPES.is_struct(kind):
            for field in kind:
                _check_type(field.type, depth + 1)
            return None
        if _TYPES.is_map(kind):
            _check_type(kind.key_type, depth + 1)
            return _check_type(kind.item_type, depth + 1)
        is_text = _TYPES.is_string(kind) or _TYPES.is_binary(kind) or _TYPES.is_large_string(kind)
        is_sized = _TYPES.is_fixed_size_binary(kind) and kind.byte_width > 0
        if is_text or is_sized or _TYPES.is_large_binary(kind) or _TYPES.is_null(kind) or _TYPES.is_boolean(kind):
            return None
        if _TYPES.is_primitive(kind) or _TYPES.is_decimal(kind):
            return None
    raise _forged(f"they have a column of the type {str(kind)[:200]}")


def _empty_values(array: Any) -> int:
    """How many values an array holds, with those in its lists and structs, for which there need be no byte."""
    kind = array.type
    if _TYPES.is_null(kind):
        return len(array)
    if _TYPES.is_struct(kind):
        if not kind.num_fields:
            return len(array)
        return sum(_empty_values(array.field(at)) for at in range(kind.num_fields))
    if _TYPES.is_map(kind):
        return _empty_values(array.keys) + _empty_values(array.items)
    if _TYPES.is_list(kind) or _TYPES.is_large_list(kind):
        return _empty_values(array.values)
    return 0


def _is_compressed(metadata: Any) -> bool:
    """Whether the header of a record batch names a compression. Arrow has checked the FlatBuffer that it is."""
    content = memoryview(metadata)
    try:
        message = _Table(content, struct.unpack_from("<I", content, 0)[0])
        if message.number(1) != _RECORD_BATCH:
            raise _forged("they hold a message that is no batch of rows")
        place = message.place_of(2)
        batch = _Table(content, place + struct.unpack_from("<I", content, place)[0])
        return bool(batch.place_of(_COMPRESSION))
    except struct.error as error:
        raise _forged("their header cannot be read") from error


class _Table:
    """A table of a FlatBuffer: where its fields are."""

    def __init__(self, content: memoryview, place: int) -> None:
        self._content = content
        self._place = place
        self._fields = place - struct.unpack_from("<i", content, place)[0]
        if not 0 <= self._fields < len(content):
            raise struct.error
        self._size: int = struct.unpack_from("<H", content, self._fields)[0]

    def place_of(self, number: int) -> int:
        """Where a field is; 0: it is not there."""
        at = 4 + 2 * number
        if at + 2 > self._size:
            return 0
        offset: int = struct.unpack_from("<H", self._content, self._fields + at)[0]
        return self._place + offset if offset else 0

    def number(self, number: int) -> int:
        """A field of one byte; 0: it is not there."""
        place = self.place_of(number)
        return self._content[place] if 0 < place < len(self._content) else 0


def _forged(why: str) -> RowsForged:
    return RowsForged(
        "The rows of a mini-batch are not what a worker of Windrow writes: "
        f"{' '.join(why.split())[:500].rstrip('.')}. The script must have changed what its worker sends. Run the job "
        "again as a new one, with a script that does not."
    )
