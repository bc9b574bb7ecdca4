"""Cuts a text file between records, and reads only the bytes around each cut.

The rule: with slices of S bytes, a record whose first byte is at offset o belongs to slice 0 if o = 0, else to slice
ceil(o / S) - 1. A slice in which no record begins is not a mini-batch. So a slice ends at the first record that begins
after its last byte, and the next slice is the one that this record belongs to. A record longer than S is skipped in one
step, together with the slices inside it.
Reference: docs/reference/azure-ml/mltable.md#partitions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from windrow_worker.tables.encodings import Encoding

from windrow_master.planning.tables.window import BLOCK_MAX, Window


class Found(NamedTuple):
    """Where the next record begins (None if nowhere), and how many records precede it, counting the one at which the
    search began (0 if they were not counted).

    Not the `Found` of `windrow.storage`, which is an object of a store.
    """

    begin: int | None
    records: int


class Cutter(Protocol):
    """Finds where records begin and end in a file."""

    def first_record(self, start: int) -> int | None:
        """The first record at or after `start`, a line start; None if only blank lines follow."""

    def record_end(self, begin: int) -> int:
        """The end of the record at `begin`, including its line end."""

    def next_record(self, begin: int, cut: int) -> Found:
        """The first record that begins after `cut`; a record begins at `begin`, which is not after `cut`."""


def slices(cutter: Cutter, begin: int | None, stop: int, slice_bytes: int) -> Iterator[tuple[int, int, int]]:
    """The slices (begin, end, records) from the record at `begin` to `stop`, which is the end of the file or the
    beginning of a record. `records` is 0 if they were not counted.
    """
    while begin is not None and begin < stop:
        number = -(-begin // slice_bytes) - 1 if begin else 0
        # With a cut at `stop - 1`, the next record begins at `stop`.
        following, records = cutter.next_record(begin, min((number + 1) * slice_bytes, stop - 1))
        yield begin, stop if following is None else following, records
        begin = following


def slices_of_lines(window: Window, begin: int | None, rows: int) -> Iterator[tuple[int, int, int]]:
    """Slices (begin, end, records) of `rows` lines each; the last one has the rest.

    Empty lines are not records, and belong to the slice before them.
    """
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
            # The line is longer than the block.
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
    """The `Cutter` of lines: every line is a record, except empty lines."""

    def __init__(self, window: Window, encoding: Encoding, skip_returns: bool = False) -> None:
        """`skip_returns`: lines with only a carriage return are not records either."""
        self._window = window
        self._blank = "\r".encode(encoding.name) + encoding.newline if skip_returns else b""
        self._newline = encoding.newline
        self._unit = encoding.unit

    def first_record(self, start: int) -> int | None:
        begin = self._window.skip(self._newline, start)
        while self._blank and self._window.read(begin, len(self._blank)) == self._blank:
            begin = self._window.skip(self._newline, begin + len(self._blank))
        return begin if begin < self._window.size else None

    def record_end(self, begin: int) -> int:
        at = self._window.find(self._newline, begin, self._unit)
        return self._window.size if at < 0 else at + self._unit

    def next_record(self, begin: int, cut: int) -> Found:
        # A line begins after the cut if the line end before it is at the cut or after it.
        at = self._window.find(self._newline, max(begin, cut - cut % self._unit), self._unit)
        return Found(None if at < 0 else self.first_record(at + self._unit), 0)


class WholeFile(LineCutter):
    """The `Cutter` of a file that is never cut: in its encoding, or with its delimiter, line ends inside quotes cannot
    be recognized.
    """

    def next_record(self, begin: int, cut: int) -> Found:
        return Found(None, 0)


class QuotedCutter:
    """The `Cutter` of delimited text with line ends inside quotes. In one pass over the file, it removes quoted fields
    from whole lines; the remaining line ends are the ends of records.

    A quote opens a field only at its beginning: after a delimiter or a line end. Two quotes in a quoted field mean one.
    A single quote closes it, and everything up to the next delimiter or line end, quotes included, belongs to its text.
    A quote that is never closed takes the rest of the file.
    """

    def __init__(self, window: Window, delimiter: bytes) -> None:
        """`delimiter`: one byte."""
        self._window = window
        # Without possessive or atomic groups, which some releases of CPython (3.11.2 is one) match wrongly. None is
        # needed: after the opening quote, only the test of a single byte can fail, so nothing long is tried twice.
        opening = rb'"(?<=[' + re.escape(delimiter) + rb'\n]")'
        self._quoted = re.compile(opening + rb'[^"]*(?:"(?!")|(?:""[^"]*)*"?)')

    def first_record(self, start: int) -> int | None:
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
        return self._lines(begin, begin)[0]

    def next_record(self, begin: int, cut: int) -> Found:
        end, records = self._lines(begin, cut)
        return Found(self.first_record(end), records)

    def _lines(self, at: int, cut: int) -> tuple[int, int]:
        """The end of the first line after `cut` that ends a record, and the number of records up to there. A record
        begins at `at`.
        """
        window, records, is_open = self._window, 0, False
        while at < window.size and (at <= cut or is_open):
            block, base = window.block(at)
            end = block.rfind(b"\n", at - base, min(len(block), max(at, cut) - base)) + 1
            if end:
                text = block[at - base : end]
            else:
                # The line crosses the cut or the end of the block: find the line end that may end its record.
                quote = window.find(b'"', at) if is_open else at
                line_end = window.find(b"\n", quote) if quote >= 0 else -1
                text = window.read(at, (window.size if line_end < 0 else line_end + 1) - at)
            if not text:
                # The file has become shorter; its reader will report that.
                return window.size, records
            at += len(text)
            found, is_open = self._count(text, is_open)
            records += found
            if at >= window.size:
                # The last record needs no line end.
                records += is_open or not text.endswith(b"\n")
        return at, records

    def _count(self, lines: bytes, is_open: bool) -> tuple[int, bool]:
        """The number of records that end in these lines, and whether a quoted field is open at their end. `is_open`:
        whether one is open at their beginning.
        """
        if not is_open and b'"' not in lines:
            return _full_lines(b"\n" + lines), False
        # The full stop at the end is left if no quoted field is open there.
        left = self._quoted.sub(b'"', (b'\n"' if is_open else b"\n") + lines + b".")
        is_open = not left.endswith(b".")
        return _full_lines(left), is_open


def _full_lines(text: bytes) -> int:
    """The number of lines in a text that are not blank. The text begins with the previous line's end."""
    if b"\n\n" not in text and b"\n\r\n" not in text:
        return text.count(b"\n") - 1
    lines = text.split(b"\n")[1:-1]
    return len(lines) - lines.count(b"") - lines.count(b"\r")
