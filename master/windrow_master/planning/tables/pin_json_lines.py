"""Pins columns and kinds of a JSON lines table from its first records.

Which keys there are cannot be known without reading everything, so the sample is larger than that of types elsewhere;
a key that appears later is left out, counted and warned of. Reference: docs/reference/azure-ml/mltable.md#misfits,
#json-lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from windrow.spec.tables.mltable import ReadJsonLines
from windrow_worker.tables.columns import FLOAT_EXACT
from windrow_worker.tables.delimited_text import Text
from windrow_worker.tables.encodings import ENCODINGS, to_text
from windrow_worker.tables.json_lines import (
    KEYS_MAX,
    InvalidLine,
    fits_int,
    key_count,
    kind_of,
    merged,
    record_lines,
    shape_to_json,
    table_lines,
)

from windrow_master.planning.errors import PlanningError, shown
from windrow_master.planning.tables.delimited_files import Format, read_head
from windrow_master.planning.tables.files import TableFile, opened
from windrow_master.planning.tables.pin_paths import check_path_column
from windrow_master.planning.tables.window import Window

SAMPLE_ROWS = 10_000
SAMPLE_BYTES = 8 * 1024 * 1024
"""The sample ends with whichever comes first; at least one record is looked at."""


class JsonLinesPinning:
    """One table's pinning: all files are `looked_at` while listing, then `pin`."""

    def __init__(self, read: ReadJsonLines, *, as_records: bool, mixed_types: bool, plain: bool) -> None:
        """`as_records`: for lists of dicts, in no table. `mixed_types`: a column keeps values of other kinds than its
        first one's (docs/reference/azure-ml/parallel-job.md#undocumented-arguments). So it does in `plain` files, where
        whole numbers and others make a column of floats."""
        self._read = read
        self._as_records = as_records
        self._mixed_types = mixed_types
        self._plain = plain
        self._first_invalid: PlanningError | None = None
        self._invalid = 0
        self.how = Format(ENCODINGS[read.encoding], Text())

    def looked_at(self, files: Iterable[TableFile]) -> Iterable[TableFile]:
        """The same files: nothing has to be known about them before they are cut."""
        return files

    def pin(self, files: Iterable[tuple[int, TableFile]]) -> dict[str, Any]:
        """Read the sample; return the reader document. Raises PlanningError if most of its lines are not objects: that
        is another format. Where some are not, those are failed items, as behind the sample.
        """
        kinds: dict[str, str | None] = {}
        shapes: dict[str, Any] = {}
        values = Counter[str]()
        """How many values of each key are not null."""
        beyond_floats = set[str]()
        rows, budget = 0, SAMPLE_BYTES
        for _, file in files:
            with opened(file) as window:
                begin = read_head(window, file, self.how, header=False).first_record
                if begin is None:
                    continue
                data = self._head_of(window, begin, budget)
                budget -= len(data)
                for value in self._objects(data, file, window, begin):
                    rows += 1
                    values.update(key for key, item in value.items() if item is not None)
                    for key, item in value.items():
                        kind = kind_of(item)
                        if not self._as_records and kind in ("object", "array"):
                            shapes[key] = merged(shapes.get(key), item)
                        if self._plain and kind == "int" and abs(item) > FLOAT_EXACT:
                            beyond_floats.add(key)
                            kind = "int" if fits_int(item) else "any"
                        kinds[key] = self._joined(kinds.get(key), kind)
                    if rows >= SAMPLE_ROWS:
                        break
            if rows >= SAMPLE_ROWS or budget <= 0:
                break
        if self._first_invalid is not None and self._invalid > rows and not self._read.drop_invalid:
            raise self._first_invalid
        check_path_column(self._read.include_path_column, kinds)
        as_floats = {name for name, number in values.items() if self._plain and number < rows} - beyond_floats
        return {
            "kind": "table",
            "format": "json_lines",
            "columns": [
                {"name": name, "type": kind or "any"}
                | ({"as_floats": True} if kind == "int" and name in as_floats else {})
                | ({"shape": shape_to_json(shapes[name])} if 0 < key_count(shapes.get(name)) <= KEYS_MAX else {})
                for name, kind in kinds.items()
            ],
            "encoding": self.how.encoding.name,
            "drop_invalid": self._read.drop_invalid,
            "path_column": self._read.include_path_column,
            "mixed_types": self._mixed_types,
            "plain": self._plain,
            "null_objects": not self._plain,
        }

    def _joined(self, known: str | None, kind: str | None) -> str | None:
        """The kind of a column, from what its values so far made it and the kind of one more."""
        if known is None or kind in (known, None):
            return known or kind
        if self._mixed_types:
            return "any"
        if self._plain:
            return "float" if {known, kind} == {"int", "float"} else "any"
        return known

    def _head_of(self, window: Window, begin: int, budget: int) -> bytes:
        """Whole lines of at most `budget` bytes, or one line."""
        cutter = self.how.cutter(window)
        end = cutter.next_record(begin, begin + budget).begin if begin + budget < window.size else None
        return window.read(begin, (window.size if end is None else end) - begin)

    def _objects(self, data: bytes, file: TableFile, window: Window, begin: int) -> Iterable[dict[str, Any]]:
        try:
            text = to_text(data, self.how.encoding.name, begin)
        except ValueError as error:
            raise PlanningError(f"{shown(file.name)}: {error}.") from error
        for value in record_lines(text) if self._as_records else table_lines(text, self._plain):
            if not isinstance(value, InvalidLine):
                yield value
                continue
            self._invalid += 1
            if self._first_invalid is None:
                line = window.read(0, begin).count(b"\n") + value.number
                self._first_invalid = PlanningError(f"{shown(file.name)}, line {line}: {value}.")
