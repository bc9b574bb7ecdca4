"""The records of a saved database, each with whether it is what was written."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from windrow_master.core.ids import MINI_BATCH_SHIFT
from windrow_master.files.errors import StateDamaged
from windrow_master.store.found import FoundJob, FoundMiniBatch, FoundSegment, FoundStep
from windrow_master.store.records import CommittedRange
from windrow_master.store.sqlite.check_values import (
    ATTEMPTS,
    CHECK,
    ITEM_OUTCOMES,
    JOB,
    MINI_BATCHES,
    WHOLE_ROWS,
    checked,
    damaged_mini_batch,
    damaged_row,
    item_crc,
)
from windrow_master.store.sqlite.loading import (
    ATTEMPT_COLUMNS,
    attempt_of,
    check_number,
    check_steps,
    damaged_attempt,
    number_in,
)
from windrow_master.store.sqlite.saved import Gap, SavedDatabase

_SEGMENT_NAME = re.compile(r"[\w-]+\.rows")
_MINI_BATCH = (
    *("key", "state", "item_count", "items_counted", "ok_count", "recipe_offset", "recipe_length"),
    *("recipe_crc32", "lease_id", "row_count", "segment_id", "segment_offset", "rows_length", "rows_crc32"),
    MINI_BATCHES.holds(),
)
_NO_DOCUMENT = (b"{}", None, None)


class SavedRecords:
    """Reads the records of a damaged database. `gaps` notes what cannot be read at all."""

    def __init__(self, database: SavedDatabase) -> None:
        self._database = database

    @property
    def notes(self) -> Sequence[str]:
        """What of the database had to be replaced before it could be read."""
        return self._database.notes

    @property
    def gaps(self) -> Sequence[Gap]:
        """What could not be read so far."""
        return self._database.gaps

    def close(self) -> None:
        """Close the database; nothing can be read afterwards."""
        self._database.close()

    def damaged_rows(self) -> Iterator[tuple[str, Sequence[Any], StateDamaged]]:
        """Rows of the small tables that are not what was written, with their table."""
        for table in WHOLE_ROWS:
            for row, damage in self._rows_of(table):
                if damage is not None:
                    yield table, row, damage

    def damaged_attempts(self) -> Iterator[tuple[StateDamaged, int]]:
        """Attempts that are not what was written, with their step."""
        columns = (*ATTEMPT_COLUMNS.split(", "), "message_crc32", "texts_crc32", ATTEMPTS.holds())
        for *row, held in self._database.rows(ATTEMPTS.table, "lease_id", columns):
            try:
                if not held:
                    raise damaged_attempt(row)
                attempt_of(row)
            except StateDamaged as damage:
                yield damage, row[1]

    def damaged_item_outcomes(self) -> Iterator[tuple[StateDamaged, int]]:
        """Failed items that are not what was written, with their step."""
        columns = ("id", "step_id", "message", "place", "message_crc32", ITEM_OUTCOMES.holds())
        for number, step_id, message, place, crc32, held in self._database.rows(ITEM_OUTCOMES.table, "id", columns):
            if not held or item_crc(message, place) != crc32:
                yield damaged_row(ITEM_OUTCOMES.table, f"id {number}"), step_id

    def job_keys(self) -> set[int]:
        """The keys of all rows of jobs, sound or not."""
        return {row[0] for row, _ in self._rows_of("job")}

    def documents(self) -> set[int]:
        """The keys of jobs that have a document, sound or not."""
        return {row[0] for row, _ in self._rows_of("job_document")}

    def steps_in(self, job_key: int) -> int:
        """The number of step rows of a job, sound or not."""
        return sum(row[1] == job_key for row, _ in self._rows_of("step"))

    def jobs(self) -> list[FoundJob]:
        """The jobs whose row is sound, by key. One without a document has lost it."""
        documents = {row[0]: row[1] for row in self._sound("job_document")}
        jobs = (dict(zip(JOB.split(", "), row, strict=True)) for row in self._sound("job"))
        return [
            FoundJob(
                job_key=job["job_key"],
                job_id=job["job_id"],
                state=job["state"],
                generation=job["generation"],
                message=job["message"],
                document=bytes(documents.get(job["job_key"], b"")),
            )
            for job in jobs
        ]

    def steps(self) -> list[FoundStep]:
        """The steps whose row is sound, by id."""
        documents = self._step_documents()
        # Its first columns, in their order.
        return [FoundStep._make((*row[:8], *documents.get(row[0], _NO_DOCUMENT))) for row in self._sound("step")]

    def step_document(self, step_id: int) -> tuple[bytes, bytes | None, bytes | None]:
        """The paths, reader and header of a step; empty if it has lost them."""
        return self._step_documents().get(step_id, _NO_DOCUMENT)

    def _step_documents(self) -> dict[int, tuple[bytes, bytes | None, bytes | None]]:
        return {step_id: (paths, reader, header) for step_id, paths, reader, header in self._sound("step_document")}

    def segments_of(self, step_id: int) -> dict[int, FoundSegment]:
        """The segments of a step, by id."""
        found = {}
        for (number, step, name, _, _, length), damage in self._rows_of("segment"):
            if damage is None and step == step_id:
                found[number] = FoundSegment(name, length)
            elif damage is not None:
                # The rows prove by their own checksums which file holds them, so the usual name is tried.
                usual = f"{number >> 32}-{number & 0xFFFFFFFF}.rows"
                found.setdefault(number, FoundSegment(name if _SEGMENT_NAME.fullmatch(str(name)) else usual, None))
        return found

    def mini_batches_of(self, step_id: int) -> Iterator[FoundMiniBatch]:
        """The mini-batches of a step, in output order."""
        first, last = step_id << MINI_BATCH_SHIFT, (step_id + 1 << MINI_BATCH_SHIFT) - 1
        for row in self._database.rows("mini_batch", "key", _MINI_BATCH, first, last):
            key, state, count, counted, ok, offset, length, crc, lease, rows, segment, at, size, crc32, sound = row
            index = key - first
            place = None
            if segment is not None:
                place = CommittedRange(index, lease, counted, ok, rows, segment, at or 0, size or 0, crc32 or 0)
            yield FoundMiniBatch(index, state, count, counted, ok, offset, length, crc, bool(sound), place)

    def damaged_mini_batch(self, step_id: int, number: int) -> StateDamaged:
        """The error for a mini-batch that is not sound."""
        return damaged_mini_batch((step_id << MINI_BATCH_SHIFT) + number)

    def need_all_steps(self, job: FoundJob) -> None:
        """Raise StateDamaged unless a job has as many steps as its document names."""
        check_steps(job.job_id, job.document, self.steps_in(job.job_key))

    def need_all_mini_batches(self, step: FoundStep, count: int) -> None:
        """Raise StateDamaged unless a step has as many mini-batches as were planned."""
        check_number(step.step_id, number_in(step.counters, "planned"), count)
        check_number(step.step_id, step.planned.get("mini_batches"), count)

    def _sound(self, table: str) -> Iterator[Sequence[Any]]:
        return (row for row, damage in self._rows_of(table) if damage is None)

    def _rows_of(self, table: str) -> Iterator[tuple[Sequence[Any], StateDamaged | None]]:
        """The rows of one of WHOLE_ROWS that can be read, and what is wrong with them (None if they are sound)."""
        for row in self._database.rows(table, "rowid", (*WHOLE_ROWS[table].split(", "), CHECK)):
            try:
                yield checked(table, row), None
            except StateDamaged as damage:
                yield row[:-1], damage
