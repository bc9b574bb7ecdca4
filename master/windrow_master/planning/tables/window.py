"""Reads parts of a big file here and there, never the whole file."""

from __future__ import annotations

from collections.abc import Callable

BLOCK = 16 * 1024
BLOCK_MAX = 1024 * 1024


class Window:
    """An open file, read in blocks where they are asked for. Blocks grow when a search continues from one to the
    next."""

    def __init__(self, pread: Callable[[int, int], bytes], size: int) -> None:
        """`pread`: reads up to a number of bytes from an offset."""
        self._pread = pread
        self.size = size
        self._base = 0
        self._block = b""
        self._read_bytes = BLOCK

    def read(self, start: int, length: int) -> bytes:
        """Up to `length` bytes from `start`; less only at the end of the file."""
        parts, end = [], min(start + length, self.size)
        while start < end:
            part = self._pread(end - start, start)
            if not part:
                break
            parts.append(part)
            start += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def block(self, position: int) -> tuple[bytes, int]:
        """A block that holds `position`, and where it begins; it is read if `position` is not in the last one."""
        if not self._base <= position < self._base + len(self._block):
            following = 0 <= position - self._base - len(self._block) <= len(self._block)
            self._read_bytes = min(self._read_bytes * 2, BLOCK_MAX) if following else BLOCK
            self._block = self.read(position, self._read_bytes)
            self._base = position
        return self._block, self._base

    def find(self, needle: bytes, start: int, unit: int = 1) -> int:
        """Where `needle` first stands at or after `start`, at a multiple of `unit`; -1 if nowhere.

        `needle` is `unit` bytes long, `start` a multiple of `unit`.
        """
        while start < self.size:
            block, base = self.block(start)
            if not block:
                return -1
            at = block.find(needle, start - base)
            while at >= 0 and (base + at) % unit:
                at = block.find(needle, at + 1)
            if at >= 0:
                return base + at
            start = base + len(block)
        return -1

    def skip(self, needle: bytes, start: int) -> int:
        """The first position at or after `start` without `needle`, in steps of its length."""
        while start < self.size:
            block, base = self.block(start)
            at = start - base
            while block.startswith(needle, at):
                at += len(needle)
            if at + len(needle) <= len(block) or not block:
                return base + at
            rest = self.read(base + at, len(needle))
            if rest != needle:
                return base + at
            start = base + at + len(needle)
        return start
