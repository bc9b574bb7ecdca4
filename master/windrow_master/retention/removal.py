"""The way a job goes. Kill the master at any moment: the job is whole, or the next master removes the rest.

1. A note of the removal is written, durably: `removed/<job key>/note`.
2. The job's folder, and that of the outputs which the master keeps for it, are moved beside the note.
3. The store deletes the job, in one transaction. From here on, nobody finds it.
4. Its rows and files go in pieces, so that other work comes in between. Then the note goes.

A master that finds a note at its start does 2 and 3 before it serves, and 4 beside its work. A job that was opened
again before 3 is put back.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from windrow.common.durable import sync_folder
from windrow.common.journal import say
from windrow.common.notes import NoteDamaged, read_note, write_note
from windrow.common.removal import removal as removing

from windrow_master.core.ids import JobKey, StepId
from windrow_master.core.states import ENDED_JOBS
from windrow_master.crash_points import reach
from windrow_master.files.backup_lock import deleting
from windrow_master.files.durable import make_durable
from windrow_master.files.state_files import RemovedFiles, StateFiles
from windrow_master.store.errors import JobNotEnded, StorePostponed
from windrow_master.store.protocol import Store

FILES_AT_ONCE = 500
ROWS_AT_ONCE = 2_000


class Removal(NamedTuple):
    """A job that is being removed."""

    job_key: JobKey
    job_id: str
    steps: tuple[StepId, ...]


class Removals:
    """All removals of one state folder. Methods block; call those that change something in one thread at a time."""

    def __init__(
        self, store: Store, files: StateFiles, remove_sorted_rows: Callable[[str, Sequence[int]], None]
    ) -> None:
        """`remove_sorted_rows`: removes those that a served master keeps in a datastore."""
        self._store = store
        self._reader = store.reader()
        self._files = files
        self._remove_sorted_rows = remove_sorted_rows

    def begin(self, removal: Removal) -> None:
        """Delete a job, durably: steps 1 to 3. Raises JobNotEnded, StorePostponed, BackupRuns (nothing has changed),
        OSError, StateError.
        """
        with deleting(self._files):
            self._begin(removal)

    def _begin(self, removal: Removal) -> None:
        place = self._files.removed_job(removal.job_key)
        make_durable(place.folder, self._files.folder)
        write_note(place.note, {"job_id": removal.job_id, "steps": list(removal.steps)}, durable=True)
        reach("removal.noted")
        try:
            self._move(removal, place)
            reach("removal.moved")
            self._store.delete_job(removal.job_key)
        except (JobNotEnded, StorePostponed, OSError):
            self._put_back(removal, place)
            raise
        reach("removal.deleted")

    def resume(self) -> None:
        """Bring all removals that an earlier master began to where nobody finds the job: before this master serves.
        Raises OSError, StateError.
        """
        for removal, place in self._noted():
            row = self._reader.job_by_key(removal.job_key)
            if row is None:
                continue  # a folder of its name may be another job's by now
            if row.state in ENDED_JOBS:
                self._move(removal, place)
                self._store.delete_job(removal.job_key)
            else:
                self._put_back(removal, place)

    def pieces(self) -> Iterator[None]:
        """Remove what is left of deleted jobs: a piece of work for each `next`. Raises OSError, StateError."""
        for removal, place in self._noted():
            if self._reader.job_by_key(removal.job_key) is not None:
                continue
            while self._store.delete_rows(removal.job_key, removal.steps, ROWS_AT_ONCE):
                yield
            self._remove_sorted_rows(removal.job_id, removal.steps)
            for folder in (place.job, place.outputs):
                yield from remove_in_pieces(folder)
            reach("removal.cleared")
            place.note.unlink(missing_ok=True)
            place.folder.rmdir()
            say(logging.INFO, "a deleted job is gone from the disk", job=removal.job_id)
            yield

    def _noted(self) -> Iterator[tuple[Removal, RemovedFiles]]:
        for key, place in self._files.removed_found():
            try:
                note = read_note(place.note)
            except NoteDamaged as error:
                say(logging.WARNING, "what is left of a deleted job stays", reason=str(error))
                continue
            if note is None:
                # Killed before the note was there, or after all else was gone.
                with contextlib.suppress(OSError):
                    for left in place.folder.iterdir():
                        left.unlink()
                    place.folder.rmdir()
                continue
            yield Removal(JobKey(key), note["job_id"], tuple(map(StepId, note["steps"]))), place

    def _move(self, removal: Removal, place: RemovedFiles) -> None:
        for source, target in self._moves(removal, place):
            _rename(source, target)

    def _put_back(self, removal: Removal, place: RemovedFiles) -> None:
        for source, target in self._moves(removal, place):
            _rename(target, source)
        place.note.unlink()
        place.folder.rmdir()

    def _moves(self, removal: Removal, place: RemovedFiles) -> tuple[tuple[Path, Path], ...]:
        files = self._files
        return (files.job(removal.job_id), place.job), (files.outputs / removal.job_id, place.outputs)


def remove_in_pieces(folder: Path, most: int = FILES_AT_ONCE) -> Iterator[None]:
    """Remove a folder and all below it, after at most `most` files a `next`. Links are removed, not followed. Raises
    OSError.
    """
    if folder.is_symlink() or not folder.is_dir():
        folder.unlink(missing_ok=True)
        return
    yield from removing(folder, most)
    yield


def _rename(source: Path, target: Path) -> None:
    if os.path.lexists(source):
        source.rename(target)
        sync_folder(target.parent)
        sync_folder(source.parent)
