"""What the agents of a day cost. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta


def day_of(moment: datetime) -> datetime:
    """The beginning of its day (UTC)."""
    return moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def hours_of_day(spans: Iterable[tuple[datetime | None, datetime | None]], now: datetime) -> float:
    """The hours of today (UTC) in spans, each from the start of an agent to its end. None: it has not started, or not
    ended.
    """
    day = day_of(now)
    total = timedelta()
    for start, end in spans:
        if start is not None:
            total += max(timedelta(), min(end or now, now) - max(start, day))
    return total / timedelta(hours=1)
