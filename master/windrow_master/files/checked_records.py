"""Files of records that are written once, in order: each record has a checksum that goes on from the one before.

So a record that was changed, moved, left out or put in is noticed, and nothing behind it is believed. A file that is
cut between two records says less, and nothing wrong.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import BinaryIO
from zlib import crc32

HEAD = struct.Struct("<II")
"""Length of a record, and the crc32 of this length and the record, which goes on from that of the record before."""


class RecordWriter:
    """Writes the records of one file."""

    def __init__(self, out: BinaryIO) -> None:
        """`out`: empty, and closed by who opened it."""
        self._out = out
        self._checksum = 0

    def write(self, record: bytes) -> None:
        """Append one. Raises OSError."""
        self._checksum = _checksum(record, self._checksum)
        self._out.write(HEAD.pack(len(record), self._checksum) + record)


def read_records(
    file: BinaryIO, bytes_max: int, damaged: Callable[[str], object] = lambda what: None
) -> Iterator[bytes]:
    """The records of a file up to the first that is damaged. `bytes_max`: no record is longer. `damaged`: called where
    the file does not end behind a record that is sound, with how that shows. Raises OSError.
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
    # With its length: else a hole of zeros would be records without content.
    return crc32(record, crc32(len(record).to_bytes(4, "little"), before))
