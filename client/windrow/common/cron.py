"""Recurring times as lines of a crontab. Windrow has no schedules: cron runs the commands."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

FREQUENCIES = ("minute", "hour", "day", "week", "month")
WEEK_DAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_IN_ONE = {"minute": 60, "hour": 24, "day": 31, "month": 12}
"""How many of a frequency the next greater one has; cron counts anew in each."""


class Cron(NamedTuple):
    """The five fields of a crontab's line, and what they cannot say, as a sentence; "" if nothing."""

    fields: str
    rest: str = ""


def cron_of(
    frequency: str,
    interval: int = 1,
    *,
    minutes: Sequence[int] = (),
    hours: Sequence[int] = (),
    week_days: Sequence[str] = (),
    month_days: Sequence[int] = (),
    start: datetime | None = None,
) -> Cron:
    """The line for every `interval` minutes, hours, days, weeks or months.

    Minute and hour, weekday or day of the month are those of `start` (else midnight, Monday, the first) where none are
    given. Raises ValueError for another frequency.
    """
    frequency = frequency.casefold()
    if frequency not in FREQUENCIES:
        raise ValueError(f"{frequency!r} is not one of {', '.join(FREQUENCIES)}")
    begin = start or datetime(2024, 1, 1)  # a Monday
    every = "*" if interval <= 1 else f"*/{interval}"
    minute = _listed(minutes) or str(begin.minute)
    hour = _listed(hours) or str(begin.hour)
    days = _listed(sorted(_week_day(day) for day in week_days)) or "*"
    match frequency:
        case "minute":
            fields = f"{every} * * * *"
        case "hour":
            fields = f"{minute} {every} * * *"
        case "day":
            fields = f"{minute} {hour} {every} * {days}"
        case "week":
            fields = f"{minute} {hour} * * {days if week_days else begin.isoweekday() % 7}"
        case _:
            fields = f"{minute} {hour} {_listed(month_days) or begin.day} {every} *"
    if interval > 1 and frequency == "week":
        return Cron(fields, f"It is every week, not every {interval} weeks: cron cannot count weeks.")
    if interval > 1 and _IN_ONE[frequency] % interval:
        return Cron(fields, f"Cron counts the {interval} {frequency}s anew in each {_greater(frequency)}.")
    return Cron(fields)


def line_of(fields: str, folder: str, command: str) -> str:
    """A crontab's line that runs `windrow …` in a folder: with the program's path, since cron's `PATH` is short."""
    program = shutil.which("windrow") or "windrow"
    command = f"cd {shlex.quote(folder)} && {command.replace('windrow', shlex.quote(program), 1)}"
    # In a crontab, % is the end of a line; inside quotes, too.
    return f"{fields}  " + command.replace("%", r"\%")


def _listed(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def _week_day(name: str) -> int:
    found = next((at for at, day in enumerate(WEEK_DAYS) if day[:3] == name.casefold()[:3]), None)
    if found is None:
        raise ValueError(f"{name!r} is not a day of the week")
    return found


def _greater(frequency: str) -> str:
    return {"minute": "hour", "hour": "day", "day": "month", "month": "year"}[frequency]
