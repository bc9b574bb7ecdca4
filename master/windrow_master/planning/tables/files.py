"""Opens the files of a table during planning."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple, TypeAlias

from windrow.storage.objects import read_part
from windrow.storage.urls import parse_url

from windrow_master.planning.errors import PlanningError, shown
from windrow_master.planning.listing.opening import open_within
from windrow_master.planning.listing.remote import storage_errors
from windrow_master.planning.memory import reading
from windrow_master.planning.tables.window import Window
from windrow_master.roots import Roots

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
    """A file as it was when it was listed: absolute name, size in bytes, modification time (in a store: `etag`, the
    mark of its content); what its head or footer says; the parts of it that select_partitions selects, None for all
    of it. `constants`: values of columns that it lacks, packed for the worker. `spans`: of a Parquet file in a store
    the bytes of each row group, and last those of the footer."""

    name: bytes
    size: int
    mtime_ns: int
    layout: int = 0
    rows: tuple[int, ...] = ()
    runs: tuple[Run, ...] | None = None
    constants: str = ""
    etag: str = ""
    spans: tuple[tuple[int, int], ...] = ()

    @property
    def is_remote(self) -> bool:
        """Whether the file is in a store."""
        return not self.name.startswith(b"/")

    def where(self) -> dict[str, object]:
        """The part of a recipe that names the file."""
        found = {"file": os.fsdecode(self.name), "size": self.size}
        told = found | ({"etag": self.etag} if self.is_remote else {"mtime_ns": self.mtime_ns})
        return {**told, "constants": self.constants} if self.constants else told

    def pread(self, length: int, start: int) -> bytes:
        """Bytes of a file in a store. Raises StorageError."""
        return read_part(parse_url(os.fsdecode(self.name)), self.size, self.etag, start, min(self.size, start + length))


_within: list[Roots] = []
"""The folders outside of which this process opens no file of a table; any file if there is none."""


def keep_within(roots: Roots | None) -> None:
    """Open no local file of a table outside these folders from now on. A planner serves one request."""
    _within[:] = [] if roots is None else [roots]


def open_local(file: TableFile) -> int:
    """Open a file that is not in a store; return its descriptor. Raises OSError, PlanningError."""
    return open_within(file.name, _within[0] if _within else None)


def stat_file(name: bytes) -> TableFile:
    """The file as it is now. Raises PlanningError."""
    try:
        now = os.stat(name)
    except OSError as error:
        raise unreadable(name, error) from error
    return TableFile(name, now.st_size, now.st_mtime_ns)


@contextmanager
def opened(file: TableFile) -> Iterator[Window]:
    """The open file, if it is unchanged since it was listed. Raises PlanningError."""
    if file.is_remote:
        with storage_errors(), reading(file.name):
            yield Window(file.pread, file.size)
        return
    try:
        fd = open_local(file)
    except OSError as error:
        raise unreadable(file.name, error) from error
    try:
        now = os.fstat(fd)
        if (now.st_size, now.st_mtime_ns) != (file.size, file.mtime_ns):
            raise PlanningError(
                f"{shown(file.name)} was changed while the input was being divided. "
                "Submit the job again when the file no longer changes."
            )
        try:
            with reading(file.name):
                yield Window(partial(os.pread, fd), file.size)
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
    """The error for a file that cannot be read."""
    return PlanningError(
        f"The file {shown(name)} of the input cannot be read: {error.strerror}. Check its permissions and its disk."
    )
