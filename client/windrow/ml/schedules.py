"""Schedules of jobs: refused, with the line for a crontab that does the same."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NoReturn

from windrow.common.cron import Cron, cron_of, line_of
from windrow.errors import UsageError


class RecurrencePattern:
    """At what times of a day, and on which days."""

    def __init__(
        self,
        *,
        hours: int | Sequence[int],
        minutes: int | Sequence[int],
        week_days: str | Sequence[str] | None = None,
        month_days: int | Sequence[int] | None = None,
    ) -> None:
        """Each is one value, or several."""
        self.hours = _several(hours)
        self.minutes = _several(minutes)
        self.week_days = _several(week_days)
        self.month_days = _several(month_days)


class RecurrenceTrigger:
    """Every so many minutes, hours, days, weeks or months."""

    def __init__(
        self,
        *,
        frequency: str,
        interval: int,
        schedule: RecurrencePattern | None = None,
        start_time: datetime | str | None = None,
        end_time: datetime | str | None = None,
        time_zone: Any = "UTC",
    ) -> None:
        """`frequency`: minute, hour, day, week or month."""
        self.frequency = frequency
        self.interval = interval
        self.schedule = schedule
        self.start_time = start_time
        self.end_time = end_time
        self.time_zone = time_zone

    def _cron(self) -> Cron:
        pattern, start = self.schedule, self.start_time
        return cron_of(
            str(getattr(self.frequency, "value", self.frequency)),
            self.interval,
            minutes=pattern.minutes if pattern else (),
            hours=pattern.hours if pattern else (),
            week_days=[str(day) for day in pattern.week_days] if pattern else (),
            month_days=pattern.month_days if pattern else (),
            start=datetime.fromisoformat(start) if isinstance(start, str) else start,
        )


class CronTrigger:
    """At the times of the five fields of cron."""

    def __init__(
        self,
        *,
        expression: str,
        start_time: datetime | str | None = None,
        end_time: datetime | str | None = None,
        time_zone: Any = "UTC",
    ) -> None:
        """`expression`: minute, hour, day of the month, month, day of the week."""
        self.expression = expression
        self.start_time = start_time
        self.end_time = end_time
        self.time_zone = time_zone

    def _cron(self) -> Cron:
        return Cron(self.expression)


class JobSchedule:
    """A job that would run again and again."""

    def __init__(self, *, trigger: CronTrigger | RecurrenceTrigger, create_job: Any, name: str, **more: Any) -> None:
        """`create_job`: a job, or the path of a job file."""
        self.trigger = trigger
        self.create_job = create_job
        self.name = name


class ScheduleOperations:
    """`MLClient.schedules`."""

    def begin_create_or_update(self, schedule: JobSchedule, **more: Any) -> NoReturn:
        """Raise UsageError with the line for a crontab that does what the schedule would do."""
        refuse(schedule)

    create_or_update = begin_create_or_update

    def list(self, **more: Any) -> list[Any]:
        """Return an empty list: there are no schedules."""
        return []

    def get(self, name: str, **more: Any) -> NoReturn:
        """Raise UsageError."""
        raise UsageError(f"There is no schedule {name}: Windrow has none. `crontab -l` lists those of cron.")

    begin_delete = begin_disable = begin_enable = get


def refuse(schedule: JobSchedule) -> NoReturn:
    """Raise UsageError with the line for a crontab that does what the schedule would do."""
    try:
        found = schedule.trigger._cron()
    except ValueError as error:
        raise UsageError(f"The trigger of the schedule {schedule.name} is wrong: {error}.") from error
    job = schedule.create_job
    file = os.fspath(job) if isinstance(job, (str, os.PathLike)) else None
    what = "" if file else f" Write the job to a file first: pipeline_job.dump({_JOB_FILE!r})."
    raise UsageError(refusal(schedule.name, *found, f"windrow run {shlex.quote(file or _JOB_FILE)}") + what)


_JOB_FILE = "job.yml"


def refusal(name: str, fields: str, rest: str, command: str) -> str:
    """What is said of a schedule. `fields`, `rest`: of a `Cron`; `command`: what it would run."""
    more = f" {rest}" if rest else ""
    return (
        f"The schedule {name} cannot be made: Windrow has no schedules. Let cron run the command, with this line in "
        f"`crontab -e`, in the time zone of that machine.{more}\n"
        f"{line_of(fields, os.getcwd(), command)}\n"
    )


def _several(given: Any) -> list[Any]:
    if given is None:
        return []
    return [given] if isinstance(given, (str, int)) else list(given)
