"""Pins the schema of a Parquet table from the footers of all files. Source: reference/mltable.md, sections 5 and 7."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow
import pyarrow.parquet
from windrow.spec.mltable import ReadParquet
from windrow_worker.tables.parquet import PATH, pack_schema

from windrow_master.planning.errors import PlanningError, shown
from windrow_master.planning.tables.files import TableFile


def row_counts(name: bytes) -> tuple[int, ...]:
    """The rows of each row group of a file. Raises PlanningError."""
    return _footer(name)[0]


def _footer(name: bytes) -> tuple[tuple[int, ...], Any]:
    try:
        with open(name, "rb") as opened, pyarrow.parquet.ParquetFile(opened) as parquet:
            metadata = parquet.metadata
            rows = tuple(metadata.row_group(at).num_rows for at in range(metadata.num_row_groups))
            return rows, parquet.schema_arrow
    except (OSError, pyarrow.ArrowException) as error:
        raise PlanningError(
            f"{shown(name)} cannot be read as Parquet: {' '.join(str(error).split())}. "
            "Take it out of the input, or write it anew."
        ) from error


class ParquetPinning:
    """One table's pinning: `look_at` each file while listing, then `pin`."""

    def __init__(self, read: ReadParquet) -> None:
        self._read = read
        self._fields: dict[str, pyarrow.Field] = {}
        self._mixed: set[str] = set()

    def look_at(self, file: TableFile) -> TableFile:
        """Read a footer: the rows of each row group, and the columns, which are joined by name. Raises
        PlanningError."""
        rows, schema = _footer(file.name)
        repeated = [name for name, number in Counter(schema.names).items() if number > 1]
        if repeated:
            raise PlanningError(f'{shown(file.name)} has several columns named "{repeated[0]}"; rename them.')
        for field in schema:
            self._join(field)
        return file._replace(rows=rows)

    def _join(self, field: pyarrow.Field) -> None:
        known = self._fields.get(field.name)
        if known is None:
            self._fields[field.name] = pyarrow.field(field.name, field.type)
        elif known.type != field.type and field.name not in self._mixed:
            try:
                pair = [pyarrow.schema([known]), pyarrow.schema([pyarrow.field(field.name, field.type)])]
                self._fields[field.name] = pyarrow.unify_schemas(pair, promote_options="permissive").field(0)
            except pyarrow.ArrowException:
                # Numbers in one file and text in another: objects, each as stored.
                self._mixed.add(field.name)

    def pin(self) -> dict[str, Any]:
        """The reader document. Raises PlanningError."""
        if self._read.include_path_column and PATH in self._fields:
            raise PlanningError(
                f'include_path_column adds the column "{PATH}", but the data has one of that name. '
                "Set include_path_column: false."
            )
        return {
            "kind": "table",
            "format": "parquet",
            "schema": pack_schema(pyarrow.schema(list(self._fields.values()))),
            "mixed": sorted(self._mixed),
            "path_column": self._read.include_path_column,
        }
