"""A state folder as it is looked at from outside: its jobs and steps, from whatever of the database can be read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from windrow_master.core.ids import MINI_BATCH_SHIFT
from windrow_master.core.states import JobState, StepState
from windrow_master.salvage.database import SavedDatabase
from windrow_master.step_paths import StepPaths, step_folder
from windrow_master.store.checks import CHECK, MINI_BATCHES, WHOLE_ROWS, checked
from windrow_master.store.errors import StateDamaged
from windrow_master.store.rows import CommittedRange

_SEGMENT_NAME = re.compile(r"[\w-]+\.rows")


class FoundJob(NamedTuple):
    """A job. `document`: b"" where it cannot be read."""

    job_key: int
    job_id: str
    state: int
    generation: int
    message: str
    document: bytes

    @property
    def state_name(self) -> str:
        """In small letters; its number, where there is no such state."""
        return _name(JobState, self.state)


class FoundStep(NamedTuple):
    """A step of a job."""

    step_id: int
    job_key: int
    ordinal: int
    name: str
    state: int
    message: str
    checkpoint: bytes | None
    counters: bytes | None
    paths: bytes
    reader: bytes | None
    header: bytes | None

    @property
    def state_name(self) -> str:
        """In small letters; its number, where there is no such state."""
        return _name(StepState, self.state)

    @property
    def planned(self) -> dict[str, Any]:
        """Its checkpoint; {} where there is none, or it cannot be read."""
        try:
            found = json.loads(self.checkpoint or b"{}")
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def append_row(self) -> str | None:
        """Where its rows go, as far as that can be read."""
        try:
            return StepPaths.from_json(self.paths).append_row
        except (ValueError, AttributeError):
            return None


class FoundSegment(NamedTuple):
    """A file of rows. Those of each mini-batch have a checksum of their own, so that its name may be a guess."""

    name: str
    length: int | None
    """Bytes synced; None: its own row is damaged, so nobody knows."""


class FoundMiniBatch(NamedTuple):
    """A mini-batch. `range` has no length where it has no rows."""

    number: int
    """Counted from 0 in its step."""
    state: int
    item_count: int
    items_counted: int
    ok_count: int
    recipe_offset: int
    recipe_length: int
    recipe_crc32: int
    sound: bool
    """Whether the row has its check value. Of one that has not, nothing is to be used."""
    range: CommittedRange | None


class StateFolder:
    """All that is asked of a state folder, in one place."""

    def __init__(self, folder: Path, database: SavedDatabase) -> None:
        self.folder = folder
        self.database = database

    def rows_of(self, table: str) -> Iterator[tuple[Sequence[Any], StateDamaged | None]]:
        """The rows of one of WHOLE_ROWS that can be read, and what is wrong with them; None: they are sound."""
        for row in self.database.rows(table, "rowid", (*WHOLE_ROWS[table].split(", "), CHECK)):
            try:
                yield checked(table, row), None
            except StateDamaged as damage:
                yield row[:-1], damage

    def damaged_rows(self) -> Iterator[tuple[str, Sequence[Any], StateDamaged]]:
        """Those of all WHOLE_ROWS that are not what was written, with their table."""
        for table in WHOLE_ROWS:
            for row, damage in self.rows_of(table):
                if damage is not None:
                    yield table, row, damage

    def jobs(self) -> list[FoundJob]:
        """By key, those whose row is sound. Those without a document have lost it."""
        documents = {row[0]: row[1] for row in self._sound("job_document")}
        return [
            FoundJob(key, name, state, generation, message, bytes(documents.get(key, b"")))
            for key, name, _, state, generation, _, _, _, _, _, _, message, *_ in self._sound("job")
        ]

    def steps(self) -> list[FoundStep]:
        """By id, those whose row is sound."""
        documents = {row[0]: row[1:] for row in self._sound("step_document")}
        return [
            FoundStep(*row[:8], *documents.get(row[0], (b"{}", None, None)))  # its first columns, in their order
            for row in self._sound("step")
        ]

    def lost_steps(self) -> list[FoundStep]:
        """Steps whose row cannot be used, as their folders and the rest of the database still tell of them.

        One is named as in its job's document where it is the only one that is lost, else by its number.
        """
        jobs = {job.job_id: job for job in self.jobs()}
        documents = {row[0]: row[1:] for row in self._sound("step_document")}
        steps = self.steps()
        known = {step.step_id for step in steps}
        found: dict[int, list[int]] = {}
        for path in sorted(self.folder.glob("jobs/*/steps/*")):
            job = jobs.get(path.parts[-3])
            if job is not None and path.name.isdecimal() and int(path.name) not in known:
                found.setdefault(job.job_key, []).append(int(path.name))
        lost = []
        for job in jobs.values():
            taken = {step.ordinal for step in steps if step.job_key == job.job_key}
            free = [(at, name) for at, name in enumerate(_step_names(job.document)) if at not in taken]
            numbers = found.get(job.job_key, [])
            for number in numbers:
                at, name = free[0] if len(free) == len(numbers) == 1 else (-1, f"step-{number}")
                document = documents.get(number, (b"{}", None, None))
                lost.append(FoundStep(number, job.job_key, at, name, -1, "", None, None, *document))
        return lost

    def segments_of(self, step_id: int) -> dict[int, FoundSegment]:
        """Its segments, by id."""
        found = {}
        for (number, step, name, _, _, length), damage in self.rows_of("segment"):
            if damage is None and step == step_id:
                found[number] = FoundSegment(name, length)
            elif damage is not None:
                # What rows a file holds is proven by their own checksums: it is looked for.
                usual = f"{number >> 32}-{number & 0xFFFFFFFF}.rows"
                found.setdefault(number, FoundSegment(name if _SEGMENT_NAME.fullmatch(str(name)) else usual, None))
        return found

    def _sound(self, table: str) -> Iterator[Sequence[Any]]:
        return (row for row, damage in self.rows_of(table) if damage is None)

    def mini_batches_of(self, step_id: int) -> Iterator[FoundMiniBatch]:
        """In output order."""
        first, last = step_id << MINI_BATCH_SHIFT, (step_id + 1 << MINI_BATCH_SHIFT) - 1
        for row in self.database.rows("mini_batch", "key", _MINI_BATCH, first, last):
            key, state, count, counted, ok, offset, length, crc, lease, rows, segment, at, size, crc32, sound = row
            index = key - first
            place = None
            if segment is not None:
                place = CommittedRange(index, lease, counted, ok, rows, segment, at or 0, size or 0, crc32 or 0)
            yield FoundMiniBatch(index, state, count, counted, ok, offset, length, crc, bool(sound), place)

    def step_folder(self, job: FoundJob, step: FoundStep) -> Path:
        """Where the files of a step are."""
        return step_folder(self.folder, job.job_id, step.step_id)


_MINI_BATCH = (
    *("key", "state", "item_count", "items_counted", "ok_count", "recipe_offset", "recipe_length"),
    *("recipe_crc32", "lease_id", "row_count", "segment_id", "segment_offset", "rows_length", "rows_crc32"),
    MINI_BATCHES.holds(),
)


def _step_names(document: bytes) -> list[str]:
    try:
        return [str(step["name"]) for step in json.loads(document or b"{}").get("steps", [])]
    except (ValueError, LookupError, TypeError, AttributeError):
        return []


def _name(kind: type[JobState] | type[StepState], number: int) -> str:
    if number < 0:
        return "unknown"
    try:
        return kind(number).name.lower()
    except ValueError:
        return str(number)
