"""Mini-batches of Parquet files, one a row group, as DataFrames. Source: mltable.md, sections 5 and 7."""

from __future__ import annotations

import base64
import json
from typing import Any, Dict, Set, Tuple

import numpy
import pyarrow
import pyarrow.parquet

from windrow_worker.loaded import Loaded
from windrow_worker.tables.files import check_unchanged, open_listed, printable

PATH = "Path"


def pack_schema(schema: pyarrow.Schema) -> str:
    """A schema as text for the reader document."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode("ascii")


def unpack_schema(packed: str) -> pyarrow.Schema:
    """The schema that :func:`pack_schema` made text of."""
    return pyarrow.ipc.read_schema(pyarrow.BufferReader(base64.b64decode(packed)))


class ParquetLoader:
    """Reads row groups by the schema that the planner pinned: the union of all files' columns by name.

    ``reader``: ``schema`` (see :func:`pack_schema`), ``mixed`` (names of columns that some files hold as numbers and
    others as text: objects, as stored), ``path_column``. A recipe: file, size, mtime_ns, row_group, and for a file of
    a Delta table with partitions ``constants``: the values of columns that it lacks, an Arrow stream of one row in
    base64.
    """

    def __init__(self, reader: Dict[str, Any], exact_integers: bool = False) -> None:
        self._exact_integers = exact_integers
        self._schema = unpack_schema(reader["schema"])
        self._mixed = set(reader["mixed"])
        self._path_column: bool = reader["path_column"]
        # A footer describes all row groups: where there are many, reading it anew for each would cost more than they.
        self._footer: Tuple[Any, Any] = (None, None)

    @property
    def integers(self) -> Set[str]:
        """Names of the columns of whole numbers."""
        fields = (field for field in self._schema if field.name not in self._mixed)
        return {field.name for field in fields if pyarrow.types.is_integer(field.type)}

    def load(self, recipe: bytes) -> Loaded:
        """One mini-batch. Raises InputChanged, OSError, and pyarrow's errors for a damaged file."""
        where = json.loads(recipe)
        name = where["file"]
        # Of a file in remote storage, the agent has fetched the row group and the footer, to where they stand in it.
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
        arrays, names = [], []
        if self._path_column:
            names.append(PATH)
            arrays.append(pyarrow.repeat(printable(name), table.num_rows))
        constants = _constants(where.get("constants", ""))
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
                arrays.append(table.column(at).cast(field.type))
        # Without the metadata of pandas: an index that was stored is a column like the others.
        value = pyarrow.Table.from_arrays(arrays, names=names).to_pandas(integer_object_nulls=self._exact_integers)
        for column in self._mixed:
            value[column] = value[column].astype(object)

        def places() -> Any:
            before = sum(metadata.row_group(at).num_rows for at in range(where["row_group"]))
            return numpy.arange(before, before + table.num_rows)

        return Loaded(value, table.num_rows, (), None, places)


def _constants(packed: str) -> Dict[str, Any]:
    if not packed:
        return {}
    table = pyarrow.ipc.open_stream(base64.b64decode(packed)).read_all()
    return {name: table.column(name)[0] for name in table.column_names}
