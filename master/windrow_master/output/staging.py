"""Large rows take a way of their own: into a file beside the segments, which the commit that names it adopts.

The state machine of a staged file in the step's segments folder. Its name is `staged-<lease id>-<n>.rows.partial`
until it is finished, then `staged-<lease id>-<n>-<crc32>.rows`:

    created -> written -> finished (synced, with its name) -> adopted (`segments`, by the commit of its completion)
    created or written -> removed: the upload broke off
    finished -> removed: no commit named it before the master ended (`remove_orphans`)

Invariants:
1. A file is never opened for writing twice, and one master uses a number once: a repeated upload gets a file of its
   own, so a committed one is never changed. A later master begins anew, when `remove_orphans` has left only files of
   leases that have ended.
2. Only finished files have names that `staged_length` accepts for adoption: the others end in `.partial`.
3. A completion can only name rows that have its checksum: that is in the name.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import stat
import zlib
from collections.abc import Collection
from pathlib import Path

from windrow_master.core.ids import LeaseId
from windrow_master.crash_points import reach
from windrow_master.output.file_operations import FileOperations

PARTIAL = ".partial"
READ_BYTES = 1 << 20
STAGED_NAME = re.compile(r"staged-(\d+)-(\d+)-([0-9a-f]{8})\.rows")
_PARTIAL_NAME = re.compile(r"staged-(\d+)-(\d+)\.rows\.partial")
_NUMBERS = itertools.count()
SEGMENT_NAME = re.compile(r"(\d+)-(\d+)\.rows")


class RowsFileUnreadable(Exception):
    """The file to take rows from is missing, or is not a plain file; the text says which."""


class StagedSegment:
    """One upload. Blocks on the disk; used by one thread at a time."""

    def __init__(self, folder: Path, lease_id: LeaseId, *, files: FileOperations | None = None) -> None:
        """Create the file. Raises OSError."""
        self._files = files or FileOperations()
        self._folder = folder
        while True:
            self._begins = f"staged-{lease_id}-{next(_NUMBERS)}"
            self._partial = folder / f"{self._begins}.rows{PARTIAL}"
            with contextlib.suppress(FileExistsError):
                self._descriptor = self._files.create(self._partial)
                break
        self.length = 0
        """Bytes so far."""
        self.crc32 = 0
        """crc32 of the bytes so far."""

    @property
    def name(self) -> str:
        """The name that it has once it is finished."""
        return f"{self._begins}-{self.crc32:08x}.rows"

    def write(self, chunk: bytes) -> None:
        """Append. Raises OSError; then the upload must be closed."""
        self._files.write(self._descriptor, [chunk])
        self.length += len(chunk)
        self.crc32 = zlib.crc32(chunk, self.crc32)
        reach("staging.written")

    def take(self, rows: Path) -> None:
        """Append all of a plain file, inside the kernel if it can. Raises RowsFileUnreadable, OSError; then the upload
        must be closed."""
        try:
            source = os.open(rows, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise RowsFileUnreadable(f"{rows}: {error.strerror}") from error
        try:
            found = os.fstat(source)
            if not stat.S_ISREG(found.st_mode):
                raise RowsFileUnreadable(f"{rows}: not a plain file")
            length = found.st_size
            self._files.copy(source, 0, length, self._descriptor)
            with self._partial.open("rb") as copied:
                copied.seek(self.length)
                while chunk := copied.read(READ_BYTES):
                    self.crc32 = zlib.crc32(chunk, self.crc32)
        finally:
            os.close(source)
        self.length += length
        reach("staging.written")

    def finish(self) -> None:
        """The upload is complete: sync it, and its name, to the disk. Raises OSError; then `close` removes it."""
        self._files.sync(self._descriptor)
        self._files.rename(self._partial, self._folder / self.name)
        self._files.sync_folder(self._folder)
        self._close_descriptor()
        reach("staging.synced")

    def close(self) -> None:
        """Close the file, and remove it unless it was finished. May be called again."""
        if self._descriptor >= 0:
            self._close_descriptor()
            with contextlib.suppress(OSError):
                self._files.unlink(self._partial)
                self._files.unlink(self._folder / self.name)

    def _close_descriptor(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        with contextlib.suppress(OSError):
            self._files.close(descriptor)


def staged_fits(folder: Path, name: str, lease_id: LeaseId, length: int, crc32: int) -> bool:
    """Whether a completion may name this staged segment: finished, of this lease, of this length and checksum.

    Call it before the completion reaches the core: names come from peers.
    """
    match = STAGED_NAME.fullmatch(name)
    return (
        match is not None
        and int(match[1]) == lease_id
        and int(match[3], 16) == crc32
        and staged_length(folder / name) == length
    )


def staged_length(path: Path) -> int | None:
    """The length of a finished staged file; None if there is none, or its name is not one of a staged file."""
    if STAGED_NAME.fullmatch(path.name) is None:
        return None
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def remove_orphans(folder: Path, incarnation: int, committed: Collection[str]) -> list[str]:
    """Remove files of earlier incarnations that no commit names from a segments folder; return their names.

    Call it before this incarnation takes rows. `committed`: the names of the step's segments in the store.
    """
    removed: list[str] = []
    try:
        names = sorted(path.name for path in folder.iterdir())
    except FileNotFoundError:
        return removed
    for name in names:
        segment = SEGMENT_NAME.fullmatch(name)
        earlier = segment is not None and int(segment[1]) < incarnation
        staged = STAGED_NAME.fullmatch(name) or _PARTIAL_NAME.fullmatch(name)
        if (earlier or staged) and name not in committed:
            with contextlib.suppress(OSError):
                (folder / name).unlink(missing_ok=True)
                removed.append(name)
    return removed
