"""Tables by keys of which each file has one value, in its path or its listing: each group is a mini-batch of whole
files, in listing order.

`group` of a position is the number of the next group; what else a planner needs is in the listing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from windrow_worker.tables.path_values import PathColumnsPlan

from windrow_master.planning.emitter import Emitter
from windrow_master.planning.partitions.grouping import Grouping
from windrow_master.planning.plan_files.plan_files import PlanFiles
from windrow_master.planning.sections import Section
from windrow_master.planning.tables import listing
from windrow_master.planning.tables.cut import WholeFiles
from windrow_master.planning.tables.files import TableFile


def emit_table_groups(
    pinned: dict[str, Any], section: Section, position: dict[str, Any], plan_files: PlanFiles, emitter: Emitter
) -> None:
    """Emit the groups of an input from a position on. Raises PlanningError."""
    reader, files_end = pinned["reader"], position["files_end"]
    key_of = KeyOfFile(reader, reader["partition"]["keys"])
    whole_files = WholeFiles(pinned, emitter.warn)
    grouping = Grouping()
    for begin, file in listing.files(plan_files.listing, section.listing[0], files_end):
        grouping.add(key_of(file), begin, file.size)
    first = position.get("group", 0)
    for number, group in enumerate(grouping.in_order(files_end, first), first + 1):
        parts: list[dict[str, Any]] = []
        counts: list[int] = []
        key = None
        for run in group.runs:
            for file_at, file in listing.files(plan_files.listing, *run):
                key = key or key_of.to_json(file)
                for part, items in whole_files.recipes(file_at, file):
                    parts.append(part)
                    counts.append(items)
        if parts:
            recipe = json.dumps({"key": key, "parts": parts}, separators=(",", ":")).encode()
            following = {"files_end": files_end, "group": number}
            emitter.add_recipe(sum(counts) if all(counts) else 0, recipe, following, rank=group.size)


class KeyOfFile:
    """The values of the partition keys of a file, of the types that its columns have."""

    def __init__(self, reader: dict[str, Any], keys: Sequence[str]) -> None:
        steps = [step for step in reader.get("steps", ()) if step["step"] == "extract_columns"]
        before = [reader["path_columns"]] if "path_columns" in reader else []
        self._plans = [PathColumnsPlan(plan) for plan in (*before, *steps)]
        self._keys = keys

    def __call__(self, file: TableFile) -> tuple[Any, ...]:
        """The values in the form that sorts: dates as numbers."""
        values = self._values(file)
        return tuple(values[key][0] for key in self._keys)

    def to_json(self, file: TableFile) -> list[Any]:
        """The values in the form of a recipe: dates in paths as lists of one number, types that JSON lacks as text."""
        values = self._values(file)
        return [values[key][1] for key in self._keys]

    def _values(self, file: TableFile) -> dict[str, tuple[Any, Any]]:
        """Each value in the form that sorts and in the form of a recipe."""
        name = os.fsdecode(file.name)
        found: dict[str, tuple[Any, Any]] = {}
        for plan in self._plans:
            for column, value, _ in plan.values(name):
                is_date = column.type == "datetime" and value is not None
                found[column.name] = value, [value] if is_date else None if value != value else value
        if file.constants:
            # pyarrow, only where files are Parquet.
            from windrow_master.planning.partitions.constants import constant_values

            found |= constant_values(file.constants)
        return found
