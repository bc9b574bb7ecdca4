"""The append-only files of a step: `recipes`, and `listing` for tables.

Invariants:
1. A file never shrinks below the length that a sent checkpoint names, and its bytes up to there never change: the
   checkpoint has their checksum, and a restarted planner verifies it.
2. `sync` returns only when everything appended is on disk, the files' names in the folder included.
3. One planner at a time writes: the files are locked, so that a planner that is about to die cannot disturb its
successor.
4. What is read back is what was appended: each block is verified when it is read (`block_checksums`).
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Callable
from functools import partial

from windrow.common.durable import sync_folder

from windrow_master.files.durable import is_full
from windrow_master.files.state_files import StepFiles
from windrow_master.files.step_damage import StepDamaged, read_part
from windrow_master.planning.errors import SYSTEM_ERROR, PlanningError
from windrow_master.planning.plan_files.block_checksums import BLOCK_BYTES, BlockChecksums
from windrow_master.planning.plan_files.checkpoint import Checkpoint

RETRY_FULL_S = 1.0
_READ_BYTES = 1 << 20


class PlanFilesLost(Exception):
    """A sync failed because the disk is full: what was appended since the last sync may be lost, though it can be read.

    The planner has to end; the next one writes everything after the last checkpoint again.
    """


class AppendFile:
    """A file that only grows. `length` counts what has been appended, synced or not."""

    def __init__(self, path: bytes, length: int | None, checksum: int = 0) -> None:
        """Open the file, wait for an earlier planner to leave it, cut it to `length` (if None, leave it as it is,
        and read nothing back). Waits while the disk is full. `checksum`: of the bytes up to `length`.

        Raises PlanningError if it is shorter, or other bytes are in it, or it cannot be opened.
        """
        self._path = path
        self._fd = _when_there_is_room(path, partial(os.open, path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        there = os.fstat(self._fd).st_size
        length_known = length is not None
        length = there if length is None else length
        self.length = length
        self._sums = BlockChecksums()
        self._synced = length if length else -1
        try:
            if length_known:
                self._sums = known_sums(self._fd, path, length, checksum)
                os.ftruncate(self._fd, length)
        except StepDamaged as error:
            os.close(self._fd)
            raise PlanningError(str(error), SYSTEM_ERROR) from error
        except BaseException:
            os.close(self._fd)
            raise

    def append(self, data: bytes) -> int:
        """Append; return the offset at which `data` begins. Waits while the disk is full."""
        start = self.length
        rest = memoryview(data)
        while rest:
            written = _when_there_is_room(self._path, partial(os.pwrite, self._fd, rest, self.length))
            self.length += written
            rest = rest[written:]
        self._sums.add(data)
        return start

    @property
    def checksum(self) -> int:
        """The checksum of everything appended."""
        return self._sums.checksum

    def read(self, start: int, end: int) -> bytes:
        """The bytes from `start` to `end`. Raises PlanningError if they are no longer what was appended."""
        if end <= start:
            return b""
        block = start // BLOCK_BYTES
        first = block * BLOCK_BYTES
        data = self._pread(first, min(-(-end // BLOCK_BYTES) * BLOCK_BYTES, self.length))
        if first + len(data) < end:
            raise self._damaged(f"it ends at {first + len(data):,}, and {max(end, self.length):,} bytes were written")
        bad = self._sums.first_bad(block, data)
        if bad is not None:
            at = bad * BLOCK_BYTES
            raise self._damaged(f"bytes {at:,} to {at + BLOCK_BYTES:,} fail their checksum")
        return data[start - first : end - first]

    def _pread(self, start: int, end: int) -> bytes:
        try:
            return read_part(self._fd, os.fsdecode(self._path), start, end)
        except StepDamaged as error:
            raise PlanningError(str(error), SYSTEM_ERROR) from error

    def _damaged(self, what: str) -> PlanningError:
        return PlanningError(str(StepDamaged(os.fsdecode(self._path), what)), SYSTEM_ERROR)

    def sync(self) -> None:
        """Put everything on disk. Raises PlanFilesLost, PlanningError.

        A file whose sync failed is never synced again: the system reports an error once, and may have dropped what it
        could not write.
        """
        if self._synced != self.length:
            try:
                os.fdatasync(self._fd)
            except OSError as error:
                if is_full(error):
                    raise PlanFilesLost(f"{os.fsdecode(self._path)} cannot be synced: {error.strerror}") from error
                raise _unwritable(self._path, error) from error
            self._synced = self.length

    def close(self) -> None:
        """Close the file, so that the next planner can open it."""
        os.close(self._fd)


class PlanFiles:
    """Both files of a step, cut to a checkpoint."""

    def __init__(self, files: StepFiles, start: Checkpoint) -> None:
        self._folder = files.folder
        self._named = start.mini_batches > 0
        self.recipes = AppendFile(os.fsencode(files.recipes), start.recipes_bytes, start.recipes_checksum)
        self.listing = AppendFile(os.fsencode(files.listing), start.listing_bytes, start.listing_checksum)

    def sync(self) -> None:
        """Put everything on disk, the listing before the recipes that name its files."""
        self.listing.sync()
        self.recipes.sync()
        if not self._named:
            sync_folder(self._folder)
            self._named = True

    def close(self) -> None:
        """Close both files, so that the next planner can open them."""
        self.recipes.close()
        self.listing.close()


def known_sums(descriptor: int, path: bytes, length: int, checksum: int) -> BlockChecksums:
    """The block checksums of the first `length` bytes of a file that an earlier planner wrote.

    Raises StepDamaged if they are not what it wrote. Raises OSError.
    """
    there = os.fstat(descriptor).st_size
    if there < length:
        raise StepDamaged(os.fsdecode(path), f"it holds {there:,} bytes, and {length:,} were written")
    sums, at = BlockChecksums(), 0
    while at < length:
        part = read_part(descriptor, os.fsdecode(path), at, min(at + _READ_BYTES, length))
        if not part:
            break
        sums.add(part)
        at += len(part)
    if sums.checksum != checksum:
        raise StepDamaged(os.fsdecode(path), f"its first {length:,} bytes fail their checksum")
    return sums


def _when_there_is_room(path: bytes, write: Callable[[], int]) -> int:
    """Call `write`. While the disk is full, say so on stderr once and try again, until there is space."""
    told = False
    while True:
        try:
            written = write()
        except OSError as error:
            if not is_full(error):
                raise _unwritable(path, error) from error
            if not told:
                print(
                    f"{os.fsdecode(path)}: the disk is full; planning waits for free space",
                    file=sys.stderr,
                    flush=True,
                )
                told = True
            time.sleep(RETRY_FULL_S)
        else:
            if told:
                print(
                    f"{os.fsdecode(path)}: the disk has free space again; planning continues",
                    file=sys.stderr,
                    flush=True,
                )
            return written


def _unwritable(path: bytes, error: OSError) -> PlanningError:
    return PlanningError(
        f"{os.fsdecode(path)} cannot be written: {error.strerror}. Check the disk of the state folder.", SYSTEM_ERROR
    )
