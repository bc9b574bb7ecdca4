"""The places of single rows of a table in words, such as "data.csv, line 17": for lists of failed items."""

from __future__ import annotations

import json
import os
from io import open  # a script may replace the one in builtins
from typing import Any, Dict, List, Sequence, Tuple

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
    file, places = printable(where["file"]), loaded.positions()
    if len(places) != loaded.item_count:
        return [""] * len(rows)
    at = [int(places[row]) for row in rows]
    if "row_group" in where:
        return [f"{file}, row {place + 1}" for place in at]
    if "local" in where:
        # Only this part of the file is on this node.
        return [f"{file}, record {row + 1} after byte {where['begin']}" for row in rows]
    return [f"{file}, {place}" for place in _lines(where, at)]


def _lines(where: Dict[str, Any], at: Sequence[int]) -> List[str]:
    """In which lines of a text file these bytes are."""
    found: List[str] = []
    listed = where["file"], where["size"], where["mtime_ns"]
    lines, read = _counted.get(listed, (1, 0))
    if read > at[0]:
        lines, read = 1, 0
    with open(os.fsencode(where["file"]), "rb", buffering=0) as file:
        file.seek(read)
        for byte in at:
            if byte > LINES_COUNTED_BYTES_MAX:
                found.append(f"byte {byte}")
                continue
            while read < byte:
                part = file.read(min(byte - read, _CHUNK))
                if not part:
                    break
                lines += part.count(b"\n")
                read += len(part)
            found.append(f"line {lines}")
    _counted.clear()
    _counted[listed] = lines, read
    return found
