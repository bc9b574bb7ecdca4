"""Everything durable in a state folder against what it must be.

A check is a function of a `StateFolder` that yields what it finds. Whoever gives a kind of file, or a table, check
values of its own adds a check to CHECKS: it is then part of `windrow state check` and `windrow doctor --deep`.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from windrow.spec.effective import EffectiveJob
from windrow.spec.effective_json import DocumentError

from windrow_master.core.ids import MINI_BATCH_SHIFT
from windrow_master.core.states import JobState, MiniBatchState, StepState
from windrow_master.output.errors import RowsUnreadable
from windrow_master.output.extents import SegmentReader
from windrow_master.recipes import RecipePlace, Recipes
from windrow_master.salvage.damage import Damage, Meanings, has_ended, means_for_job, means_for_step, named, steps_of
from windrow_master.salvage.file_checks import check_artifacts, check_lists, check_notes, check_planning
from windrow_master.salvage.folder import FoundJob, FoundMiniBatch, FoundSegment, FoundStep, StateFolder
from windrow_master.step_damage import StepDamaged
from windrow_master.store.checks import ATTEMPTS, ITEM_OUTCOMES, damaged_row, text_crc
from windrow_master.store.connections import APPLICATION_ID, migrations
from windrow_master.store.errors import DatabaseDamaged, StateDamaged
from windrow_master.store.integrity import check as check_database
from windrow_master.store.integrity import is_damage, refuse_damaged_files, refuse_wrong_schema
from windrow_master.store.loading import (
    ATTEMPT_COLUMNS,
    attempt_of,
    check_number,
    check_steps,
    damaged_attempt,
    damaged_mini_batch,
    number_in,
)
from windrow_master.store.lock import LOCK_FILE, incarnation_in
from windrow_master.store.rows import CommittedRange
from windrow_master.store.sqlite import refuse_older

_PAGE_ROWS = 5000
_TOGETHER_BYTES = 1 << 20


def database_damage(database: Path) -> Iterator[Damage]:
    """What the files of the database show, what it says it is, and all that SQLite finds."""
    try:
        refuse_damaged_files(database)
        if not database.exists():
            return
        uri = f"{database.absolute().as_uri()}?mode=ro"
        with contextlib.closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
            refuse_wrong_schema(connection, database, APPLICATION_ID, migrations())
            refuse_older(connection, database, incarnation_in(database.with_name(LOCK_FILE)))
        for text in check_database(database, whole=True):
            yield Damage(str(database), " ".join(text.split()))
    except DatabaseDamaged as damage:
        yield Damage(damage.where, damage.what)
    except OSError as error:
        yield Damage(str(database), f"it cannot be read: {error.strerror}")
    except sqlite3.Error as error:
        what = "SQLite says" if is_damage(error) else "it cannot be looked at"
        yield Damage(str(database), f"{what}: {error}")


def check_rows(state: StateFolder) -> Iterator[Damage]:
    """The rows of the small tables against their check values."""
    tell = Meanings(state)
    for table, row, damage in state.damaged_rows():
        yield Damage(damage.where, f"{damage.what}; {tell.of_row(table, row)}")


def check_attempts(state: StateFolder) -> Iterator[Damage]:
    """Attempts, and items that failed, against their check values and those of their texts."""
    tell = Meanings(state)
    columns = (*ATTEMPT_COLUMNS.split(", "), "message_crc32", "texts_crc32", ATTEMPTS.holds())
    for *row, held in state.database.rows(ATTEMPTS.table, "lease_id", columns):
        try:
            if not held:
                raise damaged_attempt(row)
            attempt_of(row)
        except StateDamaged as damage:
            yield Damage(damage.where, f"{damage.what}; an attempt {tell.of_step(row[1])}")
    outcomes = ("id", "step_id", "message", "message_crc32", ITEM_OUTCOMES.holds())
    for number, step_id, message, crc32, held in state.database.rows(ITEM_OUTCOMES.table, "id", outcomes):
        if not held or text_crc(message) != crc32:
            found = damaged_row(ITEM_OUTCOMES.table, f"id {number}")
            yield Damage(found.where, f"{found.what}; items that failed {tell.of_step(step_id)}")


def check_jobs(state: StateFolder) -> Iterator[Damage]:
    """Documents, states, and whether steps and jobs name one another."""
    jobs, steps = state.jobs(), state.steps()
    keys = {row[0] for row, _ in state.rows_of("job")}
    steps_of = [row[1] for row, _ in state.rows_of("step")]
    documents = {row[0] for row, _ in state.rows_of("job_document")}
    for job in jobs:
        where = f"windrow.db, job {job.job_id!r}"
        if job.state not in set(JobState):
            yield Damage(where, f"it has state {job.state}, which there is not")
        if not job.document:
            if job.job_key not in documents:
                yield Damage(where, "its document is missing, or cannot be read")
            continue
        try:
            EffectiveJob.from_json(job.document)
        except (DocumentError, ValueError) as error:
            yield Damage(where, f"its document makes no sense: {error}")
            continue
        try:
            check_steps(job.job_id, job.document, steps_of.count(job.job_key))
        except StateDamaged as damage:
            yield Damage(damage.where, f"{damage.what}; {means_for_job(job)}")
    for step in steps:
        where = f"windrow.db, step {step.step_id} ({step.name!r})"
        if step.state not in set(StepState):
            yield Damage(where, f"it has state {step.state}, which there is not")
        if step.job_key not in keys:
            yield Damage(where, f"it is of job number {step.job_key}, which there is not")
        for name, content in (("paths", step.paths), ("reader", step.reader), ("checkpoint", step.checkpoint)):
            if content is not None and not _is_json(content):
                yield Damage(where, f"its {name} are no JSON" if name == "paths" else f"its {name} is no JSON")


def check_mini_batches(state: StateFolder) -> Iterator[Damage]:
    """Mini-batches against their check values and number, their recipes, and every committed row against the checksum
    that it was committed with."""
    for job, step in steps_of(state):
        yield from _check_step(state, job, step)


def _check_step(state: StateFolder, job: FoundJob, step: FoundStep) -> Iterator[Damage]:
    folder = state.step_folder(job, step)
    where = named(job, step)
    means = means_for_step(step)
    segments = state.segments_of(step.step_id)
    reader = SegmentReader(folder / "segments", {number: one.name for number, one in segments.items()}.get)
    count = 0
    # Once a step has ended, its rows are in its output; its segments may be gone.
    with_rows = not has_ended(step) or not has_ended(job) or (folder / "segments").is_dir()
    try:
        batches = state.mini_batches_of(step.step_id)
        while page := list(islice(batches, _PAGE_ROWS)):
            for batch in page:
                if not batch.sound:
                    found = damaged_mini_batch((step.step_id << MINI_BATCH_SHIFT) + batch.number)
                    yield Damage(found.where, f"{found.what}; it is of {where}: {means}")
                    count += batch.number == count
                    continue
                if batch.number != count:
                    yield Damage(where, f"mini-batches {count:,} to {batch.number - 1:,} are missing; {means}")
                count = batch.number + 1
                if batch.state not in set(MiniBatchState):
                    yield Damage(where, f"mini-batch {batch.number:,} has state {batch.state}, which there is not")
                if batch.range is not None and with_rows:
                    yield from _check_range(where, folder, segments, reader, batch, batch.range)
            for damaged_recipe in damaged_recipes(folder / "recipes", [batch for batch in page if batch.sound]):
                yield Damage(damaged_recipe.where, f"{damaged_recipe.what}; it is of {where}: {means}")
    finally:
        reader.close()
    try:
        check_number(step.step_id, number_in(step.counters, "planned"), count)
        check_number(step.step_id, step.planned.get("mini_batches"), count)
    except StateDamaged as damage:
        yield Damage(damage.where, f"{damage.what}; it is {where}: {means}")


def _check_range(
    where: str,
    folder: Path,
    segments: dict[int, FoundSegment],
    reader: SegmentReader,
    batch: FoundMiniBatch,
    place: CommittedRange,
) -> Iterator[Damage]:
    segment = segments.get(place.segment_id)
    if segment is None:
        yield Damage(where, f"mini-batch {batch.number:,}: its segment is not known")
        return
    fits = segment.length is None or place.offset + place.length <= segment.length
    if not fits or not rows_are_sound(reader, place):
        yield Damage(
            str(folder / "segments" / segment.name),
            f"rows of mini-batch {batch.number:,} cannot be read, or fail their checksum; it is of {where}: while its "
            "job goes on, that mini-batch runs again; once it has ended, its output is not touched",
        )


def damaged_recipes(path: Path, batches: Sequence[FoundMiniBatch]) -> Iterator[StepDamaged]:
    """What is wrong with the recipes of mini-batches, one after the other; nothing of those that are sound."""
    places = [
        RecipePlace(batch.number, batch.recipe_offset, batch.recipe_length, batch.recipe_crc32)
        for batch in batches
        if batch.recipe_length
    ]
    if not places:
        return
    try:
        recipes = Recipes(path)
    except StepDamaged as damage:
        yield damage
        return
    with recipes:
        try:
            for _ in recipes.read_all(places, _TOGETHER_BYTES):
                pass
        except StepDamaged:
            for place in places:
                try:
                    recipes.read(place)
                except StepDamaged as damage:
                    yield damage


def rows_are_sound(reader: SegmentReader, row: CommittedRange) -> bool:
    """Whether the rows of a mini-batch can be read and have their checksum."""
    crc32, length = 0, 0
    try:
        for piece in reader.pieces(row):
            crc32 = zlib.crc32(piece, crc32)
            length += len(piece)
    except (OSError, RowsUnreadable, OverflowError, ValueError):
        return False
    return (length, crc32) == (row.length, row.crc32)


CHECKS: tuple[Callable[[StateFolder], Iterator[Damage]], ...] = (
    check_rows,
    check_jobs,
    check_mini_batches,
    check_attempts,
    check_planning,
    check_artifacts,
    check_notes,
    check_lists,
)


def _is_json(content: bytes) -> bool:
    try:
        json.loads(content or b"{}")
    except ValueError:
        return False
    return True
