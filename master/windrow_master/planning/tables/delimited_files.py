"""Delimited files in planning: where records begin, headers, and records to sample."""

from __future__ import annotations

import codecs
import os
from typing import Any, NamedTuple

from windrow_worker.tables.delimited_text import Record, Text, header_names, records
from windrow_worker.tables.encodings import ENCODINGS, Encoding, to_text

from windrow_master.planning.errors import PlanningError, shown
from windrow_master.planning.tables.cutting import Cutter, LineCutter, QuotedCutter, WholeFile
from windrow_master.planning.tables.files import TableFile, refuse_compressed
from windrow_master.planning.tables.window import Window

SAMPLE_BYTES = 64 * 1024
RECORD_BYTES_MAX = 256 * 1024 * 1024
"""A longer record means that the file is not what it is read as. Samples are not longer either."""

_BIG_ENDIAN_MARKS = {"utf-16-le": codecs.BOM_UTF16_BE, "utf-32-le": codecs.BOM_UTF32_BE}


class Format(NamedTuple):
    """How text files of a table are cut and decoded."""

    encoding: Encoding
    text: Text

    def to_json(self) -> dict[str, Any]:
        """The JSON form."""
        return {"encoding": self.encoding.name, "text": self.text._asdict()}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Format:
        """Read the JSON form."""
        return cls(ENCODINGS[value["encoding"]], Text(**value["text"]))

    def cutter(self, window: Window) -> Cutter:
        """The cutter of a file."""
        if not self.text.multi_line:
            return LineCutter(window, self.encoding, self.text.returns_are_blank)
        delimiter = self.text.delimiter
        if self.encoding.unit > 1 or not delimiter.isascii():
            return WholeFile(window, self.encoding, self.text.returns_are_blank)
        return QuotedCutter(window, delimiter.encode())


class Head(NamedTuple):
    """The beginning of a file: its header's names (None without header), and its first record (None if it has none)."""

    names: list[str] | None
    first_record: int | None


def read_head(window: Window, file: TableFile, how: Format, *, header: bool) -> Head:
    """Read the beginning of a file. Raises PlanningError if it is compressed, or not text in its encoding."""
    encoding = how.encoding
    mark = window.read(0, 8)
    refuse_compressed(file, mark)
    if mark.startswith(_BIG_ENDIAN_MARKS.get(encoding.name, ())):
        raise PlanningError(
            f"{shown(file.name)} is UTF-{8 * encoding.unit} with the bytes of each character in the other order (big "
            "endian), which is not read. Save it as UTF-8."
        )
    cutter = how.cutter(window)
    begin = cutter.first_record(len(encoding.mark) if encoding.mark and mark.startswith(encoding.mark) else 0)
    if not header or begin is None:
        return Head(None, begin)
    end = cutter.record_end(begin)
    line = _decode(window.read(begin, min(end - begin, RECORD_BYTES_MAX)), file, encoding, begin)
    if isinstance(cutter, WholeFile) and line.count('"') % 2:
        raise PlanningError(
            f"The header of {shown(file.name)} has a line break inside quotes, which is not supported in "
            f"{encoding.name} or with this delimiter. Write the header in one line, or save the file as UTF-8."
        )
    following = cutter.first_record(end)
    if following is None and "\r" in line.rstrip("\r\n"):
        raise PlanningError(
            f"The lines of {shown(file.name)} end with carriage returns alone, as on old Macs; lines that are read end "
            "with line feeds. Convert it, for example with: tr '\\r' '\\n' < old.csv > new.csv"
        )
    return Head(header_names(next(records(line, how.text), [])), following)


def sample_records(window: Window, file: TableFile, how: Format, begin: int, wanted: int) -> list[Record]:
    """The first records from `begin` on, at most `wanted`; fewer where they are very long.

    Raises PlanningError if they are not text in the encoding, or the first one is too long.
    """
    length = SAMPLE_BYTES
    while True:
        data = window.read(begin, length)
        at_end = begin + len(data) >= window.size
        if not at_end:
            data = data[: _last_line_end(data, how.encoding)]
        found = list(records(_decode(data, file, how.encoding, begin), how.text))
        if not at_end and how.text.multi_line:
            # The last one may continue after the sample, inside quotes.
            del found[-1:]
        # A few records that are that long have to do.
        if at_end or len(found) >= wanted or (found and length >= RECORD_BYTES_MAX):
            return found[:wanted]
        if length >= RECORD_BYTES_MAX:
            raise PlanningError(
                f"The first record of {shown(file.name)} is longer than {RECORD_BYTES_MAX // 1024**2} MiB. "
                "It may not be delimited text with line ends: check the file and the settings of read_delimited."
            )
        length *= 4


def _last_line_end(data: bytes, encoding: Encoding) -> int:
    at = data.rfind(encoding.newline)
    while at >= 0 and at % encoding.unit:
        at = data.rfind(encoding.newline, 0, at + len(encoding.newline) - 1)
    return at + encoding.unit if at >= 0 else 0


def _decode(data: bytes, file: TableFile, encoding: Encoding, offset: int) -> str:
    try:
        return to_text(data, encoding.name, offset)
    except ValueError as error:
        raise PlanningError(f"{os.fsencode(file.name).decode('utf-8', 'backslashreplace')}: {error}.") from error
