"""The digests of a place's files as they were when read last, each with the marks of its content, in walking order.

A file whose marks have not changed is not read again. Marks are noted only for a file that had not changed for a while
when it was read: a file that changes twice within a tick of the file system's clock keeps its marks.

A cache that is torn, damaged or gone, or cannot be written, costs only time: files that it does not contain are read.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, NamedTuple

from windrow_master.files.checked_records import RecordWriter, read_records

RECORD = struct.Struct("<QqqQQ32s")
"""size, mtime_ns, ctime_ns, inode, device, sha256. The name follows."""
AT_REST_NS = 2_000_000_000
KEPT_S = 90 * 86400
"""A cache that was not used for this long is removed."""
RECORD_BYTES_MAX = RECORD.size + (1 << 16)


class Marks(NamedTuple):
    """The marks by which a changed file is recognized.

    Not the `Marks` of `planning.plan_files`, which identify the target of a path.
    """

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    device: int

    @classmethod
    def of(cls, status: os.stat_result) -> Marks:
        """Take the marks from the file's `stat`."""
        return cls(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev)

    @property
    def at_rest(self) -> bool:
        """Whether the last change is old enough for another one to change the marks."""
        return max(self.mtime_ns, self.ctime_ns) < time.time_ns() - AT_REST_NS


_PARTIAL = re.compile(r"\..+\.(\d+)")
"""The name of a cache that is being written: its own, and the id of the process that writes it."""

NO_MARKS = Marks(0, 0, 0, 0, 0)


class DigestCache:
    """The cache of one place: the old one is read while the new one is written, both in walking order."""

    def __init__(self, path: Path) -> None:
        """`path`: where the cache is kept."""
        self._path = path
        self._partial = path.with_name(f".{path.name}.{os.getpid()}")
        self._new: BinaryIO | None = None
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._new = self._partial.open("wb", buffering=1 << 20)
            self._records = RecordWriter(self._new)
        self._old = _records(path)
        self._next: tuple[bytes, Marks, bytes] | None = next(self._old, None)

    def __enter__(self) -> DigestCache:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if self._new is not None:
                self._new.close()
                if kind is None:
                    self._partial.replace(self._path)
                    return
        except OSError:
            pass
        self._forget()

    def find(self, name: bytes, marks: Marks) -> bytes | None:
        """The digest of a file, if it is known. Names have to ascend from call to call."""
        while self._next is not None and self._next[0] != name:
            if _order(self._next[0]) > _order(name):
                return None
            self._next = next(self._old, None)
        if self._next is None or self._next[1] != marks:
            return None
        return self._next[2]

    def add(self, name: bytes, marks: Marks, digest: bytes) -> None:
        """Note a file. Names have to ascend from call to call."""
        if self._new is None:
            return
        try:
            self._records.write(RECORD.pack(*marks, digest) + name)
        except OSError:
            self._forget()

    def _forget(self) -> None:
        file, self._new = self._new, None
        with contextlib.suppress(OSError):
            self._partial.unlink(missing_ok=True)
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()


def _order(name: bytes) -> list[bytes]:
    return name.split(b"/")


def _records(path: Path) -> Iterator[tuple[bytes, Marks, bytes]]:
    try:
        file = path.open("rb", buffering=1 << 20)
    except OSError:
        return
    with file:
        for record in read_records(file, RECORD_BYTES_MAX):
            *marks, digest = RECORD.unpack_from(record)
            yield record[RECORD.size :], Marks(*marks), digest


def remove_unused(folder: Path) -> None:
    """Remove the caches of places that nobody has asked for in a long time, and the leftovers of killed processes."""
    now = time.time()
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            # Others may remove theirs.
            with contextlib.suppress(OSError):
                partial = _PARTIAL.fullmatch(entry.name)  # not `.nfs…`: what NFS keeps of a file that is open
                is_left = partial is not None and not _is_alive(int(partial[1]))
                if is_left or entry.stat().st_mtime < now - KEPT_S:
                    os.unlink(entry.path)  # as scandir names it


def _is_alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True
