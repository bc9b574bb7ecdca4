"""The loader of tables whose MLTable file has steps after the reading step."""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import pandas

from windrow_worker.loaded import Loaded
from windrow_worker.tables.files import printable
from windrow_worker.tables.frames import TYPES_WITHOUT_NULLS, series, settled
from windrow_worker.tables.json_lines import pinned_values
from windrow_worker.tables.steps import Step, apply, place_of


class SteppedLoader:
    """Reads with another loader, then applies the steps. A mini-batch may have no rows afterwards."""

    def __init__(self, loader: Any, steps: Sequence[Step], exact_integers: bool = False) -> None:
        """`loader`: of a table, with exact integers. They stay so in the result if `exact_integers`."""
        self._loader = loader
        self._steps = steps
        self._types: Dict[str, str] = dict(loader.types_without_nulls)
        self._whole: Dict[str, bool] = dict(loader.whole)
        self._as_they_stand: Dict[str, str] = dict(loader.as_they_stand)
        self._times: List[str] = list(loader.times)
        for step in steps:
            for column in step["columns"] if step["step"] in ("convert_column_types", "extract_columns") else ():
                self._types.pop(column["name"], None)
                self._whole.pop(column["name"], None)
                self._as_they_stand.pop(column["name"], None)
                if column["name"] in self._times:
                    self._times.remove(column["name"])
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
        shown = set(loaded.shown_as_null)
        where = json.loads(recipe)
        rows, misfits = apply(self._steps, loaded.value, where, loaded.positions, passing_range, kept, shown)

        for name, kind in self._as_they_stand.items():
            if name in rows.columns and rows[name].dtype == object:
                rows, more = _pinned(rows, name, kind, where["file"])
                misfits += more

        if self._times:
            # It needs pyarrow, which only Parquet does.
            from windrow_worker.tables.row_types import with_nanoseconds

            rows, beyond = with_nanoseconds(rows, self._times, place_of(where), shown)
            misfits += beyond

        def places() -> Any:
            return loaded.positions()[kept[0].to_numpy()]

        if not self._exact_integers:
            rows = settled(rows, self._types, self._whole)
        found = [*loaded.misfits, *misfits]
        key = loaded.partition_key_value
        return Loaded(rows, len(rows), found, key, places, is_void=not len(rows), shown_as_null=shown)


def _pinned(
    rows: pandas.DataFrame, name: str, kind: str, file: str
) -> Tuple[pandas.DataFrame, List[Tuple[str, int, str]]]:
    """The rows that steps have left, with null for values of a column that are not of its kind; and these misfits."""
    given = rows[name].tolist()
    values, count, first = pinned_values(list(given), kind, wraps=True)
    made = rows.assign(**{name: series(kind, values, exact_integers=True).set_axis(rows.index)})
    if not count:
        return made, []
    return made, [(name, count, "%s: %.200r is not of type %s" % (printable(file), given[first], kind))]
