"""Rows of a Parquet file, which the master writes. A worker sends the rows of a mini-batch as an Arrow IPC stream, and
its schema as the header.

Types that would differ in Parquet or in other mini-batches are simplified: categories become their values, large texts
become texts. A column whose values no type holds becomes text; its field tells which types they have.
"""

from __future__ import annotations

import sys
from datetime import date, datetime
from decimal import Decimal

import pyarrow
import pyarrow.parquet

from windrow_worker.rows.formats import Written
from windrow_worker.rows.formats.arrow_columns import (
    becomes_text,
    fit_array,
    fit_table,
    join_schemas,
    join_types,
    mixed_field,
    settle_type,
)
from windrow_worker.rows.formats.mappings import check_rows, column_names, frame_names, is_missing
from windrow_worker.rows.return_values import CLEANING, BadReturn, is_dataframe, unwritable_character

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Set, Tuple


_BATCH_ROWS = 65536

_NONE = {type(None)}
_ALIKE = {dict, type(None)}
_TEXTS = {str, type(None)}
_LISTS = {list, tuple}
_SCALARS = {str, bytes, bool, int, float, date, Decimal}


class ParquetRowsWriter:
    """The `FormatWriter` of Parquet. One serves one step."""

    def __init__(self) -> None:
        self._headers: Set[bytes] = set()
        """Those that can be written."""

    def write(self, value: Any, write: Callable[[Any], None]) -> Written:
        """Writes the rows of a value; `FormatWriter.write` says what it may raise."""
        if is_dataframe(value):
            if not len(value) and not value.shape[1]:
                return Written(b"", 0)
            if not value.shape[1]:
                raise BadReturn("The DataFrame that run() returned has no columns; a Parquet file needs some")
            table = _table_of_frame(value)
        else:
            check_rows(value, "parquet")
            if not len(value):
                return Written(b"", 0)
            table = _table_of_rows(value)
        return Written(self._write(table, write), table.num_rows)

    def join(self, parts: List[bytes], write: Callable[[Any], None]) -> bytes:
        """Writes parts as one; `FormatWriter.join` says how."""
        tables = [pyarrow.ipc.open_stream(part).read_all() for part in parts]
        schema = join_schemas([(table.schema, bool(table.num_rows)) for table in tables])
        return self._write(pyarrow.concat_tables([fit_table(table, schema) for table in tables]), write)

    def _write(self, table: Any, write: Callable[[Any], None]) -> bytes:
        header = self._header_of(table.schema)
        with pyarrow.PythonFile(_Target(write), "w") as target, pyarrow.ipc.new_stream(target, table.schema) as out:
            out.write_table(table, max_chunksize=_BATCH_ROWS)
        return header

    def _header_of(self, schema: Any) -> bytes:
        header: bytes = schema.serialize().to_pybytes()
        if header not in self._headers:
            settled = pyarrow.schema([pyarrow.field(field.name, settle_type(field.type)) for field in schema])
            try:
                with pyarrow.parquet.ParquetWriter(pyarrow.BufferOutputStream(), settled) as writer:
                    writer.write_table(settled.empty_table())
            except pyarrow.ArrowException as error:
                raise BadReturn(
                    f"What run() returned cannot be written as Parquet: {error}. Convert such columns to a type that "
                    "Parquet has"
                ) from error
            self._headers.add(header)
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


def _table_of_frame(frame: Any) -> Any:
    names = frame_names(frame, "parquet")
    columns = [frame.iloc[:, at] for at in range(len(names))]
    return _table(names, [_of_objects(column) if column.dtype == object else column for column in columns])


def _of_objects(column: Any) -> List[Any]:
    """The values of a column of objects, None for those that are missing."""
    values: List[Any] = column.tolist()
    if set(map(type, values)) <= _TEXTS:
        return values
    return _without_missing(values)


def _without_missing(values: List[Any]) -> List[Any]:
    # Arrow treats NaN as missing for Python floats, and for no other number type.
    return [None if is_missing(value) else value for value in values]


def _table_of_rows(rows: Any) -> Any:
    names = column_names(rows)
    if not names:
        # Empty dicts: the file may get columns from other rows.
        return pyarrow.Table.from_batches([pyarrow.RecordBatch.from_struct_array(pyarrow.array([{}] * len(rows)))])
    return _table(names, [_without_missing([row.get(name) for row in rows]) for name in names])


def _table(names: List[str], columns: List[Any]) -> Any:
    """A table of columns: lists of values, or Series of pandas that have a type. Raises BadReturn."""
    fields, arrays = [], []
    for name, column in zip(names, columns):
        try:
            if isinstance(column, list):
                array, mixed = _array_of(column)
            else:
                array, mixed = _arrow_array(column), []
        except UnicodeEncodeError as error:
            raise BadReturn(_surrogate(error)) from error
        except (pyarrow.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise BadReturn(
                f"The values of {name!r} in the rows that run() returned cannot be one column of a Parquet file: "
                f"{error}. Convert them to a type that Parquet has, or to text"
            ) from error
        if isinstance(array.type, pyarrow.BaseExtensionType):
            raise BadReturn(
                f"The column {name!r} is of type {array.type}, which a Parquet file does not have. Convert it, for "
                "example by astype(str)"
            )
        fields.append(mixed_field(name, array.type, mixed))
        arrays.append(array)
    return pyarrow.table(arrays, schema=pyarrow.schema(fields))


def _array_of(values: List[Any]) -> Tuple[Any, List[str]]:
    """An array that holds the values, and their types if it holds them as text because no other type does.

    Arrow's own choice for a list depends on which value comes first: it makes a date of a datetime behind a date, and
    a float of True behind a float. So Arrow gets values of one type only.
    """
    kinds = set(map(type, values)) - _NONE
    try:
        if all(kind is int or issubclass(kind, float) for kind in kinds) or (
            len(kinds) == 1 and all(map(_is_scalar, kinds))
        ):
            return _arrow_array(values), []
    except (OverflowError, pyarrow.ArrowInvalid):
        # A whole number that int64, or float64 beside floats, does not hold.
        return _joined([([at], _array_of_one(value)) for at, value in enumerate(values)])
    if kinds <= _LISTS:
        return _array_of_lists(values)
    if kinds == {dict}:
        return _array_of_dicts(values)
    places: Dict[Any, List[int]] = {}
    for at, value in enumerate(values):
        places.setdefault(_sort_of(value, at), []).append(at)
    read = _array_of if len(kinds) > 1 else _array_of_sort
    return _joined([(part, read([values[at] for at in part])) for part in places.values()])


def _sort_of(value: Any, at: int) -> Any:
    """Values of one sort become one type of Arrow's. `at`: the place of the value, which may be a sort of its own."""
    kind = type(value)
    if kind in _LISTS:
        return list
    if kind is datetime:
        return kind, value.tzinfo
    if kind.__name__ == "ndarray" and value.ndim == 1:
        return kind, str(value.dtype) if value.dtype.kind in "biuf" else at
    return kind if kind in _ALIKE or _is_scalar(kind) else (kind, at)


def _joined(parts: List[Tuple[List[int], Tuple[Any, List[str]]]]) -> Tuple[Any, List[str]]:
    """As `_array_of`, from arrays of parts of the values: the places of these, and what `_array_of` says of them."""
    kinds = dict.fromkeys(array.type for _, (array, _) in parts)
    joined = pyarrow.null()
    for kind in kinds:
        joined = join_types(joined, kind)
    mixed = [one for _, (_, inside) in parts for one in inside]
    if any(becomes_text(kind, joined) for kind in kinds):
        mixed += [str(kind) for kind in kinds if not pyarrow.types.is_null(kind)]
    array = pyarrow.concat_arrays([fit_array(array, joined) for _, (array, _) in parts])
    places = [at for part, _ in parts for at in part]
    if places != sorted(places):
        array = array.take(pyarrow.array(sorted(range(len(places)), key=places.__getitem__)))
    return array, mixed


def _array_of_lists(values: List[Any]) -> Tuple[Any, List[str]]:
    """As `_array_of`, for lists, tuples and None."""
    offsets: List[Optional[int]] = []
    elements: List[Any] = []
    for value in values:
        offsets.append(None if value is None else len(elements))
        elements.extend(value or ())
    array, mixed = _array_of(elements)
    return pyarrow.ListArray.from_arrays(pyarrow.array([*offsets, len(elements)], pyarrow.int32()), array), mixed


def _array_of_dicts(values: List[Any]) -> Tuple[Any, List[str]]:
    """As `_array_of`, for dicts and None."""
    names = list(dict.fromkeys(name for value in values for name in value or ()))
    if not names or not all(isinstance(name, str) for name in names):
        return _arrow_array(values), []
    fields = [_array_of([None if value is None else value.get(name) for value in values]) for name in names]
    # Older versions of Arrow know no mask.
    mask = {"mask": pyarrow.array([value is None for value in values])} if None in values else {}
    array = pyarrow.StructArray.from_arrays([field for field, _ in fields], names, **mask)
    return array, [one for _, mixed in fields for one in mixed]


def _is_scalar(kind: type) -> bool:
    """Whether Arrow makes the same type of all values of a type, but for the digits of decimals."""
    numpy = sys.modules.get("numpy")
    return kind in _SCALARS or (numpy is not None and issubclass(kind, (numpy.bool_, numpy.number)))


def _array_of_sort(values: List[Any]) -> Tuple[Any, List[str]]:
    """As `_array_of`, for values of one sort."""
    return _array_of_one(values[0]) if len(values) == 1 else (_arrow_array(values), [])


def _array_of_one(value: Any) -> Tuple[Any, List[str]]:
    if type(value).__name__ == "datetime64" and "[ns" not in str(value.dtype):
        # Arrow does not read those of days.
        value = value.item()
    try:
        return _arrow_array([value]), []
    except OverflowError:
        if not isinstance(value, int):
            raise
        return pyarrow.array([str(value)]), []


def _arrow_array(values: Any) -> Any:
    """Arrow's own array of values, with a plain type."""
    array = pyarrow.array(values, from_pandas=True)
    kind = _plain_type(array.type)
    return array if array.type == kind else array.cast(kind)


def _surrogate(error: UnicodeEncodeError) -> str:
    return (
        f"The text {error.object[:80]!r} in what run() returned holds {unwritable_character(error)}, which no Parquet "
        f"file can hold. {CLEANING}"
    )


def _plain_type(kind: Any) -> Any:
    types = pyarrow.types
    if types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pyarrow.list_(_plain_type(kind.value_type))
    if types.is_struct(kind):
        return pyarrow.struct([(field.name, _plain_type(field.type)) for field in kind])
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
