"""Dates in text: which texts are dates, and their time as nanoseconds since 1970-01-01 UTC.

A date column is pinned to the *forms* its sample shows, such as `yyyy-M-d HH:mm:ss.f` or `M/d/yyyy`: a later value
of another form does not fit. Reference: docs/reference/azure-ml/mltable.md#types, #conversion.
"""

from __future__ import annotations

import datetime
import re
from typing import Callable, Dict, Iterable, List, Optional, Set, Tuple

Parse = Callable[[str], Optional[int]]
"""From text to nanoseconds; None if it is not such a date."""
_Readings = List[Tuple[str, Optional[int]]]

_FRACTION = ".f"

NS_MIN, NS_MAX = -(2**63) + 1, 2**63 - 1
"""The range of pandas' nanoseconds; the least 64-bit integer means "not a time"."""

_EPOCH = datetime.datetime(1970, 1, 1)
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_LONG_MONTHS = [
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
]

_ISO = re.compile(
    r"(\d{1,4})([-/])(\d{1,2})\2(\d{1,2})"
    r"(?: *(T?) *(\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{1,9})\d*)?(?: *(Z|UTC|[+-]\d{2}:?\d{2}))?)?",
    re.ASCII,
)
_SLASHED = re.compile(
    r"(\d{1,2})([-/])(\d{1,2})\2(\d{4}|\d{1,2})(?: +(\d{1,2}):(\d{1,2})(?::(\d{1,2}))?(?: *(AM|PM|am|pm))?)?",
    re.ASCII,
)
_NAMED = re.compile(r"(\d{1,2})-([A-Za-z]{3})-(\d{4}|\d{1,2})", re.ASCII)


def readings(text: str) -> Dict[str, int]:
    """The possible forms of a text, each with the nanoseconds that it then means; empty if it is not a date. Whitespace
    may be missing or repeated between its parts, and may precede it, but not follow it.
    """
    text = text.lstrip()
    fitting: Dict[str, int] = {}
    for pattern, read in ((_ISO, _year_first), (_SLASHED, _year_last), (_NAMED, _named)):
        found = pattern.fullmatch(text)
        if found:
            fitting.update((form, value) for form, value in read(*found.groups()) if value is not None)
    return fitting


def _year_first(
    year: str,
    mark: str,
    month: str,
    day: str,
    letter: Optional[str],
    hour: Optional[str],
    minute: Optional[str],
    second: Optional[str],
    fraction: Optional[str],
    zone: Optional[str],
) -> _Readings:
    form = "%s%sM%sd" % ("yyyy" if len(year) == 4 else "y", mark, mark)
    if hour:
        form += (letter or " ") + "HH:mm:ss" + (_FRACTION if fraction else "")
        form += " UTC" if zone == "UTC" else "z" if zone else ""
    time = (int(hour or 0), int(minute or 0), int(second or 0))
    return [(form, _nanoseconds(int(year), int(month), int(day), *time, fraction, zone))]


def _year_last(
    first: str,
    mark: str,
    second: str,
    year: str,
    hour: Optional[str],
    minute: Optional[str],
    seconds: Optional[str],
    half: Optional[str],
) -> _Readings:
    hours = _hour(int(hour or 0), half)
    if hours is None:
        return []
    rest = mark + _years(year) + (" H:mm" if hour else "") + (":ss" if seconds else "") + (" a" if half else "")
    time = (hours, int(minute or 0), int(seconds or 0))
    return [
        (_form("M", rest), _nanoseconds(_year(year), int(first), int(second), *time)),
        (_form("d", rest), _nanoseconds(_year(year), int(second), int(first), *time)),
    ]


def _years(year: str) -> str:
    return "yyyy" if len(year) == 4 else "yy"


def _form(first: str, rest: str) -> str:
    """The form with year, month or day first, and the rest, such as `/yyyy H:mm`."""
    if first == "y":
        return "y%sM%sd%s" % (rest[0], rest[0], rest[3:].replace(" H:mm:ss", " HH:mm:ss"))
    return "%s%s%s%s" % (first, rest[0], "d" if first == "M" else "M", rest)


def _named(day: str, month: str, year: str) -> _Readings:
    if month.lower() not in _MONTHS:
        return []
    form = "d-MMM-" + _years(year)
    return [(form, _nanoseconds(_year(year), _MONTHS.index(month.lower()) + 1, int(day)))]


def forms_of(values: Iterable[str], plain: bool = False) -> Tuple[Tuple[str, ...], bool]:
    """The forms of these texts, as (forms, undecidable).

    No forms: not all texts are dates, or they contradict each other. `undecidable`: in all texts of one kind, day and
    month could be swapped, and the other kinds do not decide it either.

    A year of two digits comes first if it can in all texts of one kind: they are dates of the first century. With
    `plain`, it comes last, after month and day.
    """
    forms: Dict[str, None] = {}
    firsts: Dict[str, Set[str]] = {}
    for value in values:
        found = [form for form in readings(value) if not plain or _is_plain(form)]
        if not found:
            return (), False
        if found[0].startswith("yyyy") or "MMM" in found[0]:
            forms[found[0]] = None
            continue
        # What comes first? Texts with the same separators and parts decide it together.
        fitting = {form[0] for form in found}
        known = firsts.setdefault(_rest(found[-1]), fitting)
        known &= fitting
        if not known:
            return (), False
    decided = {first for known in firsts.values() if len(known) == 1 for first in known if first != "y"}
    for rest, known in firsts.items():
        told = {"y"} if "y" in known else known if len(known) == 1 else decided
        if len(told) != 1:
            return (), True
        forms.update((_form(first, rest), None) for first in told)
    return tuple(forms), False


def _is_plain(form: str) -> bool:
    """Whether a form is one of plain files."""
    return "yyyy" in form or "MMM" in form or form[0] == "M"


def _rest(form: str) -> str:
    """What `_form` makes a form of, with what comes first."""
    if form[0] != "y":
        return form[3:]
    # Times of day are told apart only where the year comes last.
    time = form[5:].replace(" HH:mm:ss", " H:mm:ss")
    return form[1] + "yy" + time


def parser(forms: Iterable[str], formats: Iterable[str], constant: str = "") -> Parse:
    """The parse function of a column. It tries the forms, then each of the formats, which allow outer whitespace.
    `constant` is put before each text. Fractions of a second are optional.
    """
    pinned = set(forms)
    pinned.update([form.replace(_FRACTION, "") for form in pinned])
    parses = [_format_parser(text) for text in formats]

    def parse(text: str) -> Optional[int]:
        if pinned:
            for form, value in readings(text).items():
                if form in pinned:
                    return value
        text = constant + text.strip()
        for one in parses:
            found = one(text)
            if found is not None:
                return found
        return None

    return parse


def _nanoseconds(
    year: int,
    month: int,
    day: int,
    hour: int = 0,
    minute: int = 0,
    second: int = 0,
    fraction: Optional[str] = None,
    zone: Optional[str] = None,
) -> Optional[int]:
    leap = second == 60
    try:
        since = datetime.datetime(year, month, day, hour, minute, 59 if leap else second) - _EPOCH
    except ValueError:
        return None
    seconds = since.days * 86400 + since.seconds + leap
    if zone and zone[0] in "+-":
        hours, minutes = int(zone[1:3]), int(zone[-2:])
        if minutes > 59:
            return None
        seconds -= (hours * 3600 + minutes * 60) * (-1 if zone[0] == "-" else 1)
    return seconds * 10**9 + int((fraction or "0").ljust(9, "0")[:9])


def _hour(hour: int, half: Optional[str]) -> Optional[int]:
    if not half:
        return hour
    if not 1 <= hour <= 12:
        return None
    return hour % 12 + (12 if half.lower() == "pm" else 0)


def _year(text: str) -> int:
    """Two digits: 70 to 99 are 19xx, 00 to 69 are 20xx."""
    year = int(text)
    return year if len(text) > 2 else year + (1900 if year >= 70 else 2000)


_DIRECTIVES = {
    "Y": r"(?P<Y>\d{4})",
    "y": r"(?P<y>\d{2})",
    "m": r"(?P<m>\d{1,2})",
    "b": r"(?P<b>[A-Za-z]{3})",
    "B": r"(?P<B>[A-Za-z]+)",
    "d": r"(?P<d>\d{1,2})",
    "H": r"(?P<H>\d{1,2})",
    "I": r"(?P<I>\d{1,2})",
    "M": r"(?P<M>\d{1,2})",
    "S": r"(?P<S>\d{1,2})",
    "p": r"(?P<p>[AaPp][Mm])",
    "z": r"(?P<z>Z|[+-]\d{2}:?\d{2})",
}


_LONG = 40
_BLANKS = re.compile(r"\s+", re.ASCII)
"""To a format, they are as good as one blank, and `.%f` may be absent between two of them: there would be many ways to
share many out."""


def _format_parser(text: str) -> Parse:
    """A parse function for a `%` format. A directive given twice counts once; the fraction `.%f` may be absent."""
    pattern, used = "", set()
    for part in re.split(r"(\.?%.)", text):
        letter = part[-1] if part[:1] == "%" or part[:2] == ".%" else ""
        dot = r"\." if letter and part[0] == "." else ""
        if letter == "f" and dot:
            pattern += r"(?:\.(?P<f>\d{1,9})\d*)?" if letter not in used else r"(?:\.\d+)?"
            used.add(letter)
        elif letter == "f":
            # Without its dot, it counts nanoseconds.
            pattern += r"(?P<n>\d{1,9})" if "n" not in used else r"\d{1,9}"
            used.add("n")
        elif letter in _DIRECTIVES:
            directive = _DIRECTIVES[letter]
            pattern += dot + (directive if letter not in used else re.sub(r"\?P<.>", "?:", directive))
            used.add(letter)
        else:
            # Whitespace matches any amount of whitespace, including none.
            blanks = re.split(r"\s+", "%" if part == "%%" else part)
            pattern += r"\s*".join(re.escape(text) for text in blanks)
    compiled = re.compile(pattern, re.ASCII)

    def parse(value: str) -> Optional[int]:
        if len(value) > _LONG:
            value = _BLANKS.sub(" ", value)
        found = compiled.fullmatch(value)
        return None if found is None else _from_groups(found.groupdict())

    return parse


def _from_groups(group: Dict[str, Optional[str]]) -> Optional[int]:
    month = int(group.get("m") or 1)
    for letter in ("b", "B"):
        name = (group.get(letter) or "").lower()
        if name in _MONTHS:
            month = _MONTHS.index(name) + 1
        elif name in _LONG_MONTHS:
            month = _LONG_MONTHS.index(name) + 1
        elif name:
            return None
    twelve = group.get("I")
    hour = _hour(int(twelve), group.get("p") or "am") if twelve else int(group.get("H") or 0)
    if hour is None:
        return None
    year = _year(group.get("Y") or group.get("y") or "1970")
    nanoseconds = group.get("n")
    fraction = group.get("f") if nanoseconds is None else nanoseconds.rjust(9, "0")
    minute, second = int(group.get("M") or 0), int(group.get("S") or 0)
    return _nanoseconds(year, month, int(group.get("d") or 1), hour, minute, second, fraction, group.get("z"))
