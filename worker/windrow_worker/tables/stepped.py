"""A loader of tables whose MLTable file has steps after the one that reads."""

from __future__ import annotations

import json
from typing import Any, Sequence

from windrow_worker.loaded import Loaded
from windrow_worker.tables.steps import Step, apply


class SteppedLoader:
    """Reads as another loader does, and carries the steps out. A mini-batch may be left without rows."""

    def __init__(self, loader: Any, steps: Sequence[Step]) -> None:
        self._loader = loader
        self._steps = steps

    def load(self, recipe: bytes) -> Loaded:
        """One mini-batch. Raises what the other loader raises, and ValueError for what a filter cannot judge."""
        loaded = self._loader.load(recipe)
        rows, misfits = apply(self._steps, loaded.value, json.loads(recipe), loaded.positions)
        found = [*loaded.misfits, *misfits]
        return Loaded(rows, len(rows), found, loaded.partition_key_value, is_void=not len(rows))
