"""Checksums of a file that only grows, kept block by block while it is written.

A reader verifies the blocks that hold the part it reads, so bytes that changed on disk are never used. One number
stands for all blocks, so that another process can verify the whole file.
"""

from __future__ import annotations

from array import array
from zlib import crc32

BLOCK_BYTES = 4096


class BlockChecksums:
    """The crc32 of each block added so far; the last block may be incomplete."""

    def __init__(self) -> None:
        self._whole = array("I")
        self._begun = 0
        self._filled = 0
        """Bytes in the incomplete block."""
        self._folded = 0
        """crc32 of the checksums of the first `_folded_blocks` blocks."""
        self._folded_blocks = 0

    def add(self, data: bytes | memoryview) -> None:
        """Add bytes that were appended to the file."""
        length, room = len(data), BLOCK_BYTES - self._filled
        if length < room:
            self._begun = crc32(data, self._begun)
            self._filled += length
            return
        view, at = memoryview(data), room
        whole = self._whole
        whole.append(crc32(view[:at], self._begun))
        while length - at >= BLOCK_BYTES:
            whole.append(crc32(view[at : at + BLOCK_BYTES]))
            at += BLOCK_BYTES
        self._filled = length - at
        self._begun = crc32(view[at:])

    @property
    def checksum(self) -> int:
        """One number for everything: the crc32 of the blocks' crc32s (little endian), in order."""
        self._folded = crc32(self._whole[self._folded_blocks :].tobytes(), self._folded)
        self._folded_blocks = len(self._whole)
        return crc32(self._begun.to_bytes(4, "little"), self._folded) if self._filled else self._folded

    def first_bad(self, block: int, data: bytes) -> int | None:
        """The number of the first block in `data` that differs from what was added; None if all agree.

        `block`: the number of the first block in `data`, which ends at the end of a block or of the file.
        """
        view, whole = memoryview(data), self._whole
        for number, at in enumerate(range(0, len(data), BLOCK_BYTES), block):
            known = whole[number] if number < len(whole) else self._begun
            if crc32(view[at : at + BLOCK_BYTES]) != known:
                return number
        return None
