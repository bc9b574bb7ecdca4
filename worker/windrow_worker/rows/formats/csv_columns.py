"""Rows of CSV with different columns in one file: it has the columns of all, and no value where rows lack one.

Rows travel and are kept with their own header line before them, so that whoever puts them together (the worker, if a
mini-batch runs in pieces; otherwise the master) sees what each has. Fields keep their bytes: nothing is parsed into
values and written again.
"""

from __future__ import annotations

import re
from itertools import chain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterable, Iterator, List, Tuple

_FIELD = re.compile(rb'("(?:[^"]|"")*"|[^",\n]*)[,\n]')
NO_COLUMNS = b"\n"
"""The header of rows that are empty dicts, each of them a blank line. The others may have columns."""
_EMPTY_ALONE = b'""'
"""How an empty field is written that is alone in its row: a blank line is no row to most readers."""


def join_headers(headers: Iterable[bytes]) -> bytes:
    """The header line of a file with the columns of all: in the order in which they first appear."""
    columns: Dict[Tuple[bytes, int], None] = {}
    for header in dict.fromkeys(headers):
        columns.update(dict.fromkeys(_columns(header)))
    return b",".join(name for name, _ in columns) + b"\n"


def header_length(content: bytes) -> int:
    """The length of the header line at the start of rows; 0 if its end is not in `content`."""
    end, quotes = 0, 0
    while True:
        following = content.find(b"\n", end) + 1
        if not following:
            return 0
        quotes += content.count(b'"', end, following)
        end = following
        if quotes % 2 == 0:
            return end


def fit_rows(pieces: Iterable[bytes], header: bytes, missing: bytes) -> Iterator[bytes]:
    """Rows without their header line, with the columns of `header`.

    `pieces`: the rows, cut anywhere, with their header line at the start. `missing`: what stands for a value that is
    not there. Raises KeyError for a column that `header` lacks; ValueError if these are no rows.
    """
    pieces, content, length = iter(pieces), b"", 0
    for piece in pieces:
        content += piece
        length = header_length(content)
        if length:
            break
    if not length:
        raise ValueError("rows of CSV without a header line")
    own, content = content[:length], content[length:]
    if own == header:
        yield content
        yield from pieces
        return
    columns = _columns(own)
    places = {column: at for at, column in enumerate(columns)}
    wanted = _columns(header)
    if others := places.keys() - set(wanted):
        raise KeyError(", ".join(repr(name) for name, _ in sorted(others)))
    order = [places.get(column, -1) for column in wanted]
    rest = b""
    for piece in chain((content,), pieces):
        rest += piece
        end = _end_of_rows(rest)
        if end:
            yield _fitted(rest[:end], len(columns), order, missing)
            rest = rest[end:]
    if rest:
        raise ValueError("a row of CSV without its end")


def _columns(header: bytes) -> List[Tuple[bytes, int]]:
    """The columns of a header line: the name as it is written, and how many columns before have the same."""
    names = _FIELD.findall(header) if header != NO_COLUMNS else []
    return [(name, names[:at].count(name)) for at, name in enumerate(names)]


def _end_of_rows(content: bytes) -> int:
    """Where the last whole row ends, 0 if none does: at the last line end that is outside quotes."""
    end = content.rfind(b"\n") + 1
    quotes = content.count(b'"', 0, end)
    while end and quotes % 2:
        before = content.rfind(b"\n", 0, end - 1) + 1
        quotes -= content.count(b'"', before, end)
        end = before
    return end


def _fitted(rows: bytes, width: int, order: List[int], missing: bytes) -> bytes:
    """Whole rows of `width` fields, with other columns: of each, its place in the row, or -1."""
    if not width:
        line = b",".join([missing] * len(order)) or _EMPTY_ALONE
        return (line + b"\n") * rows.count(b"\n")
    fields = _FIELD.findall(rows)
    if len(fields) % width:
        raise ValueError("rows of CSV with another number of fields than their header")
    if width == 1:
        fields = [b"" if field == _EMPTY_ALONE else field for field in fields]
    lines = []
    for first in range(0, len(fields), width):
        # Behind the last field, where -1 leads.
        row = [*fields[first : first + width], missing]
        lines.append(b",".join([row[at] for at in order]))
    lines.append(b"")
    return b"\n".join(lines)
