"""Rows of a Parquet file, which the master writes. A worker sends the rows of a mini-batch as an Arrow IPC stream, and
the names and types of their columns as its header.

The header is JSON: a list of [name, type as text, the column's Arrow schema in base64]. Types that would differ in
Parquet or in other mini-batches are simplified: categories become their values, large texts become texts.
"""

from __future__ import annotations

import base64
import json

import pyarrow
import pyarrow.parquet

from windrow_worker.rows.formats import Written
from windrow_worker.rows.formats.mappings import check_rows, column_names, frame_names, is_missing
from windrow_worker.rows.return_values import CLEANING, BadReturn, is_dataframe, unwritable_character

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict


_BATCH_ROWS = 65536


class ParquetRowsWriter:
    """The `FormatWriter` of Parquet. One serves one step."""

    def __init__(self) -> None:
        self._headers: Dict[Any, bytes] = {}

    def write(self, value: Any, write: Callable[[Any], None]) -> Written:
        """Writes the rows of a value; `FormatWriter.write` says what it may raise."""
        if is_dataframe(value):
            if not len(value) and not value.shape[1]:
                return Written(b"", 0)
            table = _table_of_frame(value)
        else:
            check_rows(value, "parquet")
            if not len(value):
                return Written(b"", 0)
            table = _table_of_rows(value)
        table = _plain(table)
        if table.num_columns == 0:
            raise BadReturn("What run() returned has no columns; a Parquet file needs some")
        header = self._header_of(table.schema)
        if table.num_rows:
            with pyarrow.PythonFile(_Target(write), "w") as target, pyarrow.ipc.new_stream(target, table.schema) as out:
                out.write_table(table, max_chunksize=_BATCH_ROWS)
        return Written(header, table.num_rows)

    def _header_of(self, schema: Any) -> bytes:
        header = self._headers.get(schema)
        if header is None:
            try:
                with pyarrow.parquet.ParquetWriter(pyarrow.BufferOutputStream(), schema) as writer:
                    writer.write_table(schema.empty_table())
            except pyarrow.ArrowException as error:
                raise BadReturn(
                    f"What run() returned cannot be written as Parquet: {error}. Convert such columns to a type that "
                    "Parquet has"
                ) from error
            columns = [[field.name, str(field.type), _packed(field)] for field in schema]
            header = self._headers[schema] = json.dumps(columns, separators=(",", ":")).encode()
        return header


class _Target:
    """A write-only file, for Arrow."""

    closed = False

    def __init__(self, write: Callable[[Any], None]) -> None:
        self._write = write

    def write(self, data: Any) -> int:
        piece = bytes(data)
        self._write(piece)
        return len(piece)

    def flush(self) -> None:
        """Does nothing: there is no buffer."""

    def close(self) -> None:
        self.closed = True


def _packed(field: Any) -> str:
    return base64.b64encode(pyarrow.schema([field]).serialize().to_pybytes()).decode("ascii")


def _table_of_frame(frame: Any) -> Any:
    names = frame_names(frame, "parquet")
    try:
        table = pyarrow.Table.from_pandas(frame, preserve_index=False)
    except UnicodeEncodeError as error:
        raise BadReturn(_surrogate(error)) from error
    except (pyarrow.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise BadReturn(
            f"The returned DataFrame cannot be written as Parquet: {' '.join(map(str, error.args))}. Give each column "
            "one type, for example by astype()"
        ) from error
    return table.rename_columns(names)


def _table_of_rows(rows: Any) -> Any:
    names = column_names(rows)
    arrays = []
    for name in names:
        try:
            values = [row.get(name) for row in rows]
            # Arrow treats NaN as missing for Python floats, and for no other number type.
            arrays.append(pyarrow.array([None if is_missing(value) else value for value in values], from_pandas=True))
        except UnicodeEncodeError as error:
            raise BadReturn(_surrogate(error)) from error
        except (pyarrow.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise BadReturn(
                f"The values of {name!r} in the rows that run() returned cannot be one column of a Parquet file: "
                f"{error}. Give them one type"
            ) from error
    return pyarrow.table(arrays, names=names)


def _surrogate(error: UnicodeEncodeError) -> str:
    return (
        f"The text {error.object[:80]!r} in what run() returned holds {unwritable_character(error)}, which no Parquet "
        f"file can hold. {CLEANING}"
    )


def _plain(table: Any) -> Any:
    fields = []
    for field in table.schema:
        kind = _plain_type(field.type)
        if isinstance(kind, pyarrow.BaseExtensionType):
            raise BadReturn(
                f"The column {field.name!r} is of type {kind}, which a Parquet file does not have. Convert it, for "
                "example by astype(str)"
            )
        fields.append(pyarrow.field(field.name, kind))
    schema = pyarrow.schema(fields)
    # pandas' metadata about its index is useless in a file of many mini-batches.
    table = table.replace_schema_metadata()
    try:
        return table.cast(schema) if table.schema != schema else table
    except pyarrow.ArrowException as error:
        raise BadReturn(f"What run() returned cannot be written as Parquet: {error}") from error


def _plain_type(kind: Any) -> Any:
    types = pyarrow.types
    if types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if types.is_large_string(kind) or str(kind) == "string_view":
        return pyarrow.string()
    if types.is_large_binary(kind) or str(kind) == "binary_view":
        return pyarrow.binary()
    if types.is_float16(kind):
        return pyarrow.float32()
    if types.is_timestamp(kind) and kind.unit == "s":
        return pyarrow.timestamp("ms", kind.tz)
    if types.is_decimal(kind) and kind.bit_width <= 128:
        # The number of digits depends on the values, and another mini-batch may need more.
        return pyarrow.decimal128(38, kind.scale)
    return kind
