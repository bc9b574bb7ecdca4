"""The rows of a table as Arrow, with the pinned types, whatever the rows of one slice look like."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pandas
import pyarrow
from windrow_worker.tables.files import PATH
from windrow_worker.tables.parquet import unpack_schema

from windrow_master.planning.errors import PlanningError

_TYPES = {
    "text": pyarrow.string(),
    "int": pyarrow.int64(),
    "float": pyarrow.float64(),
    "bool": pyarrow.bool_(),
    "datetime": pyarrow.timestamp("ns"),
}
JSON_KINDS = ("object", "array", "any")
"""Columns of JSON lines with nested values, or without values in the sample: carried as JSON text."""


class RowSchema:
    """The columns of a table after all its steps. `schema`: their types; `json_columns`: those carried as JSON text."""

    def __init__(self, reader: Mapping[str, Any]) -> None:
        """Raises PlanningError for columns that have no type."""
        columns = _with_steps(list(_columns(reader)), reader.get("steps", ()))
        self.schema = pyarrow.schema([(name, pyarrow.string() if kind is None else kind) for name, kind in columns])
        self.json_columns = [name for name, kind in columns if kind is None]

    def batch(self, rows: pandas.DataFrame) -> pyarrow.Table:
        """The rows of a slice, read with exact integers."""
        arrays = [self._array(rows[field.name], field) for field in self.schema]
        return pyarrow.Table.from_arrays(arrays, schema=self.schema)

    def _array(self, series: pandas.Series, field: pyarrow.Field) -> pyarrow.Array:
        if field.name in self.json_columns:
            texts = [None if _is_null(value) else json.dumps(value) for value in series]
            return pyarrow.array(texts, pyarrow.string())
        return pyarrow.Array.from_pandas(series, type=field.type)


def _is_null(value: Any) -> bool:
    return value is None or (isinstance(value, float) and value != value)


def _columns(reader: Mapping[str, Any]) -> Iterator[tuple[str, pyarrow.DataType | None]]:
    """Names and types of the columns as they are read; None for JSON text."""
    columns: list[tuple[str, pyarrow.DataType | None]] = []
    if reader["path_column"]:
        columns.append((PATH, pyarrow.string()))
    if reader["format"] == "parquet":
        if reader["mixed"]:
            raise PlanningError(
                f'The column "{reader["mixed"][0]}" has values of incompatible types, such as text and numbers. '
                "Such a table cannot be divided by columns of the data: convert the column to one type."
            )
        columns += [(field.name, field.type) for field in unpack_schema(reader["schema"])]
    else:
        columns += [(one["name"], _type_of(one)) for one in reader["columns"]]
    if "path_columns" in reader:
        at = len(columns) if reader["path_columns"]["at"] is None else reader["path_columns"]["at"]
        columns[at:at] = [(one["name"], _type_of(one)) for one in reader["path_columns"]["columns"]]
    yield from columns


def _type_of(column: Mapping[str, Any]) -> pyarrow.DataType | None:
    kind = column.get("type", "text")
    return None if kind in JSON_KINDS else _TYPES[kind]


def _with_steps(
    columns: list[tuple[str, pyarrow.DataType | None]], steps: Any
) -> list[tuple[str, pyarrow.DataType | None]]:
    for step in steps:
        if step["step"] == "keep_columns":
            kept = dict(columns)
            columns = [(name, kept[name]) for name in step["columns"]]
        elif step["step"] == "extract_columns":
            columns = columns + [(one["name"], _type_of(one)) for one in step["columns"]]
        elif step["step"] == "convert_column_types":
            converted = {one["name"]: _type_of(one) for one in step["columns"]}
            columns = [(name, converted.get(name, kind)) for name, kind in columns]
    return columns
