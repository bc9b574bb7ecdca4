"""The rows of a table for the sort, read slice by slice as workers read them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow
from windrow_worker.tables import make_loader

from windrow_master.planning.errors import PlanningError
from windrow_master.planning.memory import NoMemoryFor, reading
from windrow_master.planning.partitions.carried import Carried
from windrow_master.planning.partitions.row_schema import RowSchema


class Rows:
    """All rows, once. `error`: what ended reading; `misfits`: [column, count, example] of misfitting values.

    Not the output rows of an attempt, which the worker's `Rows` holds.
    """

    def __init__(
        self,
        reader: dict[str, Any],
        recipes: Iterable[dict[str, Any]],
        row_schema: RowSchema,
        carried: Carried,
    ) -> None:
        self._reader = reader
        self._recipes = recipes
        self._row_schema = row_schema
        self._carried = carried
        self._misfits: dict[str, tuple[int, str]] = {}
        self.error: PlanningError | NoMemoryFor | None = None

    @property
    def misfits(self) -> list[tuple[str, int, str]]:
        """Misfits by column, in the order in which they came."""
        return [(column, number, example) for column, (number, example) in self._misfits.items()]

    def reader(self) -> pyarrow.RecordBatchReader:
        """A stream of batches, for one reader."""
        return pyarrow.RecordBatchReader.from_batches(self._carried.schema, self._batches())

    def _batches(self) -> Iterator[pyarrow.RecordBatch]:
        try:
            loader, row = make_loader(self._reader, exact_integers=True), 0
            for recipe in self._recipes:
                with reading(os.fsencode(recipe["file"])):
                    loaded = loader.load(json.dumps(recipe).encode())
                    table = self._carried.pack(self._row_schema.batch(loaded.value), row) if loaded.item_count else None
                for column, number, example in loaded.misfits:
                    before, first = self._misfits.get(column, (0, example))
                    self._misfits[column] = before + number, first
                if table is None:
                    continue
                row += loaded.item_count
                yield from table.combine_chunks().to_batches()
        except (PlanningError, NoMemoryFor) as error:
            self.error = error
            raise
        except Exception as error:
            self.error = PlanningError(f"The rows of the input cannot be read: {error}")
            raise
