"""To what paths led when an input was listed: each folder that files were found in, and each link to a file.

A folder that is swapped for another, and a link that is switched, change no file, only what its name leads to. So who
takes results over later (`earlier`) asks whether a name still leads to the same.

Kept in the step's file `places`: for each, the crc32 of what follows in eight hexadecimal digits, file system and inode
in decimal, each with a blank behind it, the path, and NUL. It is not synced: what is missing there, fails its checksum,
or stands there twice and differs, counts as changed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

from windrow_master.files.state_files import StepFiles
from windrow_master.planning.journal.journal import AppendFile


class Marks:
    """Tell what lies at paths now."""

    def __init__(self) -> None:
        self._file_systems: dict[int, int] = {}

    def of(self, path: bytes) -> bytes:
        """Of what a path leads to. Raises OSError."""
        status = os.stat(path)
        known = self._file_systems.get(status.st_dev)
        if known is None:
            # Numbers of devices go from mount to mount, those of most file systems stay.
            known = self._file_systems[status.st_dev] = os.statvfs(path).f_fsid or status.st_dev
        return b"%d %d" % (known, status.st_ino)


class PlacesNoted:
    """Those of the step that is planned."""

    def __init__(self, files: StepFiles, *, anew: bool) -> None:
        """`anew`: nothing that a planner before has noted counts. Raises PlanningError."""
        self._file = AppendFile(os.fsencode(files.places), 0 if anew else None)
        self._marks = Marks()
        if self._file.length:
            # A planner that was killed may have left part of a record.
            self._file.append(b"\0")

    def note(self, path: bytes) -> None:
        """Note what a folder, or a link to a file, leads to. Raises PlanningError."""
        with contextlib.suppress(OSError):
            told = b"%b %b" % (self._marks.of(path), path.rstrip(b"/") or b"/")
            self._file.append(b"%08x %b\0" % (crc32(told), told))

    def close(self) -> None:
        """Nothing more is noted."""
        self._file.close()


def read_places(file: str) -> Iterator[bytes | None]:
    """What each record says, without its checksum; None: it fails that. Raises OSError."""
    records = Path(file).read_bytes().split(b"\0")
    for record in records[:-1]:  # behind the last NUL stands at most a part of one
        if record:
            checksum, _, told = record.partition(b" ")
            yield told if checksum == b"%08x" % crc32(told) else None


class PlacesKnown:
    """Those of a step that was planned before."""

    def __init__(self, file: str) -> None:
        """A file that cannot be read tells nothing."""
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
        """Whether a folder or a link, without a slash at its end, leads to what it led to then."""
        found = self._same.get(path)
        if found is None:
            try:
                found = self._then.get(path) == self._marks.of(path)
            except OSError:
                found = False
            self._same[path] = found
        return found
