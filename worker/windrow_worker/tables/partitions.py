"""Mini-batches of tables that are divided by keys with one value per file: the files of a group, concatenated."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Set, Tuple

import pandas

from windrow_worker.loaded import Loaded
from windrow_worker.tables.partition_format import key_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from windrow_worker.loaded import Loader


class FileGroupTableLoader:
    """Reads the parts of a group with another loader. A recipe: `key` (values of the partition keys), `parts`."""

    def __init__(self, loader: Loader, keys: List[str]) -> None:
        self._loader = loader
        self._keys = keys

    def load(self, recipe: bytes) -> Loaded:
        """Loads one mini-batch. Raises what the other loader raises."""
        where = json.loads(recipe)
        frames: List[pandas.DataFrame] = []
        misfits: Dict[str, Tuple[int, str]] = {}
        unreadable: List[Tuple[str, str]] = []
        shown_as_null: Set[str] = set()
        for part in where["parts"]:
            loaded = self._loader.load(json.dumps(part).encode())
            if loaded.readable_count or not frames:
                frames.append(loaded.value)
            unreadable += loaded.unreadable
            shown_as_null.update(loaded.shown_as_null)
            for column, number, example in loaded.misfits:
                before, first = misfits.get(column, (0, example))
                misfits[column] = (before + number, first)
        value = concatenated(frames if len(frames) == 1 or len(frames[0]) else frames[1:])
        told = [(column, number, example) for column, (number, example) in misfits.items()]
        key = key_value(self._keys, where["key"])
        packed = where["parts"][0].get("constants")
        if packed:
            # Files of Delta tables, some of whose values JSON cannot hold.
            from windrow_worker.tables.parquet import unpack_constants

            constants = unpack_constants(packed)
            key = {name: constants[name].as_py() if name in constants else value for name, value in key.items()}
        # A group is empty only because of steps, or of invalid lines that are left out.
        items = len(value) + len(unreadable)
        return Loaded(value, items, told, key, None, not len(value), unreadable, shown_as_null)


def concatenated(frames: List[pandas.DataFrame]) -> pandas.DataFrame:
    """Joins frames with the same columns, as if their rows had been read at once."""
    if len(frames) == 1:
        return frames[0]
    # Column by column: if whole frames were joined, a column that is null in one part would change types.
    columns: Dict[str, Any] = {}
    for name in frames[0].columns:
        parts = [frame[name] for frame in frames]
        if all(isinstance(part.dtype, pandas.CategoricalDtype) for part in parts):
            joined = pandas.api.types.union_categoricals(parts, ignore_order=True)
            columns[name] = pandas.Series(joined)
        else:
            columns[name] = pandas.concat(parts, ignore_index=True)
    return pandas.DataFrame(columns, copy=False)
