"""Columns of a table that come from the paths of its files: names and types in the reader document."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

from windrow_worker.tables.columns import Column
from windrow_worker.tables.files import PATH
from windrow_worker.tables.partition_format import PathColumns

from windrow_master.planning.errors import PlanningError

_NO_TYPES: Mapping[str, Column] = {}


def path_columns_json(paths: PathColumns, at: int | None, types: Mapping[str, Column] = _NO_TYPES) -> dict[str, Any]:
    """The part of the reader document for columns from paths. `at`: position of the first one, None for after
    all others; `types`: of those that are not plain text.
    """
    columns = [
        Column(name, "datetime") if name in paths.dates else types.get(name, Column(name)) for name in paths.names
    ]
    return {"formats": [one.text for one in paths.formats], "columns": [one.to_json() for one in columns], "at": at}


def check_path_column(included: bool, names: Container[str]) -> None:
    """Raise PlanningError if `include_path_column` is set and the data has a column of that name."""
    if included and PATH in names:
        raise PlanningError(
            f'include_path_column adds the column "{PATH}", but the data has one of that name. '
            "Set include_path_column: false, or rename the column."
        )


def check_names(paths: PathColumns, others: Sequence[str]) -> None:
    """Raise PlanningError if two columns would have the same name."""
    seen = set(others)
    for name in paths.names:
        if name in seen:
            raise PlanningError(
                f'extract_columns_from_partition_format adds the column "{name}", but a column of that '
                "name already exists. Rename one of them."
            )
        seen.add(name)
