"""`failed_items.csv`: every item without a result, with cause, number of attempts, node, and its partition if the input
is divided by keys. Rows are streamed. What begins like a formula has an apostrophe before it (`spreadsheet_cells`)."""

from __future__ import annotations

import csv
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from windrow.common.beneath import Folder
from windrow.common.durable import put_in_place
from windrow.common.journal import say

from windrow_master.core.ids import StepId
from windrow_master.core.states import Cause
from windrow_master.files.recipes import RecipePlace, Recipes
from windrow_master.files.step_damage import StepDamaged
from windrow_master.store.protocol import StoreReader
from windrow_master.store.records import FailureRow

COLUMNS = ("item", "cause", "tries", "node", "message", "mini_batch", "number")

PARTITION_COLUMN = "partition"
_UNKNOWN = "(not known: the recipe of this mini-batch is damaged)"


class Describer(NamedTuple):
    """Reads a recipe. `items`: the names of its items; `partition`: the values of its keys as a JSON object, None if
    the input is not divided by keys."""

    items: Callable[[bytes], list[str]]
    partition: Callable[[bytes], str] | None = None


def write_failed_items(
    reader: StoreReader, step_id: StepId, recipes: Path, describe: Describer, target: Path, *, job_file: str = ""
) -> int:
    """Write the file atomically and return the number of its rows. If there are none, remove the file.

    `job_file`: of the job, which says how messages call its settings. Raises OSError.
    """
    # No run needs them before something has failed.
    from windrow.common.spreadsheet_cells import as_texts
    from windrow.spec.one_line.words import failure_in_options

    # One name for each step: the next master overwrites what a killed one left.
    temporary = target.with_name(f".{target.name}.{step_id}.windrow-partial")
    count = 0
    try:
        with (
            temporary.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file,
            _RecipeReader(recipes) as recipe_reader,
        ):
            writer = csv.writer(file)
            writer.writerow(COLUMNS if describe.partition is None else (*COLUMNS, PARTITION_COLUMN))
            for page in reader.failures_of(step_id):
                for failure in page:
                    recipe = recipe_reader.recipe(failure)
                    cause = Cause(failure.cause).name.lower() if failure.cause else "no_result"
                    message = failure_in_options(cause, failure.message, job_file)
                    rest = (cause, failure.tries, failure.node_id, message, failure.mini_batch)
                    more: list[str] = []
                    if describe.partition is not None:
                        more.append("" if recipe is None else describe.partition(recipe))
                    items = [(_UNKNOWN, None)] if recipe is None else named_items(failure, describe.items(recipe))
                    writer.writerows(as_texts([item, *rest, number, *more]) for item, number in items)
                    count += len(items)
        if count:
            put_in_place(temporary, target)
        else:
            target.unlink(missing_ok=True)
    finally:
        temporary.unlink(missing_ok=True)
    return count


def copy_list(
    source: Path, folder: Folder, name: str, step_id: StepId, *, before: Callable[[os.stat_result], object]
) -> None:
    """Copy the file to a name in a folder, whole or not at all; `before` is called with the copy's status, before it
    gets its name. Raises OSError.
    """
    temporary = f".{name}.{step_id}.windrow-partial"
    try:
        folder.remove(temporary)
        with source.open("rb") as there, os.fdopen(folder.create(temporary, 0o666), "wb") as here:
            shutil.copyfileobj(there, here)
            here.flush()
            os.fsync(here.fileno())
            before(os.fstat(here.fileno()))
        folder.rename(temporary, name)
        folder.sync()
    finally:
        folder.remove(temporary)


def describer(reader: dict[str, Any]) -> Describer:
    """The describer of recipes for this reader."""
    from windrow_master.planning.recipes.description import describe_items, describe_partition, has_partition

    return Describer(
        lambda recipe: describe_items(reader, recipe),
        (lambda recipe: describe_partition(reader, recipe)) if has_partition(reader) else None,
    )


class _RecipeReader:
    """Reads the recipes of failed mini-batches; damaged ones are logged."""

    def __init__(self, path: Path) -> None:
        self._recipes: Recipes | None = None
        try:
            self._recipes = Recipes(path)
        except StepDamaged as error:
            _tell(error)

    def __enter__(self) -> _RecipeReader:
        return self

    def __exit__(self, *raised: object) -> None:
        if self._recipes is not None:
            self._recipes.close()

    def recipe(self, failure: FailureRow) -> bytes | None:
        """The recipe; None if it is damaged."""
        if self._recipes is None:
            return None
        place = (failure.mini_batch, failure.recipe_offset, failure.recipe_length, failure.recipe_crc32)
        try:
            return self._recipes.read(RecipePlace(*place))
        except StepDamaged as error:
            _tell(error)
            return None


def _tell(error: StepDamaged) -> None:
    say(logging.ERROR, "the names of some failed items are lost", where=error.where, what=error.what)


def named_items(failure: FailureRow, names: list[str]) -> list[tuple[str, int | None]]:
    """The failed items in words, each with its number in its mini-batch, from 0.

    Args:
        failure: Items of one mini-batch.
        names: Its items in words, as `describe_items` gives them.

    Returns:
        The number is None for a text that is not about a single, known item: a count of items if it is not known
        which of the mini-batch they are, a range of records.
    """
    found = _items(failure, names)
    if failure.cause and len(found) == failure.item_count:
        return list(zip(found, range(failure.first, failure.first + len(found)), strict=True))
    return [(item, None) for item in found]


def _items(failure: FailureRow, names: list[str]) -> list[str]:
    if failure.place:
        return [failure.place]
    if failure.item_count == failure.items:
        return names
    if failure.cause and len(names) == failure.items:
        return names[failure.first : failure.first + failure.item_count]
    if failure.cause:
        last = failure.first + failure.item_count
        records = f"record {last}" if failure.item_count == 1 else f"records {failure.first + 1}-{last}"
        return [f"{names[0]}, {records}"]
    of = names[0] if len(names) == 1 else f"mini-batch {failure.mini_batch}"
    return [f"{failure.item_count} of the {failure.items} items of {of}"]
