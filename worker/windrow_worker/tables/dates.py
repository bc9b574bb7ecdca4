"""Dates in text: which texts are dates, and their time as nanoseconds since 1970-01-01 UTC.

A date column is pinned to the *families* its sample shows: ``iso`` (year first), ``named`` (5-Jan-2020), ``mdy`` and
``dmy`` (1/5/2020). Source: mltable.md, section 4; formats with ``%``: section 7.
"""

from __future__ import annotations

import datetime
import re
from typing import Callable, Dict, FrozenSet, Iterable, List, Optional, Tuple

Parse = Callable[[str], Optional[int]]
"""Text, without outer blanks, to nanoseconds; None if it is no such date."""

NS_MIN, NS_MAX = -(2**63) + 1, 2**63 - 1
"""The range of pandas' nanoseconds; the least 64-bit integer means "not a time"."""

_EPOCH = datetime.datetime(1970, 1, 1)
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_LONG_MONTHS = [
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
]

_ISO = re.compile(
    r"(\d{4})([-/])(\d{1,2})\2(\d{1,2})"
    r"(?:[ T](\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,9})\d*)?(Z| UTC|[+-]\d{2}:?\d{2})?)?",
    re.ASCII,
)
_SLASHED = re.compile(
    r"(\d{1,2})([-/])(\d{1,2})\2(\d{4}|\d{2})(?: (\d{1,2}):(\d{2})(?::(\d{2}))?(?: (AM|PM|am|pm))?)?", re.ASCII
)
_NAMED = re.compile(r"(\d{1,2})-([A-Za-z]{3})-(\d{4}|\d{2})", re.ASCII)


def _iso(text: str) -> Optional[int]:
    found = _ISO.fullmatch(text)
    if not found:
        return None
    year, _, month, day, hour, minute, second, fraction, zone = found.groups()
    return _nanoseconds(
        int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0), fraction, zone
    )


def _mdy(text: str) -> Optional[int]:
    return _slashed(text, month_first=True)


def _dmy(text: str) -> Optional[int]:
    return _slashed(text, month_first=False)


def _slashed(text: str, month_first: bool) -> Optional[int]:
    found = _SLASHED.fullmatch(text)
    if not found:
        return None
    first, _, second, year, hour, minute, seconds, half = found.groups()
    if len(year) == 2 and not month_first:
        return None
    month, day = (first, second) if month_first else (second, first)
    hours = _hour(int(hour or 0), half)
    if hours is None:
        return None
    return _nanoseconds(_year(year), int(month), int(day), hours, int(minute or 0), int(seconds or 0))


def _named(text: str) -> Optional[int]:
    found = _NAMED.fullmatch(text)
    if not found or found[2].lower() not in _MONTHS:
        return None
    return _nanoseconds(_year(found[3]), _MONTHS.index(found[2].lower()) + 1, int(found[1]))


FAMILIES: Dict[str, Parse] = {"iso": _iso, "named": _named, "mdy": _mdy, "dmy": _dmy}


def families_of(values: Iterable[str]) -> Tuple[Tuple[str, ...], bool]:
    """The families that read all these texts, as (families, undecidable).

    No families: they are not all dates, or contradict each other. ``undecidable``: day and month could change places
    in all.
    """
    fixed: List[str] = []
    orders: Optional[FrozenSet[str]] = None
    for value in values:
        text = value.strip()
        fitting = [family for family, parse in FAMILIES.items() if parse(text) is not None]
        if not fitting:
            return (), False
        if fitting[0] in ("iso", "named"):
            if fitting[0] not in fixed:
                fixed.append(fitting[0])
            continue
        orders = frozenset(fitting) if orders is None else orders & frozenset(fitting)
        if not orders:
            return (), False
    if orders is not None and len(orders) > 1:
        return (), True
    return tuple(fixed) + tuple(orders or ()), False


def parser(families: Iterable[str], formats: Iterable[str], constant: str = "") -> Parse:
    """One function for a column: its families and formats in turn, outer blanks allowed; ``constant`` stands in front
    of each text."""
    parses = [FAMILIES[family] for family in families] + [_format_parser(text) for text in formats]

    def parse(text: str) -> Optional[int]:
        text = constant + text.strip()
        for one in parses:
            value = one(text)
            if value is not None:
                return value
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
    try:
        since = datetime.datetime(year, month, day, hour, minute, second) - _EPOCH
    except ValueError:
        return None
    seconds = since.days * 86400 + since.seconds
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


def _format_parser(text: str) -> Parse:
    """A parse function for a ``%`` format. A directive given twice counts once; the fraction ``.%f`` may be absent."""
    pattern, used = "", set()
    for part in re.split(r"(\.?%.)", text):
        letter = part[-1] if part[:1] == "%" or part[:2] == ".%" else ""
        dot = r"\." if letter and part[0] == "." else ""
        if letter == "f" and dot:
            pattern += r"(?:\.(?P<f>\d{1,9})\d*)?"
        elif letter == "f":
            # Without its dot it counts nanoseconds.
            pattern += r"(?P<n>\d{1,9})"
        elif letter in _DIRECTIVES:
            directive = _DIRECTIVES[letter]
            pattern += dot + (directive if letter not in used else re.sub(r"\?P<.>", "?:", directive))
            used.add(letter)
        else:
            # A blank stands for any number of blanks, none among them.
            blanks = re.split(r"\s+", "%" if part == "%%" else part)
            pattern += r"\s*".join(re.escape(text) for text in blanks)
    compiled = re.compile(pattern, re.ASCII)

    def parse(value: str) -> Optional[int]:
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
