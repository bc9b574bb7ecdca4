"""The loader of tables whose MLTable file has steps after the reading step."""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from windrow_worker.loaded import Loaded
from windrow_worker.tables.frames import TYPES_WITHOUT_NULLS, settled
from windrow_worker.tables.steps import Step, apply


class SteppedLoader:
    """Reads with another loader, then applies the steps. A mini-batch may have no rows afterwards."""

    def __init__(self, loader: Any, steps: Sequence[Step], exact_integers: bool = False) -> None:
        """`loader`: of a table, with exact integers. They stay so in the result if `exact_integers`."""
        self._loader = loader
        self._steps = steps
        self._types: Dict[str, str] = dict(loader.types_without_nulls)
        self._whole: Dict[str, bool] = dict(loader.whole)
        for step in steps:
            for column in step["columns"] if step["step"] in ("convert_column_types", "extract_columns") else ():
                self._types.pop(column["name"], None)
                self._whole.pop(column["name"], None)
                kind = column.get("type")
                if kind in TYPES_WITHOUT_NULLS:
                    self._types[column["name"]] = TYPES_WITHOUT_NULLS[kind]
        self._exact_integers = exact_integers

    def load(self, recipe: bytes, passing_range: Optional[Callable[[int], Tuple[int, int]]] = None) -> Loaded:
        """Loads one mini-batch; `passing_range` as in `windrow_worker.tables.steps.apply`. Raises what the other
        loader raises, and ValueError for values that a filter cannot handle.
        """
        loaded = self._loader.load(recipe)
        kept: List[Any] = []
        rows, misfits = apply(self._steps, loaded.value, json.loads(recipe), loaded.positions, passing_range, kept)

        def places() -> Any:
            return loaded.positions()[kept[0].to_numpy()]

        if not self._exact_integers:
            rows = settled(rows, self._types, self._whole)
        found = [*loaded.misfits, *misfits]
        return Loaded(rows, len(rows), found, loaded.partition_key_value, places, is_void=not len(rows))
