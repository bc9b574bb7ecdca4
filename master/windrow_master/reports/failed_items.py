"""`failed_items.csv`: every item without a result, with its cause, its tries and its node, and its partition where the
input is divided by keys. Rows are streamed."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from windrow_master.core.ids import StepId
from windrow_master.core.records import AttemptRow, ItemOutcomeRow
from windrow_master.core.states import AttemptState, Cause
from windrow_master.store.protocol import StoreReader

COLUMNS = ("item", "cause", "tries", "node", "message", "mini_batch")
FILE_NAME = "failed_items.csv"

PARTITION_COLUMN = "partition"


class Describer(NamedTuple):
    """What can be said of a recipe. `items`: the names of its items; `partition`: the values of its keys as a JSON
    object, None where the input is not divided by keys."""

    items: Callable[[bytes], list[str]]
    partition: Callable[[bytes], str] | None = None


def write_failed_items(reader: StoreReader, step_id: StepId, recipes: Path, describe: Describer, target: Path) -> int:
    """Write the file, whole or not at all; return the number of its rows (0: no file is left there).

    Raises OSError.
    """
    # Of this step: what a master that was killed has left of it is written over.
    temporary = target.with_name(f".{target.name}.{step_id}.windrow-partial")
    count = 0
    try:
        with (
            temporary.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file,
            recipes.open("rb") as source,
        ):
            writer = csv.writer(file)
            writer.writerow(COLUMNS if describe.partition is None else (*COLUMNS, PARTITION_COLUMN))
            for outcome, offset, length in _with_recipes(reader, step_id):
                attempts = reader.attempts_of_mini_batch(step_id, outcome.mini_batch)
                tries = sum(attempt.state in (AttemptState.FAILED, AttemptState.SUCCEEDED) for attempt in attempts)
                node = _last_node(attempts)
                recipe = os.pread(source.fileno(), length, offset)
                more = () if describe.partition is None else (describe.partition(recipe),)
                for item in _items(outcome, describe.items(recipe)):
                    cause = Cause(outcome.cause).name.lower() if outcome.cause else "no_result"
                    writer.writerow((item, cause, tries, node, outcome.message, outcome.mini_batch, *more))
                    count += 1
            file.flush()
            os.fsync(file.fileno())
        if count:
            temporary.replace(target)
        else:
            target.unlink(missing_ok=True)
    finally:
        temporary.unlink(missing_ok=True)
    return count


def describer(reader: dict[str, Any]) -> Describer:
    """How to name the items of recipes that this reader reads."""
    from windrow_master.planning.describe import describe_items, describe_partition

    return Describer(
        lambda recipe: describe_items(reader, recipe),
        (lambda recipe: describe_partition(reader, recipe)) if "partition" in reader else None,
    )


def _with_recipes(reader: StoreReader, step_id: StepId) -> Iterator[tuple[ItemOutcomeRow, int, int]]:
    """Item outcomes with (offset, length) of their mini-batch's recipe."""
    for page in reader.item_outcomes_of(step_id):
        for outcome in page:
            row = reader.mini_batch(step_id, outcome.mini_batch)
            if row is not None:
                yield outcome, row.recipe_offset, row.recipe_length


def _items(outcome: ItemOutcomeRow, names: list[str]) -> list[str]:
    """What to call the failed items: by name where all of them failed, else by what is known."""
    if outcome.cause or len(names) == outcome.item_count:
        return names
    return [f"{outcome.item_count} of the {len(names)} items of mini-batch {outcome.mini_batch}"]


def _last_node(attempts: list[AttemptRow]) -> str:
    return next((attempt.node_id for attempt in reversed(attempts) if attempt.node_id), "")
