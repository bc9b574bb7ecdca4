"""The partition keys of a step, and files whose paths do not match."""

from __future__ import annotations

import os
from collections.abc import Sequence

from windrow.spec.tables.mltable import MLTable
from windrow.spec.tables.partition_format import ExtractColumns
from windrow.spec.tables.steps import SelectPartitions, Skip, Step, Take
from windrow_worker.tables.partition_format import PathColumns

from windrow_master.planning.errors import PlanningError, shown
from windrow_master.planning.listing.walk import Warn

_KNOWN_MAX = 50


def path_columns(steps: Sequence[Step]) -> PathColumns:
    """The columns that these steps take from the paths of files."""
    return PathColumns([step.format for step in steps if isinstance(step, ExtractColumns)])


def counts_rows(table: MLTable | None) -> bool:
    """Whether steps choose rows by their number in the input, so that groups cannot consist of whole files."""
    return table is not None and any(isinstance(step, Take | Skip | SelectPartitions) for step in table.after)


def check_keys(path: bytes, keys: Sequence[str], known: Sequence[str]) -> None:
    """Raise PlanningError if the input does not have one of the keys."""
    unknown = [name for name in keys if name not in known]
    if unknown:
        there = f"The columns and keys that it has: {', '.join(known[:_KNOWN_MAX])}" if known else "It has no keys"
        raise PlanningError(
            f"partition_keys names {', '.join(unknown)}, which the input {shown(path)} does not have. {there}"
            f"{', …' if len(known) > _KNOWN_MAX else ''}. Correct the names, or have "
            "extract_columns_from_partition_format of the MLTable file name them."
        )


class Unmatched:
    """Counts files whose paths a format does not match: their columns are null, which is rarely intended."""

    def __init__(self, columns: PathColumns) -> None:
        self._formats = columns.formats
        self._files = 0
        self._counts = [0] * len(self._formats)
        self._examples = [""] * len(self._formats)

    def look_at(self, name: bytes) -> None:
        """Check a file, by its absolute name."""
        path = os.fsdecode(name)
        self._files += 1
        for at, one in enumerate(self._formats):
            if not one.matches(path):
                self._examples[at] = self._examples[at] or path
                self._counts[at] += 1

    def tell(self, warn: Warn) -> None:
        """Warn of each format that does not match some of the files."""
        for one, count, example in zip(self._formats, self._counts, self._examples, strict=True):
            if count:
                warn(
                    f'The partition format "{one.text}" does not match {count} of the {self._files} files, such as '
                    f"{shown(os.fsencode(example))}: {', '.join(one.names)} are null there. A format reaches to the "
                    "end of the path."
                )
