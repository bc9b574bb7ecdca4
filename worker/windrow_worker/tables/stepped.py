"""A loader of tables whose MLTable file has steps after the one that reads."""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, Optional, Sequence, Tuple

from windrow_worker.loaded import Loaded
from windrow_worker.tables.frames import TYPES_WITHOUT_NULLS, settled
from windrow_worker.tables.steps import Step, apply


class SteppedLoader:
    """Reads as another loader does, and carries the steps out. A mini-batch may be left without rows."""

    def __init__(self, loader: Any, steps: Sequence[Step], exact_integers: bool = False) -> None:
        """`loader`: of a table, with exact integers, which come out as such where `exact_integers` is True."""
        self._loader = loader
        self._steps = steps
        self._types: Dict[str, str] = dict(loader.types_without_nulls)
        for step in steps:
            for column in step["columns"] if step["step"] in ("convert_column_types", "extract_columns") else ():
                self._types.pop(column["name"], None)
                kind = column.get("type")
                if kind in TYPES_WITHOUT_NULLS:
                    self._types[column["name"]] = TYPES_WITHOUT_NULLS[kind]
        self._exact_integers = exact_integers

    def load(self, recipe: bytes, passing_range: Optional[Callable[[int], Tuple[int, int]]] = None) -> Loaded:
        """One mini-batch; `passing_range` as in `windrow_worker.tables.steps.apply`.

        Raises what the other loader raises, and ValueError for what a filter cannot judge.
        """
        loaded = self._loader.load(recipe)
        rows, misfits = apply(self._steps, loaded.value, json.loads(recipe), loaded.positions, passing_range)
        if not self._exact_integers:
            rows = settled(rows, self._types)
        found = [*loaded.misfits, *misfits]
        return Loaded(rows, len(rows), found, loaded.partition_key_value, is_void=not len(rows))
