"""Opening the files of a table while it is planned."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias

from windrow_master.planning.errors import PlanningError, shown
from windrow_master.planning.tables.window import Window

_COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"PK\x03\x04": "zip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstandard",
    b"\x04\x22\x4d\x18": "lz4",
}


Run: TypeAlias = tuple[int, int]
"""A part of a file, as (begin, end): bytes, or row groups."""


class TableFile(NamedTuple):
    """A file as it was when it was listed: absolute name, size in bytes, modification time; what its head or footer
    told; the parts of it that select_partitions selects, None: all of it. `constants`: values of columns that it lacks,
    packed for the worker."""

    name: bytes
    size: int
    mtime_ns: int
    layout: int = 0
    rows: tuple[int, ...] = ()
    runs: tuple[Run, ...] | None = None
    constants: str = ""

    def where(self) -> dict[str, object]:
        """What every recipe says about its file."""
        told = {"file": os.fsdecode(self.name), "size": self.size, "mtime_ns": self.mtime_ns}
        return {**told, "constants": self.constants} if self.constants else told


def stat_file(name: bytes) -> TableFile:
    """The file as it is now. Raises PlanningError."""
    try:
        now = os.stat(name)
    except OSError as error:
        raise unreadable(name, error) from error
    return TableFile(name, now.st_size, now.st_mtime_ns)


@contextmanager
def opened(file: TableFile) -> Iterator[Window]:
    """The open file, if it is still what it was when it was listed. Raises PlanningError."""
    try:
        fd = os.open(file.name, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise unreadable(file.name, error) from error
    try:
        now = os.fstat(fd)
        if (now.st_size, now.st_mtime_ns) != (file.size, file.mtime_ns):
            raise PlanningError(
                f"{shown(file.name)} was changed while the input was being divided. "
                "Submit the job again when it is at rest."
            )
        try:
            yield Window(fd, file.size)
        except OSError as error:
            raise unreadable(file.name, error) from error
    finally:
        os.close(fd)


def refuse_compressed(file: TableFile, head: bytes) -> None:
    """Raise PlanningError if the first bytes are those of a compressed file."""
    for magic, kind in _COMPRESSED.items():
        if head.startswith(magic):
            raise PlanningError(f"{shown(file.name)} is compressed ({kind}), which cannot be cut. Decompress it first.")


def unreadable(name: bytes, error: OSError) -> PlanningError:
    """What to say about a file that cannot be read."""
    return PlanningError(
        f"The file {shown(name)} of the input cannot be read: {error.strerror}. Check its permissions and its disk."
    )
