"""Schedules of v1 notebooks: refused, with the line for a crontab that does the same."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NoReturn

from windrow.common.cron import Cron, cron_of
from windrow.errors import UsageError
from windrow.ml.schedules import refusal
from windrow.ml.v1.absent import Refusing


class ScheduleRecurrence:
    """When a schedule would run."""

    def __init__(
        self,
        frequency: str,
        interval: int,
        start_time: datetime | str | None = None,
        time_zone: Any = None,
        hours: Sequence[int] | None = None,
        minutes: Sequence[int] | None = None,
        week_days: Sequence[str] | None = None,
        time_of_day: str | None = None,
    ) -> None:
        """`frequency`: Minute, Hour, Day, Week or Month; `time_of_day`: such as "15:30"."""
        self.frequency = frequency
        self.interval = interval
        self.start_time = start_time
        self.time_zone = time_zone
        self.hours = hours
        self.minutes = minutes
        self.week_days = week_days
        self.time_of_day = time_of_day


class Schedule(Refusing):
    """A published pipeline that would run again and again."""

    @staticmethod
    def create(
        workspace: Any,
        name: str,
        pipeline_id: str | None = None,
        experiment_name: str | None = None,
        recurrence: ScheduleRecurrence | None = None,
        description: str | None = None,
        pipeline_parameters: dict[str, Any] | None = None,
        **more: Any,
    ) -> NoReturn:
        """Raise UsageError with the line for a crontab that does what the schedule would do."""
        options = f" --set {shlex.quote(f'experiment_name={experiment_name}')}" if experiment_name else ""
        options += "".join(
            f" --param {shlex.quote(f'{key}={value}')}" for key, value in (pipeline_parameters or {}).items()
        )
        command = f"windrow pipeline run {pipeline_id}{options}{workspace.ml_client.connection.place_options()}"
        if recurrence is None:
            raise UsageError(
                f"The schedule {name} cannot be made: Windrow does not watch datastores. Let what writes the data run: "
                f"{command}"
            )
        raise UsageError(refusal(name, *_line(recurrence), command))

    @staticmethod
    def list(workspace: Any, active_only: bool = True, **more: Any) -> list[Any]:
        """Return an empty list: there are no schedules."""
        return []

    get_all = get_schedules_for_pipeline_id = list

    @staticmethod
    def get(workspace: Any, id: str, **more: Any) -> NoReturn:
        """Raise UsageError."""
        raise UsageError(f"There is no schedule {id}: Windrow has none. `crontab -l` lists those of cron.")


def _line(recurrence: ScheduleRecurrence) -> Cron:
    """The line's fields. Raises UsageError for a recurrence that cannot be read."""
    hours, minutes = recurrence.hours or (), recurrence.minutes or ()
    start = recurrence.start_time
    try:
        if recurrence.time_of_day:
            hour, minute = recurrence.time_of_day.split(":")[:2]
            hours, minutes = [int(hour)], [int(minute)]
        begin = datetime.fromisoformat(start) if isinstance(start, str) else start
        return cron_of(
            recurrence.frequency,
            recurrence.interval,
            minutes=minutes,
            hours=hours,
            week_days=recurrence.week_days or (),
            start=begin,
        )
    except ValueError as error:
        raise UsageError(f"The recurrence is wrong: {error}.") from error
