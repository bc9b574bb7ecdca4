"""Where paths led when an input was listed: every folder in which files were found, and every link to a file.

Swapping a folder or switching a link changes no file, only where its name leads. So before results are taken over later
(`earlier`), Windrow asks whether a name still leads to the same place.

The step's file `places` has one record for each path: the crc32 of the rest in eight hexadecimal digits, file system
and inode in decimal, each followed by a space, the path, and NUL. The file is not synced: a path that is missing, whose
record fails its checksum, or that has two different records counts as changed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

from windrow_master.files.state_files import StepFiles
from windrow_master.planning.plan_files.plan_files import AppendFile


class Marks:
    """Identifies the current target of a path. Not the `Marks` of `reuse.digest_cache`, which identify contents."""

    def __init__(self) -> None:
        self._file_systems: dict[int, int] = {}

    def of(self, path: bytes) -> bytes:
        """The mark of what a path leads to. Raises OSError."""
        status = os.stat(path)
        known = self._file_systems.get(status.st_dev)
        if known is None:
            # Device numbers change with each mount; the ids of most file systems do not.
            known = self._file_systems[status.st_dev] = os.statvfs(path).f_fsid or status.st_dev
        return b"%d %d" % (known, status.st_ino)


class PlacesNoted:
    """Records places for the step that is being planned."""

    def __init__(self, files: StepFiles, *, anew: bool) -> None:
        """`anew`: discard what an earlier planner recorded. Raises PlanningError."""
        self._file = AppendFile(os.fsencode(files.places), 0 if anew else None)
        self._marks = Marks()
        if self._file.length:
            # A planner that was killed may have left part of a record.
            self._file.append(b"\0")

    def note(self, path: bytes) -> None:
        """Record what a folder, or a link to a file, leads to. Raises PlanningError."""
        with contextlib.suppress(OSError):
            told = b"%b %b" % (self._marks.of(path), path.rstrip(b"/") or b"/")
            self._file.append(b"%08x %b\0" % (crc32(told), told))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_places(file: str) -> Iterator[bytes | None]:
    """Each record without its checksum; None for a record that fails it. Raises OSError."""
    records = Path(file).read_bytes().split(b"\0")
    for record in records[:-1]:  # at most part of a record follows the last NUL
        if record:
            checksum, _, told = record.partition(b" ")
            yield told if checksum == b"%08x" % crc32(told) else None


class PlacesKnown:
    """The recorded places of a step that was planned earlier."""

    def __init__(self, file: str) -> None:
        """A file that cannot be read counts as empty."""
        self._marks = Marks()
        self._then: dict[bytes, bytes] = {}
        self._same: dict[bytes, bool] = {}
        with contextlib.suppress(OSError):
            for told in read_places(file):
                if told is None:
                    continue
                number, inode, path = told.split(b" ", 2)
                mark = b"%b %b" % (number, inode)
                if self._then.setdefault(path, mark) != mark:
                    self._then[path] = b""

    def is_same(self, path: bytes) -> bool:
        """Whether a folder or link (without a trailing slash) leads to the same place as then."""
        found = self._same.get(path)
        if found is None:
            try:
                found = self._then.get(path) == self._marks.of(path)
            except OSError:
                found = False
            self._same[path] = found
        return found
