"""Reads committed ranges out of segments in large strides, and verifies each range's crc32.

A page of ranges is cut into strides of bounded size. Within a stride, the ranges are sorted by segment, neighbours (and
near neighbours) merge into one extent, and each extent is one read. Ranges are committed nearly in output order, so a
stride of small ranges takes a handful of system calls. That matters because every call releases the GIL, and beside a
busy event loop waits a switch interval to get it back.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32 as crc32_of

from windrow_master.output.errors import RowsUnreadable
from windrow_master.store.records import CommittedRange

STRIDE_BYTES = 8 << 20
"""Rows read, verified and written at once."""
LARGE_BYTES = 2 << 20
"""A range above this is read in pieces, and copied by the kernel."""
GAP_BYTES = 4 << 10
"""Two ranges this close in a segment are read at once, with the bytes between (at most 20 MB for a page of 5,000)."""
BLOCK_BYTES = 4 << 10
"""The unit that is given up if a disk cannot read it."""
LOST_ERRORS = (errno.ENOENT, errno.EIO, errno.EBADMSG, errno.ENODATA, errno.EUCLEAN, errno.ENXIO)
"""Errors that mean that the data is gone. All others (no descriptors, no memory, no permission) may pass."""
CRC_PIECE = 5000
"""zlib.crc32 releases the GIL for more than 5 KiB; smaller pieces keep it, some 2 µs each."""
CRC_PIECES_BYTES = 64 << 10


PLACE = itemgetter(5, 6)
"""segment_id and offset of a CommittedRange."""


class Stride(NamedTuple):
    """Some consecutive ranges: either many small ones, or one large one."""

    ranges: Sequence[CommittedRange]
    large: bool


def strides(page: Sequence[CommittedRange]) -> Iterator[Stride]:
    """Cut a page into strides, in order."""
    first, size = 0, 0
    for number, row in enumerate(page):
        if row.length > LARGE_BYTES:
            if first < number:
                yield Stride(page[first:number], False)
            yield Stride(page[number : number + 1], True)
            first, size = number + 1, 0
            continue
        if size + row.length > STRIDE_BYTES:
            yield Stride(page[first:number], False)
            first, size = number, 0
        size += row.length
    if first < len(page):
        yield Stride(page[first:], False)


class SegmentReader:
    """Opens the segments of one step as they are needed. One thread."""

    OPEN_MAX = 64

    def __init__(self, folder: Path, name_of: Callable[[int], str | None]) -> None:
        """`name_of(segment_id)`: its file name in `folder`, None when it is not known."""
        self._folder = folder
        self._name_of = name_of
        self._descriptors: dict[int, int] = {}

    def descriptor(self, segment_id: int) -> int:
        """A segment, open for reading. Raises OSError."""
        descriptor = self._descriptors.get(segment_id)
        if descriptor is None:
            name = self._name_of(segment_id)
            if name is None:
                raise FileNotFoundError(errno.ENOENT, f"segment {segment_id} is not known")
            if len(self._descriptors) >= self.OPEN_MAX:
                os.close(self._descriptors.pop(next(iter(self._descriptors))))
            descriptor = os.open(self._folder / name, os.O_RDONLY | os.O_CLOEXEC)
            self._descriptors[segment_id] = descriptor
        return descriptor

    def read(self, ranges: Sequence[CommittedRange], lost: list[CommittedRange]) -> bytes:
        """The rows of small ranges, verified, in order; bad ones go to `lost` and are left out.

        Raises RowsUnreadable.
        """
        order = sorted(ranges, key=PLACE)
        views: dict[int, memoryview] = {}
        first, count = 0, len(order)
        while first < count:
            segment_id, begin = PLACE(order[first])
            end = begin
            for stop in range(first, count + 1):
                if stop == count:
                    break
                _, _, _, _, _, segment, offset, length, _ = order[stop]
                if segment != segment_id or offset > end + GAP_BYTES:
                    break
                if offset + length > end:
                    end = offset + length
            extent = self._extent(segment_id, begin, end - begin)
            for mini_batch, _, _, _, _, _, offset, length, crc32 in order[first:stop]:
                view = extent[offset - begin : offset - begin + length]
                if (crc32_of(view) if length <= CRC_PIECE else _crc32(view, length)) == crc32 and len(view) == length:
                    views[mini_batch] = view
            first = stop
        if len(views) != count:
            lost.extend(row for row in ranges if row.mini_batch not in views)
            return b"".join([views[row[0]] for row in ranges if row[0] in views])
        return b"".join([views[row[0]] for row in ranges])

    def pieces(self, row: CommittedRange) -> Iterator[bytes]:
        """A large range, piece by piece; ends early if the segment does, or is damaged. Raises RowsUnreadable."""
        at, stop = row.offset, row.offset + row.length
        while at < stop:
            try:
                piece = os.pread(self.descriptor(row.segment_id), min(STRIDE_BYTES, stop - at), at)
            except OSError as error:
                self._refuse_passing(error, row.segment_id)
                return
            if not piece:
                return
            yield piece
            at += len(piece)

    def is_sound(self, row: CommittedRange) -> bool:
        """Whether a range is there and matches its checksum. Raises RowsUnreadable."""
        crc32, length = 0, 0
        for piece in self.pieces(row):
            crc32 = crc32_of(piece, crc32)
            length += len(piece)
        return (length, crc32) == (row.length, row.crc32)

    def file(self, row: CommittedRange) -> SegmentFile:
        """A range as a file. Raises OSError."""
        return SegmentFile(self.descriptor(row.segment_id), row.offset, row.length)

    def close(self) -> None:
        """Close what is open."""
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()

    def _extent(self, segment_id: int, begin: int, length: int) -> memoryview:
        """What can be read of an extent: less, or nothing, if the segment is cut or damaged."""
        parts: list[bytes] = []
        got = 0
        try:
            descriptor = self.descriptor(segment_id)
            while got < length:
                part = os.pread(descriptor, length - got, begin + got)
                if not part:
                    break
                parts.append(part)
                got += len(part)
        except OSError as error:
            self._refuse_passing(error, segment_id)
            if length > BLOCK_BYTES and error.errno != errno.ENOENT:
                return self._extent_by_blocks(segment_id, begin, length)
        return memoryview(parts[0] if len(parts) == 1 else b"".join(parts))

    def _extent_by_blocks(self, segment_id: int, begin: int, length: int) -> memoryview:
        """An extent of which a part cannot be read: zeros stand for that part, so its checksums fail."""
        content = bytearray(length)
        for at in range(0, length, BLOCK_BYTES):
            try:
                part = os.pread(self.descriptor(segment_id), min(BLOCK_BYTES, length - at), begin + at)
            except OSError as error:
                self._refuse_passing(error, segment_id)
                continue
            content[at : at + len(part)] = part
        return memoryview(content)

    def _refuse_passing(self, error: OSError, segment_id: int) -> None:
        """Raise RowsUnreadable for an error that does not prove that rows are lost."""
        if error.errno not in LOST_ERRORS:
            raise RowsUnreadable(
                f"The committed rows in {self._folder / (self._name_of(segment_id) or '?')} cannot be read: "
                f"{error.strerror or error}. Fix that: reading is then retried automatically, and nothing needs "
                "to run again."
            ) from error


class SegmentFile(io.RawIOBase):
    """A part of an open segment as a file of its own, to be read once, from its start to its end."""

    def __init__(self, descriptor: int, offset: int, length: int) -> None:
        self._descriptor = descriptor
        self._at = offset
        self._end = offset + length
        self._checksum = 0

    def readable(self) -> bool:
        """True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Raises OSError."""
        content = os.pread(self._descriptor, min(len(buffer), self._end - self._at), self._at)
        buffer[: len(content)] = content
        self._at += len(content)
        self._checksum = crc32_of(content, self._checksum)
        return len(content)

    def checksum(self) -> int:
        """The crc32 of everything, including what has not been read yet, which is read now. Raises OSError."""
        while content := os.pread(self._descriptor, min(STRIDE_BYTES, self._end - self._at), self._at):
            self._at += len(content)
            self._checksum = crc32_of(content, self._checksum)
        return self._checksum


def _crc32(view: memoryview, length: int) -> int:
    if length > CRC_PIECES_BYTES:
        return crc32_of(view)
    crc32 = 0
    for at in range(0, length, CRC_PIECE):
        crc32 = crc32_of(view[at : at + CRC_PIECE], crc32)
    return crc32
