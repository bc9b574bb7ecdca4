"""The places of single rows of a table in words, such as "data.csv, line 17": for lists of failed items."""

from __future__ import annotations

import json
import os
from io import open  # a script may replace the one in builtins
from typing import Any, Dict, List, Optional, Sequence, Tuple

from windrow_worker.loaded import Loaded
from windrow_worker.tables.files import printable

LINES_COUNTED_BYTES_MAX = 1 << 30
"""Lines are counted from the beginning of a file, up to here; after that, the byte is given."""

_CHUNK = 1 << 24

_counted: Dict[Tuple[str, int, int], Tuple[int, int]] = {}
"""Of the last file: the line at a byte. A worker mostly gets the parts of a file in order."""


def row_places(loaded: Loaded, recipe: bytes, rows: Sequence[int]) -> List[str]:
    """The places of these rows (ascending) of a mini-batch; "" where one is not known. Raises OSError, ValueError."""
    if loaded.positions is None or not rows:
        return [""] * len(rows)
    where = json.loads(recipe)
    if "parts" in where:
        return [""] * len(rows)
    places = loaded.positions()
    if len(places) != loaded.readable_count:
        return [""] * len(rows)
    at = [int(places[row]) for row in rows]
    if "row_group" in where:
        return [f"{printable(where['file'])}, row {place + 1}" for place in at]
    file = printable(where["file"])
    if "local" in where:
        # Only this part of the file is on this node.
        return [f"{file}, record {row + 1} after byte {where['begin']}" for row in rows]
    lines = _lines(where, at)
    return [f"{file}, byte {byte}" if line is None else f"{file}, line {line}" for byte, line in zip(at, lines)]


def line_places(where: Dict[str, Any], lines: Sequence[Tuple[int, int]]) -> List[str]:
    """The places of lines of a slice of text, each given as (number of the record, from 0; number of the line, from 1).
    Raises OSError.
    """
    file, begin = printable(where["file"]), where["begin"]
    before = None if "local" in where or not lines else _lines(where, [begin])[0]
    if before is None:
        return [f"{file}, record {record + 1} after byte {begin}" for record, _ in lines]
    return [f"{file}, line {before + line - 1}" for _, line in lines]


def _lines(where: Dict[str, Any], at: Sequence[int]) -> List[Optional[int]]:
    """In which lines of a text file these bytes are; None where they are not counted."""
    found: List[Optional[int]] = []
    listed = where["file"], where["size"], where["mtime_ns"]
    lines, read = _counted.get(listed, (1, 0))
    if read > at[0]:
        lines, read = 1, 0
    with open(os.fsencode(where["file"]), "rb", buffering=0) as file:
        file.seek(read)
        for byte in at:
            if byte > LINES_COUNTED_BYTES_MAX:
                found.append(None)
                continue
            while read < byte:
                part = file.read(min(byte - read, _CHUNK))
                if not part:
                    break
                lines += part.count(b"\n")
                read += len(part)
            found.append(lines)
    _counted.clear()
    _counted[listed] = lines, read
    return found
