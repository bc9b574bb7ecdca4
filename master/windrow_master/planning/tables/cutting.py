"""Cutting a text file between records, looking only at the bytes around each cut.

The rule: with slices of S bytes, a record whose first byte is at offset o belongs to slice 0 if o = 0, else to slice
ceil(o / S) - 1. A slice in which no record begins is no mini-batch. So a slice ends where the first record that begins
behind its last byte begins, and the next slice is that record's: a record longer than S is passed over once, and the
slices inside it never come up.
Source: reference/mltable.md, rule 2 and section 5.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Protocol

from windrow_worker.tables.encodings import Encoding

from windrow_master.planning.tables.window import BLOCK_MAX, Window


class Cutter(Protocol):
    """Where records begin and end in one file."""

    def first_record(self, start: int) -> int | None:
        """The first record at or after `start`, a line start; None if only blank lines follow."""

    def record_end(self, begin: int) -> int:
        """Where the record that begins at `begin` ends, its line end included."""

    def next_record(self, begin: int, cut: int) -> int | None:
        """The first record that begins behind `cut`, where one begins at `begin`, not behind it."""


def slices(cutter: Cutter, size: int, begin: int | None, slice_bytes: int) -> Iterator[tuple[int, int]]:
    """The slices (begin, end) of a file of `size` bytes, from the record at `begin` on."""
    while begin is not None:
        number = -(-begin // slice_bytes) - 1 if begin else 0
        following = cutter.next_record(begin, (number + 1) * slice_bytes)
        yield begin, size if following is None else following
        begin = following


def slices_of_lines(window: Window, begin: int | None, rows: int) -> Iterator[tuple[int, int, int]]:
    """Slices (begin, end, records) of so many lines each, the last one of what is left; lines of length zero are no
    records, and belong to the slice before them."""
    if begin is None:
        return
    start, have, at = begin, 0, begin
    while at < window.size:
        block = window.read(at, BLOCK_MAX)
        offset = 0
        while offset < len(block):
            end = block.find(b"\n", offset)
            if end < 0 and at + len(block) < window.size:
                break
            length = (len(block) if end < 0 else end) - offset
            if length:
                if have == rows:
                    yield start, at + offset, have
                    start, have = at + offset, 0
                have += 1
            offset = len(block) if end < 0 else end + 1
        if not offset:
            # A line longer than the block.
            offset = window.find(b"\n", at) + 1 - at
            if offset <= 0:
                offset = window.size - at
            if have == rows:
                yield start, at, have
                start, have = at, 0
            have += 1
        at += offset
    if have:
        yield start, window.size, have


class LineCutter:
    """Every line is a record; lines of length zero are none."""

    def __init__(self, window: Window, encoding: Encoding, skip_returns: bool = False) -> None:
        """`skip_returns`: lines of a carriage return alone are no records either."""
        self._window = window
        self._blank = "\r".encode(encoding.name) + encoding.newline if skip_returns else b""
        self._newline = encoding.newline
        self._unit = encoding.unit

    def first_record(self, start: int) -> int | None:
        """See Cutter."""
        begin = self._window.skip(self._newline, start)
        while self._blank and self._window.read(begin, len(self._blank)) == self._blank:
            begin = self._window.skip(self._newline, begin + len(self._blank))
        return begin if begin < self._window.size else None

    def record_end(self, begin: int) -> int:
        """See Cutter."""
        at = self._window.find(self._newline, begin, self._unit)
        return self._window.size if at < 0 else at + self._unit

    def next_record(self, begin: int, cut: int) -> int | None:
        """See Cutter."""
        # A line starts behind the cut if the line end before it stands at the cut, or behind it.
        at = self._window.find(self._newline, max(begin, cut - cut % self._unit), self._unit)
        return None if at < 0 else self.first_record(at + self._unit)


class WholeFile(LineCutter):
    """A file that is never cut: line ends inside quotes cannot be told apart in its encoding, or by its delimiter."""

    def next_record(self, begin: int, cut: int) -> int | None:
        """See Cutter."""
        return None


class QuotedCutter:
    """Records of delimited text with line ends inside quotes: one pass over the file, block by block; parts without a
    quote at full speed."""

    def __init__(self, window: Window, delimiter: bytes) -> None:
        """`delimiter`: one byte."""
        self._window = window
        other = b"[^" + re.escape(delimiter) + rb"\n]*+"
        field = rb'(?:"(?:[^"]++|"")*+(?:"' + other + rb')?|(?!")' + other + b")"
        record = field + b"(?:" + re.escape(delimiter) + field + b")*+"
        self._record = re.compile(record + rb"\n?")
        self._whole_records = re.compile(b"(?:" + record + rb"\n)*+")

    def first_record(self, start: int) -> int | None:
        """See Cutter."""
        size = self._window.size
        while start < size:
            block, base = self._window.block(start)
            if block.startswith(b"\n", start - base):
                start += 1
            elif self._window.read(start, 2) == b"\r\n":
                start += 2
            else:
                return start
        return None

    def record_end(self, begin: int) -> int:
        """See Cutter."""
        length = BLOCK_MAX // 16
        while True:
            data = self._window.read(begin, length)
            found = self._record.match(data)
            end = found.end() if found else 0
            # What reaches the end of the data may go on behind it.
            if end < len(data) or begin + len(data) >= self._window.size:
                return begin + end
            length *= 2

    def next_record(self, begin: int, cut: int) -> int | None:
        """See Cutter."""
        while begin <= cut:
            block, base = self._window.block(begin)
            at = begin - base
            quote = block.find(b'"', at)
            limit = len(block) if quote < 0 else quote
            # Up to the next quote, lines are records.
            behind = block.find(b"\n", max(at, cut - base), limit) if cut - base < limit else -1
            if behind >= 0:
                return self.first_record(base + behind + 1)
            line_end = block.rfind(b"\n", at, limit)
            if line_end >= 0:
                at = line_end + 1
                begin = base + at
                if quote < 0:
                    continue
            # All records that end in this block before the cut; then the one on the cut, or on the block's end.
            found = self._whole_records.match(block, at, min(len(block), max(at, cut - base)))
            if found and found.end() > at:
                begin = base + found.end()
                continue
            begin = self.record_end(begin)
            if begin >= self._window.size:
                return None
        return self.first_record(begin)
