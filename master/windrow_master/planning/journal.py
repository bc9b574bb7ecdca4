"""The append-only files of a step: `recipes`, and `listing` for tables.

Invariants:
1. A file never shrinks below the length that a sent checkpoint names, and its bytes up to there never change.
2. `sync` returns only when everything appended is on disk, the files' names in the folder included.
3. One planner at a time writes: the files are locked, so that a planner that is about to die cannot disturb its
successor.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from windrow_master.folders import FULL_ERRORS, sync_folder
from windrow_master.planning.checkpoint import Checkpoint
from windrow_master.planning.errors import SYSTEM_ERROR, PlanningError

RETRY_FULL_S = 1.0


class JournalLost(Exception):
    """A sync failed for lack of room: what was appended since the last one may be gone, although it can still be read.

    The planner has to end: the next one writes everything behind the last checkpoint anew.
    """


class AppendFile:
    """A file that only grows. `length` counts what has been appended, synced or not."""

    def __init__(self, path: bytes, length: int | None) -> None:
        """Open the file, wait for an earlier planner to leave it, cut it to `length` (None: leave it as it is). Waits
        while the disk is full.

        Raises PlanningError if it is shorter, or cannot be opened.
        """
        self._path = path
        self._fd = _when_there_is_room(path, partial(os.open, path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        there = os.fstat(self._fd).st_size
        if length is None:
            length = there
        if there < length:
            os.close(self._fd)
            raise PlanningError(
                f"{os.fsdecode(path)} holds {there} bytes, but the checkpoint of planning says {length}: the state "
                "folder has been damaged or restored from an older copy. Cancel the job and submit it again.",
                SYSTEM_ERROR,
            )
        os.ftruncate(self._fd, length)
        self.length = length
        self._synced = length if length else -1

    def append(self, data: bytes) -> int:
        """Append; return the offset at which `data` begins. Waits while the disk is full."""
        start = self.length
        rest = memoryview(data)
        while rest:
            written = _when_there_is_room(self._path, partial(os.pwrite, self._fd, rest, self.length))
            self.length += written
            rest = rest[written:]
        return start

    def read(self, start: int, end: int) -> bytes:
        """What was appended from `start` to `end`."""
        parts = []
        while start < end and (part := os.pread(self._fd, end - start, start)):
            parts.append(part)
            start += len(part)
        return b"".join(parts)

    def sync(self) -> None:
        """Put everything on disk. A file whose sync failed is never synced again: the system tells an error once, and
        may have dropped what it could not write. Raises JournalLost, PlanningError."""
        if self._synced != self.length:
            try:
                os.fdatasync(self._fd)
            except OSError as error:
                if error.errno in FULL_ERRORS:
                    raise JournalLost(f"{os.fsdecode(self._path)} cannot be synced: {error.strerror}") from error
                raise _unwritable(self._path, error) from error
            self._synced = self.length

    def close(self) -> None:
        """Let the next planner have it."""
        os.close(self._fd)


class Journal:
    """Both files of a step, cut to a checkpoint."""

    def __init__(self, folder: bytes, start: Checkpoint) -> None:
        self._folder = folder
        self._named = start.mini_batches > 0
        self.recipes = AppendFile(os.path.join(folder, b"recipes"), start.recipes_bytes)
        self.listing = AppendFile(os.path.join(folder, b"listing"), start.listing_bytes)

    def sync(self) -> None:
        """Put everything on disk, the listing before the recipes that name its files."""
        self.listing.sync()
        self.recipes.sync()
        if not self._named:
            sync_folder(Path(os.fsdecode(self._folder)))
            self._named = True

    def close(self) -> None:
        """Let the next planner have both."""
        self.recipes.close()
        self.listing.close()


def _when_there_is_room(path: bytes, write: Callable[[], int]) -> int:
    """Do it; while the disk is full, say so on stderr once and try again: when space comes back, planning goes on."""
    told = False
    while True:
        try:
            return write()
        except OSError as error:
            if error.errno not in FULL_ERRORS:
                raise _unwritable(path, error) from error
            if not told:
                print(
                    f"{os.fsdecode(path)}: the disk is full; planning waits until there is room",
                    file=sys.stderr,
                    flush=True,
                )
                told = True
            time.sleep(RETRY_FULL_S)


def _unwritable(path: bytes, error: OSError) -> PlanningError:
    return PlanningError(
        f"{os.fsdecode(path)} cannot be written: {error.strerror}. Check the disk of the state folder.", SYSTEM_ERROR
    )
