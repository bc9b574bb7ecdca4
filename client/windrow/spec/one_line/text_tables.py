"""How a delimited file is to be read, from what is in it: what spreadsheets and databases write is seldom plain CSV.

Without an MLTable file, Windrow reads a .csv file as UTF-8 with commas, and one record a line. Where a file shows that
this is wrong, the job file of a command line without one says so in an MLTable file.
"""

from __future__ import annotations

import codecs
import csv
import io
import os
import re
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from windrow.spec.tables.mltable import ENCODINGS

SAMPLE_BYTES = 1 << 20
"""The beginning of a file, which shows delimiter and line breaks inside values."""
DECODED_BYTES = 16 << 20
"""So much is looked at for bytes that are not UTF-8."""
FILES_MAX = 5
"""So many files of an input are looked at."""

ROWS_TYPED = 2_000
"""By so many rows, the type of a column is decided."""
_NUMBER = re.compile(r"\s*[+-]?\d+(?:\.\d*)?\s*", re.ASCII)
_LEADING_ZERO = re.compile(r"\s*(0\d+)\s*", re.ASCII)

_DELIMITERS = ";\t|"
_NAMES = {";": "`;`", "\t": "tabs", "|": "`|`"}


class HowRead(NamedTuple):
    """What an MLTable file has to say; the defaults say nothing. `encoding`: as an MLTable file names it.

    `zeros`: columns that are read as numbers although a value begins with zeros, which get lost, with that value.
    """

    delimiter: str = ""
    encoding: str = ""
    multi_line: bool = False
    zeros: tuple[tuple[str, str], ...] = ()

    def settings(self, default: str) -> dict[str, str | bool]:
        """The settings of `read_delimited`. `default`: the delimiter of the file's suffix."""
        delimiter = self.delimiter or (default if default != "," else "")
        found: dict[str, str | bool] = {"delimiter": delimiter} if delimiter else {}
        if self.encoding:
            found["encoding"] = self.encoding
        if self.multi_line:
            found["support_multi_line"] = True
        return found

    @property
    def words(self) -> str:
        """What was found, for people; empty if nothing was."""
        parts = [f"columns are divided by {_NAMES[self.delimiter]}"] if self.delimiter else []
        if self.multi_line:
            parts.append("values span lines")
        if self.encoding:
            parts.append("UTF-16" if self.encoding == "utf16" else "not UTF-8, so it is read as windows-1252")
        return ", ".join(parts)


def how_read(files: Iterable[str], default: str) -> HowRead:
    """How these files are read, from the first of them. `default`: the delimiter of their suffix. What cannot be read
    shows nothing: the run says why.
    """
    found = [_of_file(file, default) for file in islice(files, FILES_MAX) if os.path.isfile(file)]
    if not found:
        return HowRead()
    encodings = [one.encoding for one in found if one.encoding]
    # A column that is text in one of the files may still be reported for another: it is a note.
    zeros = {column: value for one in reversed(found) for column, value in one.zeros}
    multi_line = any(one.multi_line for one in found)
    return HowRead(found[0].delimiter, encodings[0] if encodings else "", multi_line, tuple(sorted(zeros.items())))


def has_rows(file: str, default: str) -> bool:
    """Whether a delimited file has a record below its header. `default`: the delimiter of its suffix. True if it cannot
    be read.
    """
    read = _of_file(file, default)
    try:
        with open(file, encoding=ENCODINGS[read.encoding or "utf8"], errors="replace", newline="") as source:
            text = source.read(SAMPLE_BYTES)
    except OSError:
        return True
    if len(text) == SAMPLE_BYTES:
        return True
    records = csv.reader(io.StringIO(text, newline=""), delimiter=read.delimiter or default)
    try:
        return len(list(islice((record for record in records if record), 2))) == 2
    except csv.Error:
        return True


def _of_file(file: str, default: str) -> HowRead:
    try:
        with open(file, "rb") as source:
            sample = source.read(SAMPLE_BYTES)
            is_whole = len(sample) < SAMPLE_BYTES
            encoding = _encoding(sample, source)
    except OSError:
        return HowRead()
    text = sample.decode(ENCODINGS[encoding or "utf8"], "replace").removeprefix("\ufeff")
    delimiter = _delimiter(text, default)
    return HowRead(
        "" if delimiter == default else delimiter,
        encoding,
        _is_multi_line(text, delimiter, is_whole=is_whole),
        _zeros(text, delimiter, is_whole=is_whole),
    )


def _encoding(sample: bytes, rest: io.BufferedReader) -> str:
    if sample.startswith(codecs.BOM_UTF16_LE) and not sample.startswith(codecs.BOM_UTF32_LE):
        return "utf16"
    decoder = codecs.getincrementaldecoder("utf-8")()
    left = DECODED_BYTES
    try:
        while sample and left > 0:
            decoder.decode(sample)
            left -= len(sample)
            sample = rest.read(SAMPLE_BYTES)
    except UnicodeDecodeError:
        return "latin1"
    return ""


def _delimiter(text: str, default: str) -> str:
    """Another delimiter only where the first line has none of the default one, and the second as many of the other."""
    lines = [line for line in islice(io.StringIO(text), 3) if line.strip()]
    if not lines or _outside_quotes(lines[0], default):
        return default
    for other in _DELIMITERS:
        counts = [_outside_quotes(line, other) for line in lines[:2]]
        if counts[0] and (len(counts) == 1 or counts[1] == counts[0] or lines[1].count('"') % 2):
            return other
    return default


def _zeros(text: str, delimiter: str, *, is_whole: bool) -> tuple[tuple[str, str], ...]:
    """Columns of numbers with a value that begins with zeros, such as `007`, and the first such value."""
    records = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        header = next(records, [])
        rows = list(islice(records, ROWS_TYPED))
    except csv.Error:
        return ()
    if not is_whole and len(rows) < ROWS_TYPED:
        rows = rows[:-1]  # the last one may be cut off
    found = []
    for at, column in enumerate(header):
        values = [row[at] for row in rows if len(row) > at and row[at].strip()]
        if (zero := next(filter(None, map(_LEADING_ZERO.fullmatch, values)), None)) and all(
            map(_NUMBER.fullmatch, values)
        ):
            found.append((column, zero[1]))
    return tuple(found)


def _outside_quotes(line: str, sign: str) -> int:
    return sum(part.count(sign) for part in line.split('"')[::2])


def _is_multi_line(text: str, delimiter: str, *, is_whole: bool) -> bool:
    """Whether a quoted value holds a line break, in a text whose records all have the width of the first."""
    if '"' not in text:
        return False
    found, width, previous = False, 0, False
    try:
        for record in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True):
            if not record:
                continue
            width = width or len(record)
            found = found or previous
            # The last record of a beginning may be cut off.
            previous = len(record) == width and any("\n" in value for value in record)
            if len(record) != width:
                return found and not is_whole
    except csv.Error:  # a quote stands where it must not, or is never closed; or the end of the sample cuts a value
        return (found or previous) and not is_whole
    return found or previous
