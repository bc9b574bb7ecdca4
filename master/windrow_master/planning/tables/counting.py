"""Counting the records of text files while they are cut: in every mini-batch, or up to where one ends.

The counts are those of the worker's readers, which read the same bytes by the same rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from windrow_worker.tables.delimited_text import records
from windrow_worker.tables.encodings import to_text
from windrow_worker.tables.json_lines import objects

from windrow_master.planning.tables.delimited_files import Format
from windrow_master.planning.tables.window import BLOCK_MAX, Window


def record_counter(window: Window, how: Format, reader: dict[str, Any]) -> Callable[[int, int], int]:
    """How many records stand from one byte to another of a file, both where records begin.

    The function raises ValueError for bytes that are no text of the encoding, where they have to be decoded.
    """
    name = how.encoding.name

    def decoded(begin: int, end: int) -> str:
        return to_text(window.read(begin, end - begin), name, begin)

    if reader.get("drop_invalid"):
        return lambda begin, end: sum(1 for _ in objects(decoded(begin, end), True))
    if how.encoding.unit == 1 and not how.text.multi_line:
        return lambda begin, end: _line_count(window, begin, end)
    return lambda begin, end: sum(1 for _ in records(decoded(begin, end), how.text))


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


def _line_count(window: Window, begin: int, end: int) -> int:
    """Lines that are not empty, block by block, so that no slice is too large."""
    count, unfinished = 0, False
    while begin < end and (block := window.read(begin, min(end - begin, BLOCK_MAX))):
        begin += len(block)
        lines = block.split(b"\n")
        unfinished = unfinished or bool(lines[0])
        if len(lines) > 1:
            count += unfinished + len(lines) - 2 - lines[1:-1].count(b"")
            unfinished = bool(lines[-1])
    return count + unfinished
