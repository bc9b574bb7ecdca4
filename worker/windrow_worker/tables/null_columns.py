"""Columns that hold nothing: in Azure ML's reader, what is null all through a mini-batch has no type.

Reference: docs/reference/azure-ml/mltable.md#types.
"""

from __future__ import annotations

from typing import Any, Collection, Optional, Sequence

import numpy
import pandas

from windrow_worker.loaded import Loaded


class NullColumnsLoader:
    """Mini-batches of another loader, in which numbers, times and texts that are all null are objects. Columns
    whose values only look so in a DataFrame (`shown_as_null`) keep their type.
    """

    def __init__(self, loader: Any, columns: Optional[Sequence[str]] = None) -> None:
        """`columns`: only these; all if None."""
        self._loader = loader
        self._columns = columns

    def load(self, recipe: bytes, *more: Any) -> Loaded:
        """Loads one mini-batch, by what the other loader takes. Raises what the other loader raises."""
        loaded: Loaded = self._loader.load(recipe, *more)
        loaded.value = self._with_null_objects(loaded.value, loaded.shown_as_null)
        return loaded

    def _with_null_objects(self, rows: pandas.DataFrame, typed: Collection[str]) -> pandas.DataFrame:
        held = {}
        names = rows.columns if self._columns is None else [name for name in self._columns if name in rows.columns]
        for name in names if len(rows) else ():
            column = rows[name]
            # Of texts, pandas 3 has a type of its own, whose kind is O, too. Most columns are told by their first
            # value.
            if (
                name not in typed
                and column.dtype != object
                and column.dtype.kind in "fMO"
                and pandas.isna(column.iloc[0])
                and column.isna().all()
            ):
                held[name] = pandas.Series(numpy.full(len(rows), None, dtype=object), index=rows.index)
        return rows.assign(**held) if held else rows
