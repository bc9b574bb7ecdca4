"""Adds columns whose values are in the paths of files to a DataFrame."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Tuple

import pandas

from windrow_worker.loaded import Loaded
from windrow_worker.tables.files import printable
from windrow_worker.tables.frames import frame
from windrow_worker.tables.path_values import PathColumnsPlan


class PathColumnsLoader:
    """Mini-batches of another loader, with added columns from the path of their file."""

    def __init__(self, loader: Any, plan: Dict[str, Any]) -> None:
        self._loader = loader
        self._plan = PathColumnsPlan(plan)
        self.types_without_nulls: Dict[str, str] = loader.types_without_nulls
        self.whole: Dict[str, bool] = loader.whole
        self.as_they_stand: Dict[str, str] = loader.as_they_stand
        self.times: List[str] = loader.times

    def load(self, recipe: bytes) -> Loaded:
        """Loads one mini-batch. Raises what the other loader raises."""
        loaded: Loaded = self._loader.load(recipe)
        loaded.value, misfits = with_path_columns(loaded.value, self._plan, json.loads(recipe)["file"])
        loaded.misfits = [*loaded.misfits, *misfits]
        return loaded


def with_path_columns(
    rows: pandas.DataFrame, plan: PathColumnsPlan, file: str
) -> Tuple[pandas.DataFrame, List[Tuple[str, int, str]]]:
    """The rows of a file with the columns from its path added, and values that did not fit their type."""
    values = plan.values(file)
    made = frame([(column.name, column.type, [value] * len(rows)) for column, value, _ in values], len(rows))
    made.index = rows.index
    at = rows.shape[1] if plan.at is None else plan.at
    joined = pandas.concat([rows.iloc[:, :at], made, rows.iloc[:, at:]], axis=1)
    misfits = [
        (column.name, len(rows), "%s: %.200r is not of type %s" % (printable(file), misfit, column.type))
        for column, _, misfit in values
        if misfit and len(rows)
    ]
    return joined, misfits
