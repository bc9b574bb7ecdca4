"""Resolves the steps on the rows of a table for its columns, into the documents that workers follow.

Reference: docs/reference/azure-ml/mltable.md#partitions, #columns, #filters, #samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from windrow.spec.tables.partition_format import ExtractColumns
from windrow.spec.tables.steps import (
    PATH,
    ConvertColumnTypes,
    DropColumns,
    Filter,
    KeepColumns,
    Sample,
    SelectPartitions,
    Skip,
    Step,
    Take,
)
from windrow_worker.tables.partition_format import PathColumns

from windrow_master.planning.counts import Bound
from windrow_master.planning.errors import PlanningError
from windrow_master.planning.file_steps import sample_document
from windrow_master.planning.tables.column_types import column_of
from windrow_master.planning.tables.pin_paths import check_names, path_columns_json

DROPPING = ("filter", "sample")
"""Names of steps that may drop rows."""

COUNTING = ("take", "skip")

_TAKING_ROWS = (Filter, Sample, Take, Skip, ConvertColumnTypes, ExtractColumns)


def takes_rows(steps: Sequence[Step]) -> bool:
    """Whether a step takes the rows one by one, also if it changes none: others only choose columns or partitions, and
    `skip: 0` does nothing.
    """
    return any(isinstance(step, _TAKING_ROWS) and not (isinstance(step, Skip) and not step.number) for step in steps)


def column_names(reader: dict[str, Any]) -> list[str]:
    """The columns of a table as it is read, in order."""
    names = [PATH] if reader["path_column"] else []
    if reader["format"] == "parquet":
        # Only Parquet needs pyarrow here.
        from windrow_worker.tables.parquet import unpack_schema

        names += unpack_schema(reader["schema"]).names
    else:
        names += [column["name"] for column in reader["columns"]]
    if "path_columns" in reader:
        at = reader["path_columns"]["at"]
        at = len(names) if at is None else at
        names[at:at] = [column["name"] for column in reader["path_columns"]["columns"]]
    return names


def columns_after(reader: dict[str, Any]) -> list[str]:
    """The columns of a table after all its steps."""
    columns = column_names(reader)
    for step in reader.get("steps", ()):
        if step["step"] == "keep_columns":
            columns = step["columns"]
        elif step["step"] == "extract_columns":
            columns = [*columns, *(column["name"] for column in step["columns"])]
    return columns


def resolve(steps: Sequence[Step], columns: Sequence[str]) -> list[dict[str, Any]]:
    """The documents of the steps of a table with these columns. Raises PlanningError, with the step's place."""
    if not columns:
        # This is mostly a table without records, which is reported as such: no step should report a missing column
        # before that.
        steps = [step for step in steps if isinstance(step, Take | Skip | Sample | ExtractColumns)]
    columns = list(columns)
    documents = list[dict[str, Any]]()
    samples = 0
    for step in steps:
        match step:
            case Take() | Skip():
                documents.append({"step": "take" if isinstance(step, Take) else "skip", "number": step.number})
            case Sample():
                documents.append(sample_document(step, samples))
                samples += 1
            case Filter():
                documents.append(_filter(step, columns))
            case KeepColumns() | DropColumns():
                columns = _kept(step, columns)
                documents.append({"step": "keep_columns", "columns": [*columns]})
            case ConvertColumnTypes():
                converted = _conversions(step, columns)
                if converted:
                    documents.append({"step": "convert_column_types", "columns": converted})
            case ExtractColumns():
                paths = PathColumns([step.format])
                check_names(paths, columns)
                columns = [*columns, *paths.names]
                documents.append({"step": "extract_columns", **path_columns_json(paths, None)})
            case SelectPartitions():
                pass  # the planner's own: see partitions.py
    return documents


def bounds(documents: Sequence[dict[str, Any]]) -> list[Bound]:
    """Every take and skip, in order."""
    return [Bound(one["step"] == "skip", one["number"]) for one in documents if one["step"] in COUNTING]


def drops_rows(documents: Sequence[dict[str, Any]]) -> bool:
    """Whether rows are dropped by their values, so that only reading shows how many are left."""
    return any(one["step"] in DROPPING for one in documents)


def _filter(step: Filter, columns: Sequence[str]) -> dict[str, Any]:
    for name in step.expression.columns:
        if name not in columns:
            raise PlanningError(
                f'{step.place}: filter names the column "{name}", which the table does not have there. Its columns: '
                f"{_listed(columns)}."
            )
    return {"step": "filter", "tree": step.expression.tree, "text": step.expression.text}


def _kept(step: KeepColumns | DropColumns, columns: Sequence[str]) -> list[str]:
    chosen = step.columns.chosen(columns)
    kept = chosen if isinstance(step, KeepColumns) else [name for name in columns if name not in set(chosen)]
    if not kept:
        word = "keep_columns" if isinstance(step, KeepColumns) else "drop_columns"
        raise PlanningError(f"{step.place}: {word} leaves no column. The table's columns there: {_listed(columns)}.")
    return kept


def _conversions(step: ConvertColumnTypes, columns: Sequence[str]) -> list[dict[str, Any]]:
    """One conversion for each column: the last one that names it."""
    found = {
        name: column_of(name, conversion.type).to_json()
        for conversion in step.conversions
        for name in conversion.columns.chosen(columns)
    }
    return [found[name] for name in columns if name in found]


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(columns[:50]) or "none"
