"""Carries rows through DuckDB's sort, so that every value comes back exactly as it was.

DuckDB has no type for some of Arrow's types. Their values travel as their parts, and get their type back.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow

from windrow_master.planning.errors import PlanningError

ROW = "row"


class Carried:
    """The columns of a table under names that DuckDB can tell apart (`A` and `a` are the same to it): `c0`, `c1`,
    …, and the row number.
    """

    def __init__(self, schema: pyarrow.Schema, nested: Sequence[str], keys: Sequence[str]) -> None:
        """`nested`: columns that hold JSON text. Raises PlanningError for keys whose values have no order, and for
        types that cannot be carried."""
        plain = [_without_dictionary(field) for field in schema]
        self.written = pyarrow.schema(plain)
        """The schema of the rows that come back. An Arrow file holds one dictionary for each column, so values are
        written plainly."""
        self._types = [_carried_type(field) for field in plain]
        self.key_columns = [f"c{schema.get_field_index(name)}" for name in keys]
        for name in keys:
            kind = schema.field(name).type
            if pyarrow.types.is_nested(kind) or pyarrow.types.is_null(kind) or name in nested:
                what = "nested, or null wherever they were looked at" if name in nested else kind
                raise PlanningError(
                    f'partition_keys names the column "{name}", whose values are {what}: '
                    "a key is text, a number, a boolean or a date."
                )
        fields = [pyarrow.field(f"c{at}", kind) for at, kind in enumerate(self._types) if kind is not None]
        self.schema = pyarrow.schema([*fields, pyarrow.field(ROW, pyarrow.int64())])

    def pack(self, table: pyarrow.Table, first_row: int) -> pyarrow.Table:
        """Pack rows for the sort; the first row has the number `first_row`."""
        arrays = [
            column.cast(kind) for column, kind in zip(table.columns, self._types, strict=True) if kind is not None
        ]
        numbers = pyarrow.array(range(first_row, first_row + table.num_rows), pyarrow.int64())
        return pyarrow.Table.from_arrays([*arrays, numbers], schema=self.schema)

    def unpack(self, batch: pyarrow.RecordBatch) -> pyarrow.Table:
        """Unpack rows after the sort, with or without their numbers."""
        arrays = []
        for at, (field, kind) in enumerate(zip(self.written, self._types, strict=True)):
            if kind is None:
                arrays.append(pyarrow.nulls(batch.num_rows, field.type))
                continue
            array = batch.column(batch.schema.get_field_index(f"c{at}"))
            if array.type != kind:
                array = array.cast(kind)
            arrays.append(array if array.type == field.type else array.cast(field.type))
        return pyarrow.Table.from_arrays(arrays, schema=self.written)


def _without_dictionary(field: pyarrow.Field) -> pyarrow.Field:
    return field.with_type(field.type.value_type) if pyarrow.types.is_dictionary(field.type) else field


def _carried_type(field: pyarrow.Field) -> pyarrow.DataType | None:
    """The type that carries a column; None if the column is not carried, because it is all null."""
    kind, types = field.type, pyarrow.types
    if types.is_null(kind):
        return None
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pyarrow.string()
    if types.is_float16(kind):
        return pyarrow.float32()
    if types.is_time32(kind):
        return pyarrow.int32()
    if types.is_time64(kind) or types.is_duration(kind) or types.is_date64(kind):
        return pyarrow.int64()
    if types.is_timestamp(kind):
        return pyarrow.int64() if kind.tz else kind
    if types.is_decimal256(kind) or types.is_interval(kind) or types.is_union(kind):
        raise PlanningError(
            f'The column "{field.name}" is {kind}. Such a table cannot be divided by columns of the data: convert the '
            "column, or leave it out (drop_columns)."
        )
    return kind
