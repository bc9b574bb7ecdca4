"""`extract_columns_from_partition_format`: columns whose values are in the paths of files.

`compile_format` compiles a format such as `{store}/{day:yyyy-MM-dd}/*.csv`. The client checks it, the planner groups
files by it (both compile it by `windrow.spec.tables.partition_format`), and the worker fills columns from it. It means:

* `{name}`: text of one path part, at least one character, dots included; the same name again matches, and captures
  nothing.
* `{name:yyyy/MM/dd}`: a date; `yyyy` is four digits, `MM`, `dd`, `HH`, `mm`, `ss` are two; what stands
  between them is text. Missing parts are those of 1 January, 00:00. One a format.
* `*`: any text within one path part. `/`: `/` or `\\`. `{{` and `}}`: braces.
* Other text is part of a regular expression, but a dot is a dot.

The end of a format is the end of the path; where it begins in the path is found by searching from the left.
Reference: docs/reference/azure-ml/mltable.md#partition-formats. Standard library only.
"""

from __future__ import annotations

import os
import re
from datetime import datetime, timedelta
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from windrow_worker.tables.dates import NS_MAX, NS_MIN

_EPOCH = datetime(1970, 1, 1)
_DATE_PARTS = {"yyyy": r"\d{4}", "MM": r"\d{2}", "dd": r"\d{2}", "HH": r"\d{2}", "mm": r"\d{2}", "ss": r"\d{2}"}
_DATE_PART = re.compile("(" + "|".join(_DATE_PARTS) + ")")
_PART = r"[^/\\]+"
_SIGN_MEANS = {".": r"\.", "*": r"[^/\\]*", "/": r"[/\\]"}
_SIGNS = re.compile("[.*/]")


class FormatError(ValueError):
    """A format that cannot be used; the text says why and what to write instead."""


class PartitionFormat(NamedTuple):
    """A compiled format. `names`: its columns, in order of appearance, the date (if `has_date`) last."""

    text: str
    names: Tuple[str, ...]
    has_date: bool
    pattern: Any
    """Has `search`, as a pattern of `re` has it."""

    def matches(self, path: str) -> bool:
        """Whether a path gives values to these columns."""
        return self.pattern.search(path) is not None

    def values(self, path: str) -> Tuple[Any, ...]:
        """The columns' values: text, and nanoseconds since 1970 for the date; None if the path does not match, or has
        no such date.

        `path` is absolute, as of `os.fsdecode`.
        """
        found = self.pattern.search(path)
        if found is None:
            return (None,) * len(self.names)
        texts = len(self.names) - self.has_date
        values: List[Any] = [_writable(found["t%d" % at]) for at in range(texts)]
        if self.has_date:
            values.append(_nanoseconds(found.groupdict()))
        return tuple(values)


class PathColumns:
    """The columns that some formats take from a path, and the partition keys among them."""

    def __init__(self, formats: Sequence[PartitionFormat]) -> None:
        self.formats = tuple(formats)
        self.names = tuple(name for one in self.formats for name in one.names)
        self.dates = frozenset(one.names[-1] for one in self.formats if one.has_date)

    def values(self, path: str) -> Dict[str, Any]:
        """All columns of an absolute path; values as in `PartitionFormat.values`."""
        found: Dict[str, Any] = {}
        for one in self.formats:
            found.update(zip(one.names, one.values(path)))
        return found

    def values_of(self, path: str, keys: Sequence[str]) -> Tuple[Any, ...]:
        """The columns `keys` of an absolute path, in that order."""
        found = self.values(path)
        return tuple(found[key] for key in keys)

    def key_value(self, path: str, keys: Sequence[str]) -> Dict[str, Any]:
        """The values of the columns `keys`, as passed to a script: text, `datetime` for dates, or None."""
        found = self.values(path)
        return {
            key: date_of(found[key]) if key in self.dates and found[key] is not None else found[key] for key in keys
        }


def compile_format(text: str) -> PartitionFormat:
    """Compiles a format. Raises FormatError."""
    regex = ""
    names: List[str] = []
    date: Optional[str] = None
    for literal, braces in _split(text):
        regex += _literal(literal)
        if braces is None:
            continue
        name, colon, form = braces.partition(":")
        if not name.strip():
            raise FormatError("{%s} has no column name; write {name}" % braces)
        if not colon:
            if name in names:
                regex += _PART
            else:
                regex += "(?P<t%d>%s)" % (len(names), _PART)
                names.append(name)
            continue
        if date is not None:
            raise FormatError(
                "{%s:…} and {%s} are both dates, and only one column may be one; leave the colon and what follows out "
                "of one of them" % (date, braces)
            )
        date = name
        regex += _date(name, form.strip())
    if not names and date is None:
        raise FormatError("it names no column; write a column as {name}, such as /{store}/{brand}.csv")
    if date in names:
        raise FormatError("{%s} is both text and a date; give the columns two names" % date)
    try:
        pattern = re.compile("(?:%s)\\Z" % regex, re.DOTALL)
    except re.error as error:
        raise FormatError(
            "text outside of braces is read as a regular expression, and this is not a valid one (%s); put a \\ "
            "before each of ( ) [ ] + ? ^ $ | that stands for itself" % error
        ) from None
    return PartitionFormat(text, (*names, *([date] if date is not None else [])), date is not None, pattern)


def key_value(keys: Sequence[str], stored: Sequence[Any]) -> Dict[str, Any]:
    """The values of partition keys as a script gets them, from their JSON form, where a date is a list of one number of
    nanoseconds.
    """
    return {key: date_of(value[0]) if isinstance(value, list) else value for key, value in zip(keys, stored)}


def date_of(nanoseconds: int) -> datetime:
    """The date in a date column's value, without time zone."""
    return _EPOCH + timedelta(microseconds=nanoseconds // 1000)


def _split(text: str) -> List[Tuple[str, Optional[str]]]:
    """The format as pairs of text and the braces after it; the last has no braces. Doubled braces are text."""
    found: List[Tuple[str, Optional[str]]] = []
    literal, at = "", 0
    while at < len(text):
        char = text[at]
        if char in "{}" and text[at + 1 : at + 2] == char:
            literal += "\\" + char
            at += 2
        elif char == "{":
            end = text.find("}", at)
            inside = text[at + 1 : end]
            if end < 0 or "{" in inside:
                raise FormatError('the "{" at character %d is not closed; write {name}, or {{ for a brace' % (at + 1))
            found.append((literal, inside))
            literal, at = "", end + 1
        elif char == "}":
            raise FormatError('the "}" at character %d closes nothing; write {name}, or }} for a brace' % (at + 1))
        else:
            literal += char
            at += 1
    found.append((literal, None))
    return found


def _literal(text: str) -> str:
    return _SIGNS.sub(lambda found: _SIGN_MEANS[found[0]], text)


def _date(name: str, form: str) -> str:
    parts = _DATE_PART.split(form)
    if len(parts) == 1 and not form:
        raise FormatError("{%s:} has no date format; write {%s:yyyy/MM/dd}, or {%s} for text" % (name, name, name))
    if "yyyy" not in parts:
        raise FormatError(
            '"%s", the date format of {%s:…}, has no year; it needs yyyy, and may have MM, dd, HH, mm and ss'
            % (form, name)
        )
    regex, seen = "", set()
    for at, part in enumerate(parts):
        if at % 2 == 0:
            regex += _literal(part)
        else:
            regex += _DATE_PARTS[part] if part in seen else "(?P<%s>%s)" % (part, _DATE_PARTS[part])
            seen.add(part)
    return regex


def _nanoseconds(found: Dict[str, Optional[str]]) -> Optional[int]:
    def part(name: str, default: int) -> int:
        digits = found.get(name)
        return default if digits is None else int(digits)

    try:
        moment = datetime(part("yyyy", 1), part("MM", 1), part("dd", 1), part("HH", 0), part("mm", 0), part("ss", 0))
    except ValueError:
        return None
    nanoseconds = (moment - _EPOCH) // timedelta(microseconds=1) * 1000
    return nanoseconds if NS_MIN <= nanoseconds <= NS_MAX else None


def _writable(text: Optional[str]) -> Optional[str]:
    """Text that any writer accepts: bytes that are not UTF-8 are escaped, as in the column `Path`."""
    if text is None:
        return None  # of a column in a part of the format that may be missing
    return os.fsencode(text).decode("utf-8", "backslashreplace")
