"""Everything durable in a state folder against what it must be.

A check is a function of a `StateFolder` that yields what it finds. Whoever gives a kind of file, or a table, check
values of its own adds a check to CHECKS: it is then part of `windrow state check` and `windrow doctor --deep`.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from windrow.notes import NoteDamaged, read_note
from windrow.spec.effective import EffectiveJob
from windrow.spec.effective_json import DocumentError
from windrow_worker.loaded import InputChanged
from windrow_worker.tables.sorted_sums import SortedSums

from windrow_master import upload_lists
from windrow_master.artifacts import DIGEST, sha256_of
from windrow_master.checked_records import read_records
from windrow_master.core.ids import MINI_BATCH_SHIFT
from windrow_master.core.state import ENDED_JOBS, ENDED_STEPS
from windrow_master.core.states import JobState, MiniBatchState, StepState
from windrow_master.output.errors import RowsUnreadable
from windrow_master.output.extents import SegmentReader
from windrow_master.planning.journal import known_sums
from windrow_master.planning.places import read_places
from windrow_master.recipes import RecipePlace, Recipes
from windrow_master.reuse import listing
from windrow_master.salvage.folder import FoundJob, FoundMiniBatch, FoundSegment, FoundStep, StateFolder
from windrow_master.step_damage import StepDamaged
from windrow_master.store.checks import ATTEMPTS, ITEM_OUTCOMES, damaged, text_crc
from windrow_master.store.connections import APPLICATION_ID, migrations
from windrow_master.store.errors import DatabaseDamaged, StateDamaged
from windrow_master.store.integrity import check as check_database
from windrow_master.store.integrity import is_damage, refuse_damaged_files, refuse_wrong_schema
from windrow_master.store.loading import check_number, check_steps, damaged_mini_batch, planned_of
from windrow_master.store.lock import LOCK_FILE, incarnation_in
from windrow_master.store.reading import ATTEMPT_COLUMNS, attempt_of
from windrow_master.store.rows import CommittedRange
from windrow_master.store.sqlite import refuse_older

_ENDED_JOBS = frozenset(map(int, ENDED_JOBS))
_ENDED_STEPS = frozenset(map(int, ENDED_STEPS))


class Damage(NamedTuple):
    """What a check finds. `where`: the file, or the table and row; `what`: how the damage shows."""

    where: str
    what: str


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
    tell = _Meanings(state)
    for table, row, damage in state.damaged_rows():
        yield Damage(damage.where, f"{damage.what}; {tell.of_row(table, row)}")


def check_attempts(state: StateFolder) -> Iterator[Damage]:
    """Attempts, and items that failed, against their check values and those of their texts."""
    tell = _Meanings(state)
    columns = (*ATTEMPT_COLUMNS.split(", "), "message_crc32", "texts_crc32", ATTEMPTS.holds())
    for *row, held in state.database.rows(ATTEMPTS.table, "lease_id", columns):
        try:
            if not held:
                raise damaged(ATTEMPTS.table, f"lease_id {row[0]}")
            attempt_of(row)
        except StateDamaged as damage:
            yield Damage(damage.where, f"{damage.what}; an attempt {tell.of_step(row[1])}")
    outcomes = ("id", "step_id", "message", "message_crc32", ITEM_OUTCOMES.holds())
    for number, step_id, message, crc32, held in state.database.rows(ITEM_OUTCOMES.table, "id", outcomes):
        if not held or text_crc(message) != crc32:
            found = damaged(ITEM_OUTCOMES.table, f"id {number}")
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
            yield Damage(damage.where, f"{damage.what}; {_MEANS_JOB[job.state in _ENDED_JOBS]}")
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
    for job, step in _steps(state):
        yield from _check_step(state, job, step)


def _check_step(state: StateFolder, job: FoundJob, step: FoundStep) -> Iterator[Damage]:
    folder = state.step_folder(job, step)
    where = _named(job, step)
    means = _MEANS_STEP[step.state in _ENDED_STEPS]
    segments = state.segments_of(step.step_id)
    reader = SegmentReader(folder / "segments", {number: one.name for number, one in segments.items()}.get)
    count = 0
    # Once a step has ended, its rows are in its output; its segments may be gone.
    with_rows = step.state not in _ENDED_STEPS or job.state not in _ENDED_JOBS or (folder / "segments").is_dir()
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
        check_number(step.step_id, planned_of(step.counters), count)
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


def check_planning(state: StateFolder) -> Iterator[Damage]:
    """What planning has written: recipes and listing against the checkpoint, places, and sorted rows."""
    for job, step in _steps(state):
        folder, named = state.step_folder(job, step), _named(job, step)
        means = _MEANS_STEP[step.state in _ENDED_STEPS]
        for name in ("recipes", "listing"):
            length, checksum = step.planned.get(f"{name}_bytes"), step.planned.get(f"{name}_checksum")
            if length and checksum is not None:
                try:
                    with (folder / name).open("rb") as file:
                        known_sums(file.fileno(), os.fsencode(folder / name), length, checksum)
                except StepDamaged as damage:
                    yield Damage(damage.where, f"{damage.what}; it is of {named}: {means}")
                except OSError as error:
                    yield Damage(str(folder / name), f"{_unread(error)}; it is of {named}: {means}")
        places = folder / "places"
        try:
            bad = sum(told is None for told in read_places(str(places)))
        except FileNotFoundError:
            bad = 0
        except OSError as error:
            yield Damage(str(places), _unread(error))
            bad = 0
        if bad:
            what = "1 record fails its" if bad == 1 else f"{bad:,} records fail their"
            meaning = "for who takes over its results, these places count as changed: their files run again"
            yield Damage(str(places), f"{what} checksum; it is of {named}: {meaning}")
        if step.state not in _ENDED_STEPS:
            for found in _damaged_sorted_rows(step):
                yield Damage(found.where, f"{found.what}; it is of {named}: its mini-batches there fail; {_AGAIN}")


def _damaged_sorted_rows(step: FoundStep) -> Iterator[Damage]:
    try:
        reader = json.loads(step.reader or b"{}")
    except ValueError:
        return
    for each in reader.get("inputs", (reader,)):
        if "sums_crc32" not in each:
            continue
        name = each["file"]
        try:
            sums = SortedSums(name, each["sums_crc32"])
            with open(name, "rb") as file:
                for part in range(len(sums)):
                    try:
                        sums.verify(part, lambda begin, length: os.pread(file.fileno(), length, begin))
                    except InputChanged:
                        where = f"batch {part - 1:,}" if 0 < part < len(sums) - 1 else "what stands around the batches"
                        yield Damage(name, f"{where} fails its checksum")
        except InputChanged:
            yield Damage(f"{name}.sums", "it fails its checksum")
        except OSError as error:
            yield Damage(name, _unread(error))


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


def check_artifacts(state: StateFolder) -> Iterator[Damage]:
    """Archives are named by their digest."""
    for path in _entries(state.folder / "artifacts"):
        if DIGEST.fullmatch(path.name):
            try:
                found = sha256_of(path)
            except OSError as error:
                yield Damage(str(path), _unread(error))
                continue
            if found != path.name:
                meaning = "steps that need it fail, and the next submission of the job uploads it anew"
                yield Damage(str(path), f"its content has the sha256 {found}; {meaning}")


def check_notes(state: StateFolder) -> Iterator[Damage]:
    """Notes against their checksums."""
    for pattern, meaning in _NOTES.items():
        for path in sorted(state.folder.glob(pattern)):
            try:
                read_note(path)
            except NoteDamaged as damage:
                yield Damage(damage.where, f"{damage.what}; {meaning}")
            except OSError as error:
                yield Damage(str(path), f"{_unread(error)}; {meaning}")


def check_lists(state: StateFolder) -> Iterator[Damage]:
    """Lists of uploads, and of digests of files, against the checksums of their records."""
    for folder, bytes_max, meaning in (
        ("uploads", upload_lists.RECORD_BYTES_MAX, "which files of that data have not changed is not known: they run"),
        ("reuse/listings", listing.RECORD_BYTES_MAX, "what it does not tell is read"),
    ):
        for path in _entries(state.folder / folder):
            if path.name.startswith("."):
                continue  # of one that is being written
            told: list[str] = []
            try:
                with path.open("rb") as file:
                    for _ in read_records(file, bytes_max, told.append):
                        pass
            except OSError as error:
                told.append(_unread(error))
            for what in told:
                yield Damage(str(path), f"{what}; {meaning} again")


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

_PAGE_ROWS = 5000
_TOGETHER_BYTES = 1 << 20
_AGAIN = "run the job again with `--since` and the name of this one, which takes over what is done"
_MEANS_STEP = {
    False: f"the step cannot go on; {_AGAIN}",
    True: "its output is not touched, but reports, retries and `--since` that need this are refused",
}
"""By whether it has ended."""
_MEANS_JOB = {
    False: "no master starts with it; salvage saves the rows of its mini-batches",
    True: "it has ended, and its output is not touched; no master shows or retries it",
}
_MEANS = {
    "job": "no master starts with it; salvage takes its name from the folder of its steps, and saves their rows",
    "node": "no master starts with it; jobs and rows can be read",
    "counted": "no master starts with it; jobs and rows can be read",
    "master": "no master starts with it; jobs and rows can be read",
    "segment": "its rows are not put into an output; salvage saves those that have their checksum",
    "output": "the file is not known as Windrow's any more; a step that is to write there fails",
    "asset": "it cannot be used; all others can",
}
"""By table: what damage of a row means."""
_NOTES = {
    "jobs/*/run.json": "the job is not retried; all of it can be read",
    "jobs/*/steps/*/reuse.json": "what the step makes is not reused later",
    "jobs/*/logs/.reports.json": "the job's reports are written again",
    "jobs/*/logs/*/nodes.json": "logs of an agent may go on in the folder of an earlier one of its node",
    "reuse/made/*.json": "steps that could be reused run again",
    "embedded.json": "commands beside a run are refused; the run goes on",
    "datastores.json": "runs are refused: remove that file, and name all datastores again (--datastore NAME=PLACE)",
    "untold": "an equal run begins anew, as if the end of the last one had been told",
    "agent/incarnation.json": "of what an earlier agent left running, only recorded processes are looked for",
}
"""Where they are: what damage means."""


class _Meanings:
    """Says which job and step a row is of, as far as that can be read, and what its damage means."""

    def __init__(self, state: StateFolder) -> None:
        self._jobs = {job.job_key: job for job in state.jobs()}
        self._steps = {step.step_id: step for step in state.steps()}

    def of_row(self, table: str, row: Sequence[Any]) -> str:
        """Of one of WHOLE_ROWS."""
        if table == "job_document":
            job = self._jobs.get(row[0])
            name = f"job {job.job_id!r}" if job is not None else f"job number {row[0]}"
            return f"it is of {name}: {_MEANS_JOB[job is not None and job.state in _ENDED_JOBS]}"
        if table == "step":
            job = self._jobs.get(row[1])
            name = f"of job {job.job_id!r}" if job is not None else f"of job number {row[1]}"
            return f"it is step {row[3]!r} {name}: {_MEANS_JOB[job is not None and job.state in _ENDED_JOBS]}"
        if table == "step_document":
            return f"it is {self.of_step(row[0])}"
        if table == "segment":
            return f"rows {self.of_step(row[1], _MEANS[table])}"
        return f"{row[0]}: {_MEANS[table]}" if table in ("output", "asset") else _MEANS[table]

    def of_step(self, step_id: int, meaning: str | None = None) -> str:
        """Of what belongs to a step."""
        step = self._steps.get(step_id)
        job = None if step is None else self._jobs.get(step.job_key)
        ended = job is not None and job.state in _ENDED_JOBS
        name = f"step {step_id}" if step is None or job is None else _named(job, step)
        return f"of {name}: {meaning or _MEANS_JOB[ended]}"


def _steps(state: StateFolder) -> Iterator[tuple[FoundJob, FoundStep]]:
    """Those whose rows are sound, with their jobs."""
    jobs = {job.job_key: job for job in state.jobs()}
    for step in (*state.steps(), *state.lost_steps()):
        if step.job_key in jobs:
            yield jobs[step.job_key], step


def _named(job: FoundJob, step: FoundStep) -> str:
    return f"step {step.name!r} of job {job.job_id!r}"


def _unread(error: OSError) -> str:
    return "it is gone" if isinstance(error, FileNotFoundError) else f"it cannot be read: {error.strerror}"


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_file())
    except OSError:
        return []


def _is_json(content: bytes) -> bool:
    try:
        json.loads(content or b"{}")
    except ValueError:
        return False
    return True
