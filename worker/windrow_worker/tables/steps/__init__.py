"""Steps of an MLTable file after the reading step: what is done with the rows, in order. Not the steps of a job.

A step is a small JSON document in the reader. The planner has resolved everything that needs all columns:

    {"step": "keep_columns", "columns": [name, ...]}                   drop_columns too
    {"step": "filter", "tree": ..., "text": ...}                       tree: see `filtering`
    {"step": "sample", "from": 0.0, "to": 0.1, "seed": 1, "number": 0} the n-th sample of the table
    {"step": "convert_column_types", "columns": [column, ...]}         column: as of a delimited table
    {"step": "extract_columns", ...}                               from the path: see `path_values`
    {"step": "take" | "skip", "number": n}

What needs a count of all rows is in the recipe. `ranges` has an entry for each take and skip in turn: which of the rows
that reach it pass, as [first, after the last]; all pass if it is absent. `salt` identifies the file in samples.
Reference: docs/reference/azure-ml/mltable.md#paths, #columns, #filters, #samples.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

import numpy
import pandas

from windrow_worker.tables.columns import Column
from windrow_worker.tables.files import printable
from windrow_worker.tables.path_columns import with_path_columns
from windrow_worker.tables.path_values import PathColumnsPlan
from windrow_worker.tables.steps.conversion import convert_series
from windrow_worker.tables.steps.filtering import FilterFailed, passing
from windrow_worker.tables.steps.sampling import sampled

Step = Dict[str, Any]
"""A table step, as the planner resolved it. Not a step of a job."""
Misfit = Tuple[str, int, str]

COUNTING = ("take", "skip")


def apply(
    steps: Sequence[Step],
    rows: pandas.DataFrame,
    recipe: Dict[str, Any],
    positions: Callable[[], numpy.ndarray],
    passing_range: Optional[Callable[[int], Tuple[int, int]]] = None,
    kept: Optional[List[pandas.Index]] = None,
    shown_as_null: Optional[Set[str]] = None,
) -> Tuple[pandas.DataFrame, List[Misfit]]:
    """The rows of one slice after all steps, numbered from 0, and the values that could not be converted.

    `positions` returns the place in the file of each row that was read. `passing_range` replaces the recipe's `ranges`
    for the planner: it is called at each take and skip with a number of rows, and returns which pass. `kept` gets the
    numbers that the remaining rows had when they were read. `shown_as_null` are columns as `Loaded` has
    them; converted ones are added and removed. Raises ValueError for values that a filter cannot handle.
    """
    misfits: List[Misfit] = []
    ranges = iter(recipe.get("ranges", ()))
    given = rows
    # The index identifies each row as it was read.
    rows.index = pandas.RangeIndex(len(rows))
    for step in steps:
        kind = step["step"]
        if kind == "filter":
            try:
                rows = rows[passing(step["tree"], rows)]
            except FilterFailed as error:
                raise ValueError("filter: %s: %s, in %s" % (step["text"], error, place_of(recipe))) from error
        elif kind == "sample":
            rows = rows[sampled(step, recipe["salt"], positions()[rows.index.to_numpy()])]
        elif kind == "keep_columns":
            rows = rows[step["columns"]]
        elif kind == "convert_column_types":
            rows, found = _converted(rows, step["columns"], recipe, set() if shown_as_null is None else shown_as_null)
            misfits += found
        elif kind == "extract_columns":
            rows, found = with_path_columns(rows, PathColumnsPlan(step), recipe["file"])
            misfits += found
        elif kind in COUNTING:
            first, behind = passing_range(len(rows)) if passing_range else next(ranges, (0, len(rows)))
            rows = rows.iloc[first:behind]
        else:
            raise ValueError("unknown step %r of a table" % kind)
    if kept is not None:
        kept.append(rows.index)
    if rows is not given:
        # Otherwise older versions of pandas warn a script that adds a column to a part of a frame.
        rows = rows.reset_index(drop=True)
    return rows, misfits


def _converted(
    rows: pandas.DataFrame, columns: Sequence[Dict[str, Any]], recipe: Dict[str, Any], shown_as_null: Set[str]
) -> Tuple[pandas.DataFrame, List[Misfit]]:
    made = {}
    misfits = []
    for document in columns:
        column = Column.from_json(document)
        given = rows[column.name]
        series, count, first, shown = convert_series(given, column)
        if shown:
            shown_as_null.add(column.name)
        elif series is not given:
            shown_as_null.discard(column.name)
        made[column.name] = series
        if count:
            value = given.iloc[first]
            # numpy numbers have another repr.
            value = value.item() if isinstance(value, numpy.generic) else value
            example = "%s: row %d: %.200r is not of type %s" % (
                place_of(recipe),
                rows.index[first] + 1,
                value,
                column.type,
            )
            misfits.append((column.name, count, example))
    return rows.assign(**made), misfits


def place_of(recipe: Dict[str, Any]) -> str:
    """The slice of a file that a recipe names, for messages."""
    file = printable(recipe["file"])
    if "row_group" in recipe:
        return "%s, row group %d" % (file, recipe["row_group"])
    return "%s, after byte %d" % (file, recipe["begin"])
