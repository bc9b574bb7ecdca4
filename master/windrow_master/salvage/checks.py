"""Checks everything durable in a state folder.

A check is a function of a `DamagedState` that yields what it finds. If you give a kind of file, or a table, check
values of its own, add a check to CHECKS: `windrow state check` and `windrow doctor --deep` then run it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from windrow.common.state_mark import STATE_MARK
from windrow.spec.effective.document import DocumentError
from windrow.spec.effective.job import EffectiveJob

from windrow_master.core.states import JobState, MiniBatchState, StepState
from windrow_master.files.errors import StateDamaged
from windrow_master.files.recipes import RecipePlace, Recipes
from windrow_master.files.state_files import StepFiles
from windrow_master.files.step_damage import StepDamaged
from windrow_master.output.errors import RowsUnreadable
from windrow_master.output.extents import SegmentReader
from windrow_master.salvage.damage import Damage, Meanings, has_ended, means_for_job, means_for_step, named, steps_of
from windrow_master.salvage.file_checks import check_artifacts, check_lists, check_notes, check_planning
from windrow_master.salvage.folder import DamagedState
from windrow_master.store.found import FoundJob, FoundMiniBatch, FoundSegment, FoundStep
from windrow_master.store.records import CommittedRange

_PAGE_ROWS = 5000
_TOGETHER_BYTES = 1 << 20


def check_rows(state: DamagedState) -> Iterator[Damage]:
    """Check the rows of the small tables against their check values."""
    tell = Meanings(state)
    for table, row, damage in state.records.damaged_rows():
        yield Damage(damage.where, f"{damage.what}; {tell.of_row(table, row)}")


def check_attempts(state: DamagedState) -> Iterator[Damage]:
    """Check attempts and failed items against their check values and those of their texts."""
    tell = Meanings(state)
    for damage, step_id in state.records.damaged_attempts():
        yield Damage(damage.where, f"{damage.what}; an attempt {tell.of_step(step_id)}")
    for damage, step_id in state.records.damaged_item_outcomes():
        yield Damage(damage.where, f"{damage.what}; items that failed {tell.of_step(step_id)}")


def check_jobs(state: DamagedState) -> Iterator[Damage]:
    """Check documents and states, and that steps and jobs name one another."""
    records = state.records
    keys, documents = records.job_keys(), records.documents()
    for job in records.jobs():
        where = f"{STATE_MARK}, job {job.job_id!r}"
        if job.state not in set(JobState):
            yield Damage(where, f"it has state {job.state}, which does not exist")
        if not job.document:
            if job.job_key not in documents:
                yield Damage(where, "its document is missing, or cannot be read")
            continue
        try:
            EffectiveJob.from_json(job.document)
        except (DocumentError, ValueError) as error:
            yield Damage(where, f"its document is not valid: {error}")
            continue
        try:
            records.need_all_steps(job)
        except StateDamaged as damage:
            yield Damage(damage.where, f"{damage.what}; {means_for_job(job)}")
    for step in records.steps():
        where = f"{STATE_MARK}, step {step.step_id} ({step.name!r})"
        if step.state not in set(StepState):
            yield Damage(where, f"it has state {step.state}, which does not exist")
        if step.job_key not in keys:
            yield Damage(where, f"it is of job number {step.job_key}, which does not exist")
        for name, content in (("paths", step.paths), ("reader", step.reader), ("checkpoint", step.checkpoint)):
            if content is not None and not _is_json(content):
                yield Damage(where, f"its {name} are not JSON" if name == "paths" else f"its {name} is not JSON")


def check_mini_batches(state: DamagedState) -> Iterator[Damage]:
    """Check mini-batches against their check values and number, their recipes, and every committed row against the
    checksum with which it was committed."""
    for job, step in steps_of(state):
        yield from _check_step(state, job, step)


def _check_step(state: DamagedState, job: FoundJob, step: FoundStep) -> Iterator[Damage]:
    files = state.step_files(job, step)
    where = named(job, step)
    means = means_for_step(step)
    segments = state.records.segments_of(step.step_id)
    reader = SegmentReader(files.segments, {number: one.name for number, one in segments.items()}.get)
    count = 0
    # Once a step has ended, its rows are in its output, and its segments may be gone.
    with_rows = not has_ended(step) or not has_ended(job) or files.segments.is_dir()
    try:
        batches = state.records.mini_batches_of(step.step_id)
        while page := list(islice(batches, _PAGE_ROWS)):
            for batch in page:
                if not batch.sound:
                    found = state.records.damaged_mini_batch(step.step_id, batch.number)
                    yield Damage(found.where, f"{found.what}; it belongs to {where}: {means}")
                    count += batch.number == count
                    continue
                if batch.number != count:
                    yield Damage(where, f"mini-batches {count:,} to {batch.number - 1:,} are missing; {means}")
                count = batch.number + 1
                if batch.state not in set(MiniBatchState):
                    yield Damage(where, f"mini-batch {batch.number:,} has state {batch.state}, which does not exist")
                if batch.range is not None and with_rows:
                    yield from _check_range(where, files, segments, reader, batch, batch.range)
            for damaged_recipe in damaged_recipes(files.recipes, [batch for batch in page if batch.sound]):
                yield Damage(damaged_recipe.where, f"{damaged_recipe.what}; it belongs to {where}: {means}")
    finally:
        reader.close()
    try:
        state.records.need_all_mini_batches(step, count)
    except StateDamaged as damage:
        yield Damage(damage.where, f"{damage.what}; it is {where}: {means}")


def _check_range(
    where: str,
    files: StepFiles,
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
            str(files.segments / segment.name),
            f"rows of mini-batch {batch.number:,} cannot be read, or fail their checksum; it belongs to "
            f"{where}: if the job has not ended, that mini-batch runs again; otherwise the output stays as it "
            "is",
        )


def damaged_recipes(path: Path, batches: Sequence[FoundMiniBatch]) -> Iterator[StepDamaged]:
    """What is wrong with the recipes of mini-batches, one by one. Sound recipes yield nothing."""
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
    """Whether the rows of a mini-batch can be read and match their checksum."""
    try:
        return reader.is_sound(row)
    except (OSError, RowsUnreadable, OverflowError, ValueError):
        return False


CHECKS: tuple[Callable[[DamagedState], Iterator[Damage]], ...] = (
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
