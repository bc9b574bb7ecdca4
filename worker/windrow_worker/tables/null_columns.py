"""Columns that hold nothing: in Azure ML's reader, what is null all through a mini-batch has no type.

Reference: docs/reference/azure-ml/mltable.md#types.
"""

from __future__ import annotations

from typing import Any

import numpy
import pandas

from windrow_worker.loaded import Loaded


class NullColumnsLoader:
    """Mini-batches of another loader, in which numbers and times that are all null are objects."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def load(self, recipe: bytes, *more: Any) -> Loaded:
        """Loads one mini-batch, by what the other loader takes. Raises what the other loader raises."""
        loaded: Loaded = self._loader.load(recipe, *more)
        loaded.value = _with_null_objects(loaded.value)
        return loaded


def _with_null_objects(rows: pandas.DataFrame) -> pandas.DataFrame:
    held = {}
    for name in rows.columns if len(rows) else ():
        column = rows[name]
        # Most columns are told by their first value.
        if column.dtype.kind in "fM" and pandas.isna(column.iloc[0]) and column.isna().all():
            held[name] = pandas.Series(numpy.full(len(rows), None, dtype=object), index=rows.index)
    return rows.assign(**held) if held else rows
