"""Delimited text cut into records and fields: the exact rule, in plain Python.

Reference: docs/reference/azure-ml/mltable.md#delimited-text: quoting after RFC 4180; text after a closing quote is
appended; a quote inside an unquoted field is literal, and so is one that nothing closes.
"""

from __future__ import annotations

from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

Record = List[Optional[str]]
"""The fields of one record; None for an empty unquoted one."""


class Text(NamedTuple):
    """How delimited text is read. `skip_returns`: a line with only a carriage return is blank, not a record; with
    `multi_line` it always is.
    """

    delimiter: str = ","
    multi_line: bool = False
    empty_as_string: bool = False
    skip_returns: bool = False

    @property
    def returns_are_blank(self) -> bool:
        """Whether a line with only a carriage return is blank, not a record."""
        return self.multi_line or self.skip_returns

    @property
    def empty(self) -> Optional[str]:
        """The value of an empty, unquoted field."""
        return "" if self.empty_as_string else None


class OpenQuote(Exception):
    """A quote is open at the end of a text, where a record should end."""


def records(data: str, text: Text, is_last: bool = True) -> Iterator[Record]:
    """The records of a text that begins with a record. `is_last` False: more records follow after the text; a quote
    that is open at its end then raises OpenQuote.
    """
    if not text.multi_line or '"' not in data:
        ends_at_return = is_last and not text.returns_are_blank
        return _single_line(data, text.delimiter, text.returns_are_blank, text.empty, ends_at_return)
    return (record for _, record in _multi_line(data, text.delimiter, text.empty, is_last))


def record_starts(data: str, text: Text) -> Iterator[int]:
    """The offset of each record in a text that may have line ends inside quotes."""
    return (start for start, _ in _multi_line(data, text.delimiter, text.empty, True))


def _single_line(
    text: str, delimiter: str, skip_bare_return: bool, empty: Optional[str], ends_at_return: bool
) -> Iterator[Record]:
    """`ends_at_return`: a carriage return at the end of the text is part of a line end, as in Azure ML's reader."""
    start, end = 0, len(text)
    while start < end:
        at = text.find("\n", start)
        if at < 0:
            line, start = text[start:], end
            if ends_at_return and line.endswith("\r"):
                line = line[:-1]
        else:
            # A carriage return is part of the line end only if a line feed follows.
            line = text[start : at - 1] if at > start and text[at - 1] == "\r" else text[start:at]
            blank = at == start or (skip_bare_return and not line)
            start = at + 1
            if blank:
                continue
        if '"' in line:
            yield _quoted_line(line, delimiter, empty)
        else:
            yield [field or empty for field in line.split(delimiter)]


def _quoted_line(line: str, delimiter: str, empty: Optional[str]) -> Record:
    fields: Record = []
    at = 0
    while True:
        # A quote that is still open at the line end is an ordinary character of the field.
        close = _closing_quote(line, at + 1) if line.startswith('"', at) else -1
        if close >= 0:
            end = line.find(delimiter, close + 1)
            tail = line[close + 1 :] if end < 0 else line[close + 1 : end]
            fields.append(line[at + 1 : close].replace('""', '"') + tail)
        elif line.startswith('"', at) and line.endswith('""'):
            # Azure ML's reader takes two quotes at the end for one, and the field for closed.
            fields.append(line[at + 1 :].replace('""', '"'))
            return fields
        else:
            end = line.find(delimiter, at)
            fields.append((line[at:] if end < 0 else line[at:end]) or empty)
        if end < 0:
            return fields
        at = end + len(delimiter)


def _multi_line(text: str, delimiter: str, empty: Optional[str], is_last: bool) -> Iterator[Tuple[int, Record]]:
    at, end, line_end, start = 0, len(text), -1, 0
    fields: Record = []
    while at < end or fields:
        if text.startswith('"', at):
            close = _closing_quote(text, at + 1)
            if close < 0:
                if not is_last:
                    raise OpenQuote
                if text.endswith('""'):
                    # As at the end of a line.
                    yield start, [*fields, text[at + 1 :].replace('""', '"')]
                    return
                # The open quote is an ordinary character, and the rest of the text is one record, line ends included.
                fields += [field or empty for field in text[at:].split(delimiter)]
                yield start, fields
                return
            quoted: Optional[str] = text[at + 1 : close].replace('""', '"')
            at = close + 1
        else:
            quoted = None
        if line_end < at:
            line_end = text.find("\n", at)
            if line_end < 0:
                line_end = end
        stop = text.find(delimiter, at, line_end)
        tail = text[at : stop if stop >= 0 else line_end]
        if stop < 0 and line_end < end and tail.endswith("\r"):
            tail = tail[:-1]
        fields.append(quoted + tail if quoted is not None else tail or empty)
        if stop >= 0:
            at = stop + len(delimiter)
            continue
        at = line_end + 1
        if len(fields) > 1 or tail or quoted is not None:
            yield start, fields
        fields, start = [], at


def _closing_quote(text: str, at: int) -> int:
    while True:
        at = text.find('"', at)
        if at < 0 or not text.startswith('"', at + 1):
            return at
        at += 2


def header_names(fields: Sequence[Optional[str]]) -> List[str]:
    """Column names from a header: trimmed; an empty one becomes `Column<position>`; repeats get `_1`, `_2`."""
    return distinct([(field or "").strip() or "Column%d" % (at + 1) for at, field in enumerate(fields)])


def widened(names: Sequence[str], width: int) -> List[str]:
    """The names, extended to `width` columns by `Column<position>`."""
    return distinct(list(names) + ["Column%d" % (at + 1) for at in range(len(names), width)])


def distinct(names: Sequence[str]) -> List[str]:
    """The names; repeats get the first free number as their ending."""
    taken = set(names)
    seen = set()
    numbers: Dict[str, int] = {}
    result = []
    for name in names:
        # From the last one given on: all below are taken.
        chosen, number = name, numbers.get(name, 0)
        while chosen in seen or (number and chosen in taken):
            number += 1
            chosen = "%s_%d" % (name, number)
        numbers[name] = number
        seen.add(chosen)
        result.append(chosen)
    return result
