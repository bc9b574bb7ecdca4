"""The listing of a table: one JSON line a file, then one line with what was pinned; written before the first
mini-batch.

Mini-batches, and planners that are started again, go by it alone: neither folders nor the MLTable file are looked at
again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from windrow_master.planning.plan_files.plan_files import AppendFile
from windrow_master.planning.tables.files import TableFile

_READ_BYTES = 1024 * 1024


def file_line(file: TableFile) -> bytes:
    """The line of a file."""
    value: dict[str, Any] = file.where()
    if file.layout:
        value["layout"] = file.layout
    if file.rows:
        value["rows"] = file.rows
    if file.spans:
        value["spans"] = file.spans
    if file.runs is not None:
        value["runs"] = file.runs
    return _line(value)


def append_pinned(listing: AppendFile, pinned: dict[str, Any]) -> int:
    """Append the last line; return its offset, at which the lines of files end."""
    return listing.append(_line(pinned))


def read_pinned(listing: AppendFile, files_end: int, end: int) -> dict[str, Any]:
    """Read the last line, which ends at the offset `end`."""
    value: dict[str, Any] = json.loads(listing.read(files_end, end))
    return value


def files(listing: AppendFile, start: int, end: int) -> Iterator[tuple[int, TableFile]]:
    """Files and the offsets of their lines, from the line at `start` on, up to the offset `end`."""
    rest, offset = b"", start
    while start < end:
        part = listing.read(start, min(end, start + _READ_BYTES))
        start += len(part)
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            value = json.loads(line)
            name = os.fsencode(value["file"])
            rows, runs = tuple(value.get("rows", ())), value.get("runs")
            runs = None if runs is None else tuple((begin, end) for begin, end in runs)
            spans = tuple((begin, end) for begin, end in value.get("spans", ()))
            size, time, layout = value["size"], value.get("mtime_ns", 0), value.get("layout", 0)
            constants, etag = value.get("constants", ""), value.get("etag", "")
            yield offset, TableFile(name, size, time, layout, rows, runs, constants, etag, spans)
            offset += len(line) + 1


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"
