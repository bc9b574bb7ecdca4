"""Files of records that are written once, in order. The checksum of each record continues that of the one before.

So a record that was changed, moved, removed or inserted is noticed, and nothing after it is used. A file that is cut
between two records is shorter, but not wrong.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import BinaryIO
from zlib import crc32

HEAD = struct.Struct("<II")
"""The length of a record, and a crc32 over this length and the record, which continues that of the record before."""


class RecordWriter:
    """Writes the records of one file."""

    def __init__(self, out: BinaryIO) -> None:
        """`out`: an empty file, which the caller closes."""
        self._out = out
        self._checksum = 0

    def write(self, record: bytes) -> None:
        """Append a record. Raises OSError."""
        self._checksum = _checksum(record, self._checksum)
        self._out.write(HEAD.pack(len(record), self._checksum) + record)


def read_records(
    file: BinaryIO, bytes_max: int, damaged: Callable[[str], object] = lambda what: None
) -> Iterator[bytes]:
    """The records of a file up to the first damaged one.

    `bytes_max`: no record is longer. `damaged`: called with a description if the file does not end after a sound
    record. Raises OSError.
    """
    checksum, number = 0, 0
    while head := file.read(HEAD.size):
        if len(head) < HEAD.size:
            damaged(f"it is cut off in record {number:,}")
            return
        length, expected = HEAD.unpack(head)
        record = file.read(length) if length <= bytes_max else b""
        checksum = _checksum(record, checksum)
        if len(record) < length or checksum != expected:
            damaged(f"record {number:,} fails its checksum, or is cut off")
            return
        yield record
        number += 1


def _checksum(record: bytes, before: int) -> int:
    # The length is included: otherwise a hole of zeros would pass as records without content.
    return crc32(record, crc32(len(record).to_bytes(4, "little"), before))
