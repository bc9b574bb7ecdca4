"""Cuts the listed files of a table into slices, applies the steps on rows, and emits each slice as a mini-batch.

For steps that count rows (`take`, `skip`), it goes through the slices in order, as far as needed, and counts their
records. If an earlier step drops rows by their values, it reads the rows with the worker's own reader instead. The
recipe gets the `ranges` of rows that pass, and the number of items of the mini-batch is then exact. `seen` of a
position: how many rows have reached each take and skip.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple

from windrow_worker.loaded import InputChanged, InputMisread

from windrow_master.planning.counts import Counts
from windrow_master.planning.emitter import Emitter
from windrow_master.planning.errors import SYSTEM_ERROR, PlanningError, shown
from windrow_master.planning.file_steps import salt_of
from windrow_master.planning.listing.walk import Warn
from windrow_master.planning.plan_files.plan_files import PlanFiles
from windrow_master.planning.tables import listing
from windrow_master.planning.tables.common_header import HeaderCheck
from windrow_master.planning.tables.cutting import Cutter, slices, slices_of_lines
from windrow_master.planning.tables.delimited_files import Format
from windrow_master.planning.tables.fetched import readable
from windrow_master.planning.tables.files import TableFile, opened
from windrow_master.planning.tables.pin_delimited import head_for_cutting
from windrow_master.planning.tables.row_steps import COUNTING, bounds, drops_rows


class Slice(NamedTuple):
    """What a worker reads for one mini-batch. `items`: 0 if unknown; `following`: where the next slice of the file
    begins.
    """

    recipe: dict[str, Any]
    items: int
    following: int


def cut(pinned: dict[str, Any], position: dict[str, Any], plan_files: PlanFiles, emitter: Emitter) -> None:
    """Emit the mini-batches from a position on. Raises PlanningError."""
    for recipe, items, following in recipes(pinned, position, plan_files, emitter.warn):
        emitter.add_recipe(items, json.dumps(recipe, separators=(",", ":")).encode(), following)


def recipes(
    pinned: dict[str, Any], position: dict[str, Any], plan_files: PlanFiles, warn: Warn
) -> Iterator[tuple[dict[str, Any], int, dict[str, Any]]]:
    """The recipes of all slices from a position on, each with its number of items (0 if unknown) and the position
    after it. Raises PlanningError.
    """
    files_end, begin = position["files_end"], position["begin"]
    steps, headers = RowSteps(pinned, position.get("seen")), HeaderCheck(pinned, warn)
    for file_at, file in listing.files(plan_files.listing, position["file_at"], files_end):
        if "how" in pinned:
            parts = _text_slices(pinned, headers, file_at, file, begin)
        else:
            parts = _row_groups(file, begin or 0)
        for part in parts:
            if steps.nothing_passes:
                return
            recipe, items = steps.apply(part.recipe, part.items)
            if recipe is None:
                continue
            yield (
                recipe,
                items,
                {"files_end": files_end, "file_at": file_at, "begin": part.following, **steps.position},
            )
        begin = None


class WholeFiles:
    """Recipes of whole files, in any order: no step counts rows."""

    def __init__(self, pinned: dict[str, Any], warn: Warn) -> None:
        self._pinned = pinned
        self._steps = RowSteps(pinned, None)
        self._headers = HeaderCheck(pinned, warn)

    def recipes(self, file_at: int, file: TableFile) -> Iterator[tuple[dict[str, Any], int]]:
        """The recipes of a file, with their items (0 if unknown); none for a file without records. Raises
        PlanningError.
        """
        if "how" in self._pinned:
            whole = {**self._pinned, "slice_bytes": max(1, file.size)}
            parts = _text_slices(whole, self._headers, file_at, file, None)
        else:
            parts = _row_groups(file, 0)
        for part in parts:
            recipe, items = self._steps.apply(part.recipe, part.items)
            if recipe is not None:
                yield recipe, items


def _text_slices(
    pinned: dict[str, Any], headers: HeaderCheck, file_at: int, file: TableFile, begin: int | None
) -> Iterator[Slice]:
    """Slices of one text file, with items unknown unless they are cut by rows."""
    if begin is not None and begin >= file.size:
        return
    how = Format.from_json(pinned["how"])
    with opened(file) as window:
        head = head_for_cutting(window, file, how, pinned["header"], file_at == pinned["header_at"])
        begin = head.first_record if begin is None else begin
        if begin is None:
            return
        order = headers.order(file, head.names)
        if pinned["slice_rows"] is not None:
            by_rows = slices_of_lines(window, begin, pinned["slice_rows"])
            for first, end, rows in _without_gaps(file, begin, file.size, by_rows):
                yield Slice({**file.where(), "begin": first, "end": end, "records": rows}, rows, end)
            return
        cutter = how.cutter(window)
        for start, stop in _runs(cutter, file, begin):
            by_bytes = slices(cutter, start, stop, pinned["slice_bytes"])
            for first, end, records in _without_gaps(file, start, stop, by_bytes):
                recipe = {**file.where(), "begin": first, "end": end, "layout": file.layout}
                recipe |= {"records": records} if records else {}
                recipe |= {"order": order} if order is not None else {}
                yield Slice(recipe, records, end)


def _runs(cutter: Cutter, file: TableFile, begin: int) -> Iterator[tuple[int, int]]:
    """The parts to cut, from the record at `begin` on: (start of the first record, end of the last)."""
    if file.runs is None:
        yield begin, file.size
        return
    for low, high in file.runs:
        # A record that starts exactly on a boundary belongs to the partition before it.
        start = cutter.next_record(begin, low).begin if low and begin <= low else begin
        behind = cutter.next_record(begin, high).begin if begin <= high < file.size else None
        stop = file.size if high >= file.size or behind is None else behind
        if start is not None and begin <= high and start < stop:
            yield start, stop


def _without_gaps(
    file: TableFile, begin: int, stop: int, parts: Iterable[tuple[int, int, int]]
) -> Iterator[tuple[int, int, int]]:
    """The slices (begin, end, records) of a part of a file. Raises PlanningError if a byte of the part is not in
    exactly one slice, which can only be a fault of the cutter.
    """
    at = begin
    for first, end, records in parts:
        if first != at or not first < end <= stop:
            break
        yield first, end, records
        at = end
    else:
        if at == stop:
            return
        first = end = stop
    raise PlanningError(
        f"{shown(file.name)} was divided wrongly: after byte {at:,} of {stop:,} comes the slice from {first:,} to "
        f"{end:,}, so rows would be missing or repeated. This is a fault of Windrow: please report it, with the "
        "first lines of the file and the version of Python that the master runs with.",
        SYSTEM_ERROR,
    )


def _row_groups(file: TableFile, begin: int) -> Iterator[Slice]:
    """Slices of one Parquet file, with their rows; a row group without rows is not a mini-batch."""
    chosen = range(len(file.rows)) if file.runs is None else chain.from_iterable(range(*run) for run in file.runs)
    for at in chosen:
        if at >= begin and file.rows[at]:
            recipe: dict[str, Any] = {**file.where(), "row_group": at, "records": file.rows[at]}
            if file.is_remote:
                recipe["spans"] = [file.spans[at], file.spans[-1]]
            yield Slice(recipe, file.rows[at], at + 1)


class RowSteps:
    """Applies the steps on rows to each slice, in order."""

    def __init__(self, pinned: dict[str, Any], seen: list[int] | None) -> None:
        # Without its partition: a slice is read alone, even if it becomes a part of a group.
        self._reader = {key: value for key, value in pinned["reader"].items() if key != "partition"}
        self._steps: list[dict[str, Any]] = self._reader.get("steps", [])
        self._counts = Counts(bounds(self._steps), seen)
        self._base = os.fsencode(pinned.get("base", ""))
        self._salted = any(one["step"] == "sample" for one in self._steps)
        last = max((at for at, one in enumerate(self._steps) if one["step"] in COUNTING), default=-1)
        self._must_read = drops_rows(self._steps[: last + 1])
        self._drops_rows = drops_rows(self._steps)
        # The exact index of every row needs all of them counted, even if no step does.
        self._counts_all: bool = pinned["count"]
        self._must_read = self._must_read or (self._counts_all and self._drops_rows)
        self._loader: Any = None

    @property
    def position(self) -> dict[str, Any]:
        """The part of a position that the steps need; nothing if they count nothing."""
        return {"seen": list(self._counts.seen)} if self._counts.seen else {}

    @property
    def nothing_passes(self) -> bool:
        """Whether no row of any further slice gets through."""
        return self._counts.nothing_passes

    def apply(self, recipe: dict[str, Any], items: int) -> tuple[dict[str, Any] | None, int]:
        """The recipe with what the steps need, and its items (0 if unknown); None if no row is left."""
        if self._salted:
            recipe["salt"] = salt_of(os.fsencode(recipe["file"]), self._base)
        if self._counts.everything_passes and not self._counts_all:
            return recipe, 0 if self._drops_rows else items
        ranges = list[tuple[int, int]]()

        def passing(rows: int) -> tuple[int, int]:
            ranges.append(self._counts.passing(len(ranges), rows))
            return ranges[-1]

        if self._must_read:
            left = self._read(recipe, passing)
        else:
            left = recipe["records"] = items or self._count(recipe)
            for _ in self._counts.seen:
                first, behind = passing(left)
                left = behind - first
        if not left:
            return None, 0
        if ranges:
            recipe["ranges"] = ranges
        return recipe, 0 if self._drops_rows and not self._must_read else left

    def _read(self, recipe: dict[str, Any], passing: Any) -> int:
        """The number of rows left after all steps."""
        # Imports pandas, so only if rows have to be read.
        from windrow_worker.loading import make_loader

        if self._loader is None:
            self._loader = make_loader(self._reader)
        try:
            with readable(recipe) as here:
                left: int = self._loader.load(json.dumps(here).encode(), passing).item_count
        except (OSError, ValueError, InputChanged, InputMisread) as error:
            raise PlanningError(f"The rows that the steps leave cannot be counted: {error}.") from error
        return left

    def _count(self, recipe: dict[str, Any]) -> int:
        """The number of records in a slice of text."""
        from windrow_worker.tables.counting import count_records

        try:
            with readable(recipe) as here:
                return count_records(self._reader, here)
        except (OSError, ValueError, InputChanged, InputMisread) as error:
            raise PlanningError(f"The records of the input cannot be counted: {error}.") from error
