"""Where the records of a slice stand in their file: numbers that do not depend on how the file is cut."""

from __future__ import annotations

import numpy

from windrow_worker.tables.delimited_text import Text, record_starts
from windrow_worker.tables.encodings import ENCODINGS, to_text

_UNITS = {1: "u1", 2: "<u2", 4: "<u4"}


def record_positions(data: bytes, begin: int, encoding: str, text: Text) -> numpy.ndarray:
    """The offset in its file of each record of a delimited slice that begins at `begin`."""
    if not text.multi_line or _encoded('"', encoding) not in data:
        if text.returns_are_blank:
            found = line_positions(data, begin, encoding)
            return found[[not data.startswith(_encoded("\r\n", encoding), at - begin) for at in found.tolist()]]
        return line_positions(data, begin, encoding)
    decoded = to_text(data, encoding, begin)
    places, at, place = [], 0, begin
    narrow = encoding == "windows-1252"
    for start in record_starts(decoded, text):
        place += start - at if narrow else len(decoded[at:start].encode(encoding))
        at = start
        places.append(place)
    return numpy.array(places, dtype="int64")


def _encoded(text: str, encoding: str) -> bytes:
    return text.encode("ascii" if encoding == "windows-1252" else encoding)


def line_positions(data: bytes, begin: int, encoding: str) -> numpy.ndarray:
    """The offset in its file of each line that is not empty, of a slice that begins at `begin`."""
    unit = ENCODINGS[encoding].unit
    characters = numpy.frombuffer(data, dtype=_UNITS[unit], count=len(data) // unit)
    ends = numpy.flatnonzero(characters == 10)
    starts = numpy.concatenate(([0], ends + 1))
    ends = numpy.append(ends, len(characters))
    return (starts[ends > starts] * unit + begin).astype("int64")
