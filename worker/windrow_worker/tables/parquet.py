"""Mini-batches of Parquet files, one a row group, as DataFrames.

Reference: docs/reference/azure-ml/mltable.md#partitions, #parquet.
"""

from __future__ import annotations

import base64
import json
from typing import Any, Dict, List, Tuple

import numpy
import pyarrow
import pyarrow.parquet

from windrow_worker.loaded import Loaded
from windrow_worker.tables.arrow_frames import frame_of
from windrow_worker.tables.files import PATH, check_records, check_unchanged, open_listed, printable
from windrow_worker.tables.row_types import converted_by_row, has_not_a_number, is_time, type_by_row


def pack_schema(schema: pyarrow.Schema) -> str:
    """A schema as text for the reader document."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode("ascii")


def unpack_schema(packed: str) -> pyarrow.Schema:
    """The schema that `pack_schema` made text of."""
    return pyarrow.ipc.read_schema(pyarrow.BufferReader(base64.b64decode(packed)))


class ParquetLoader:
    """Reads row groups by the schema that the planner pinned: the union of all files' columns by name.

    `reader`: `schema` (see `pack_schema`), `mixed` (names of columns that no one type takes, such as
    numbers in some files and text in others: objects, as stored), `path_column`; `whole`, of plain files: of each
    column of integers, whether it holds floats (`as_floats` of `windrow_worker.tables.columns.Column`); `by_row`: steps
    take the rows one by one, so values have the few types that the steps know (see `windrow_worker.tables.row_types`).

    A recipe: file, size, mtime_ns, row_group, and for a file of a Delta table with partitions `constants`: the values
    of columns that it lacks, an Arrow stream of one row in base64.
    """

    def __init__(self, reader: Dict[str, Any], exact_integers: bool = False) -> None:
        self._exact_integers = exact_integers
        self._schema = unpack_schema(reader["schema"])
        self._mixed = set(reader["mixed"])
        self.whole: Dict[str, bool] = reader.get("whole", {})
        self.as_they_stand: Dict[str, str] = {}
        """The columns that hold integers of plain files, and of each whether it holds floats."""
        self._path_column: bool = reader["path_column"]
        self._by_row: bool = reader.get("by_row", False)
        self.times: List[str] = []
        """The columns of times and dates that become times in nanoseconds after the steps."""
        if self._by_row:
            self.times = [field.name for field in self._schema if is_time(field.type) and field.name not in self._mixed]
        # A footer describes all row groups. If there are many, reading it for each would cost more than they do.
        self._footer: Tuple[Any, Any] = (None, None)

    @property
    def types_without_nulls(self) -> Dict[str, str]:
        """The types that integer and boolean columns have without nulls, as `windrow_worker.tables.frames.settled`
        takes them.
        """
        types = pyarrow.types
        fields = [field for field in self._schema if types.is_integer(field.type) or types.is_boolean(field.type)]
        return {
            field.name: numpy.dtype(self._read_type(field).to_pandas_dtype()).name
            for field in fields
            if field.name not in self._mixed
        }

    def _read_type(self, field: Any) -> Any:
        """The type that a column is read as."""
        return type_by_row(field.type) if self._by_row and field.name not in self._mixed else field.type

    def load(self, recipe: bytes) -> Loaded:
        """Loads one mini-batch. Raises InputChanged, InputMisread, OSError, and pyarrow's errors for a damaged file."""
        where = json.loads(recipe)
        name = where["file"]
        # From a file in remote storage, the agent has fetched the row group and the footer, at their offsets.
        fetched = "local" in where
        listed = (name, where["size"], where["etag"] if fetched else where["mtime_ns"])
        with open_listed(where["local"] if fetched else name) as file:
            if not fetched:
                check_unchanged(file, name, where["size"], where["mtime_ns"])
            metadata = self._footer[1] if self._footer[0] == listed else None
            with pyarrow.parquet.ParquetFile(file, metadata=metadata) as parquet:
                table = parquet.read_row_group(where["row_group"], use_threads=False)
                metadata = parquet.metadata
            if not fetched:
                check_unchanged(file, name, where["size"], where["mtime_ns"])
            self._footer = (listed, metadata)
        check_records(where, table.num_rows)
        arrays: List[Any] = []
        names: List[str] = []
        misfits: List[Tuple[str, int, str]] = []
        if self._path_column:
            names.append(PATH)
            arrays.append(pyarrow.repeat(printable(name), table.num_rows))
        constants = unpack_constants(where.get("constants", ""))
        place = "%s, row group %d: row %%d: " % (printable(name).replace("%", "%%"), where["row_group"])
        for field in self._schema:
            names.append(field.name)
            at = table.schema.get_field_index(field.name)
            if field.name in constants:
                arrays.append(pyarrow.repeat(constants[field.name], table.num_rows))
            elif at < 0:
                arrays.append(pyarrow.nulls(table.num_rows, field.type))
            elif field.name in self._mixed or table.schema.field(at).type == field.type:
                arrays.append(table.column(at))
            else:
                array, count, first = converted(table.column(at), field.type)
                arrays.append(array)
                if count:
                    value = table.column(at)[first]
                    example = "%.200s is not of type %s" % (value, field.type)
                    misfits.append((field.name, count, place % (first + 1) + example))
            kind = self._read_type(field)
            if arrays[-1].type != kind and field.name not in self._mixed:
                array, count, first = converted_by_row(arrays[-1], kind)
                if count:
                    example = "%s is not of type %s, and became %s" % (arrays[-1][first], kind, array[first])
                    misfits.append((field.name, count, place % (first + 1) + example))
                arrays[-1] = array
        value = frame_of(names, arrays, self.whole, self._exact_integers)
        for column in self._mixed:
            value[column] = value[column].astype(object)

        def places() -> Any:
            before = sum(metadata.row_group(at).num_rows for at in range(where["row_group"]))
            return numpy.arange(before, before + table.num_rows)

        shown_as_null = {one for one, array in zip(names, arrays) if self._by_row and has_not_a_number(array)}
        return Loaded(value, table.num_rows, misfits, None, places, shown_as_null=shown_as_null)


def converted(column: Any, kind: Any) -> Tuple[Any, int, int]:
    """Converts a column of one file to the type that was pinned for all files, as (column, misfits, first misfit).
    Misfits are times beyond the range of a finer unit; they become null. Raises ArrowException if the types cannot
    be converted.
    """
    # Slow to import, and needed only if files differ.
    from pyarrow import compute

    # Whole numbers beyond 2**53 are rounded where other files hold floats, times are cut where their unit is coarser.
    options = compute.CastOptions(kind, allow_float_truncate=True, allow_time_truncate=True)
    try:
        return column.cast(options=options), 0, -1
    except pyarrow.ArrowInvalid:
        if not pyarrow.types.is_timestamp(column.type):
            raise
    made = column.cast(kind, safe=False)
    fits = compute.equal(made.cast(column.type, safe=False), column)
    misfits = compute.indices_nonzero(compute.invert(fits))
    return compute.if_else(fits, made, None), len(misfits), misfits[0].as_py()


def unpack_constants(packed: str) -> Dict[str, Any]:
    """The values (Arrow scalars) of the columns that a file lacks, by name; none for an empty text."""
    if not packed:
        return {}
    table = pyarrow.ipc.open_stream(base64.b64decode(packed)).read_all()
    return {name: table.column(name)[0] for name in table.column_names}
