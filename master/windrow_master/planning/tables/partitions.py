"""`select_partitions`: which parts of which files, as the vendor's reader cuts them.

Delimited text and JSON lines are cut by `partition_size`, by the rule of `cutting`; never where records can continue
after a line end, or in encodings other than UTF-8. Parquet is cut at its row groups. Partitions are counted through all
files, in order. Reference: docs/reference/azure-ml/mltable.md#partitions.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from windrow.spec.tables.delta import ReadDelta
from windrow.spec.tables.mltable import Read, ReadDelimited, ReadParquet
from windrow.spec.tables.steps import SelectPartitions, Step

from windrow_master.planning.errors import PlanningError
from windrow_master.planning.tables.files import Run, TableFile

PARTITION_BYTES = 20 * 1024 * 1024
"""Bytes of a partition by default. Reference: docs/reference/azure-ml/mltable.md#delimited-text."""


class Partitions:
    """Selects partitions; files have to come in order."""

    def __init__(self, steps: Sequence[Step], read: Read) -> None:
        self._steps = [step for step in steps if isinstance(step, SelectPartitions)]
        chosen: tuple[int, ...] = self._steps[0].numbers
        for step in self._steps[1:]:
            # A second selection numbers what the first has left, from 0 again.
            chosen = tuple(chosen[number] for number in step.numbers)
        self._chosen = chosen
        self._total = 0
        self._by_row_group = isinstance(read, ReadParquet | ReadDelta)
        self._bytes = _partition_bytes(read)

    def of(self, file: TableFile) -> TableFile:
        """The file with its selected runs of bytes or row groups."""
        if self._by_row_group:
            count = len(file.rows)
        elif self._bytes is None:
            count = int(file.size > 0)
        else:
            count = -(-file.size // self._bytes)
        first, self._total = self._total, self._total + count
        chosen = self._chosen[bisect_left(self._chosen, first) : bisect_left(self._chosen, self._total)]
        return file._replace(runs=tuple(self._runs(file, [number - first for number in chosen])))

    def check(self) -> None:
        """Raises PlanningError for a selected partition that no file has."""
        step = self._steps[0]
        if step.numbers and step.numbers[-1] >= self._total:
            raise PlanningError(
                f"{step.place}: select_partitions names partition {step.numbers[-1]}, but the input has "
                f"{self._total}, from 0 on."
            )

    def _runs(self, file: TableFile, numbers: Sequence[int]) -> Iterator[Run]:
        scale = 1 if self._by_row_group else self._bytes or file.size
        begin = end = -1
        for number in numbers:
            if number == end:
                end += 1
                continue
            if begin >= 0:
                yield begin * scale, end * scale
            begin, end = number, number + 1
        if begin >= 0:
            yield begin * scale, end * scale


def _partition_bytes(read: Read) -> int | None:
    """Bytes of a partition of text; None if each file is one partition."""
    if isinstance(read, ReadParquet | ReadDelta) or read.encoding != "utf-8":
        return None
    if isinstance(read, ReadDelimited) and read.support_multi_line:
        return None
    return read.partition_size or PARTITION_BYTES
