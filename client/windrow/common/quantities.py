"""Numbers in words, for people. Pure, and of quick import: commands, reports and the core of the master use it."""

from __future__ import annotations

import re
from collections.abc import Sequence

TYPE_CHECKING = False  # typing costs milliseconds on the way to the first run()
if TYPE_CHECKING:
    from datetime import datetime


_SOON = "a few seconds"


def counted(count: int, noun: str) -> str:
    """`1 item`, `1,000 items`, `2 mini-batches`, `3 retries`."""
    if count == 1:
        return f"1 {noun}"
    if noun.endswith("ry"):
        return f"{count:,} {noun[:-1]}ies"
    return f"{count:,} {noun}{'es' if noun.endswith(('ch', 'ss')) else 's'}"


def first_few(names: Sequence[str], most: int, noun: str = "") -> str:
    """The first `most` names: `a, b, c and 4 more`; with a noun, `a, b, c and 4 more files`."""
    left = len(names) - most
    more = f" and {counted(left, f'more {noun}') if noun else f'{left:,} more'}" if left > 0 else ""
    return ", ".join(names[:most]) + more


def duration(seconds: float) -> str:
    """`0.4 s`, `12 s`, `3 min 5 s`, `2 h 10 min`, `3 d 4 h`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for unit, size, small, small_size in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // small_size
            return f"{whole // size:,} {unit} {rest} {small}" if rest else f"{whole // size:,} {unit}"
    return f"{whole} s"


def roughly(seconds: float) -> str:
    """A time that nobody knows exactly: `a few seconds`, `40 s`, `12 min`, `2 h 10 min`, `3 d 4 h`."""
    if seconds < 7.5:
        return _SOON
    if seconds < 90:
        return f"{max(10, 5 * round(seconds / 5))} s"
    return duration(60 * round(seconds / 60))


def ahead(seconds: float) -> str:
    """When something is that nobody knows exactly: `in a few seconds`, `in about 12 min`."""
    told = roughly(seconds)
    return f"in {told}" if told == _SOON else f"in about {told}"


def seconds_in(text: str) -> int | None:
    """The seconds of a duration as users write it: 90s, 30min, 12h, 2d or 1w; None if it is none."""
    seconds = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
    found = re.fullmatch(rf"(\d{{1,9}}) ?({'|'.join(seconds)})", text.strip())
    return None if found is None else int(found[1]) * seconds[found[2]]


def moment_in(text: str, *, from_now: int) -> datetime:
    """The moment of a text: a duration from now on (`from_now` 1) or before (-1), or a date or moment in ISO 8601, by
    the clock of this machine unless it says another. Raises ValueError, OverflowError.
    """
    from datetime import UTC, datetime, timedelta

    if (seconds := seconds_in(text)) is not None:
        return datetime.now(UTC) + from_now * timedelta(seconds=seconds)
    return datetime.fromisoformat(text.strip()).astimezone()


def bytes_in(text: str) -> int | None:
    """The bytes of a size as users write it: 500MB, 1.5 GB (powers of 1,000), 16GiB (powers of 1,024); None if it is
    none.
    """
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?) ?([KMGT])(i?)B", text.strip())
    if found is None:
        return None
    return int(float(found[1]) * (1024 if found[3] else 1000) ** ("KMGT".index(found[2]) + 1))


def brief_duration(seconds: float) -> str:
    """The largest unit alone, for narrow columns: `12s`, `3min`, `2h`, `4d`."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size):,}{unit}"
    return f"{int(seconds)}s"


def precise_duration(seconds: float) -> str:
    """Like `duration`, but short times are more precise: `12 µs`, `3.4 ms`, `0.42 s`."""
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 0.1:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds:.2f} s" if seconds < 10 else duration(seconds)


def rate(per_s: float, what: str) -> str:
    """`1,234 items/s`, `12.3 items/s`, `0.25 items/s`, `4.2 items/min`."""
    if per_s >= 100:
        return f"{per_s:,.0f} {what}/s"
    if per_s >= 0.1:
        return f"{per_s:.3g} {what}/s"
    return f"{per_s * 60:.2g} {what}/min"


def size(count: int) -> str:
    """`512 B`, `4.2 KB`, `1.5 GB` (powers of 1,000)."""
    value = float(count)
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError("unreachable")


def shown_value(value: object) -> str:
    """A value that a script has logged: a number in few digits, a text, or a row of a table."""
    if isinstance(value, dict):
        return ", ".join(f"{column}={shown_value(one)}" for column, one in value.items())
    return f"{value:.6g}" if isinstance(value, float) else str(value)
