"""Files of schedules: refused, with the line for a crontab that does the same.

Reference: docs/reference/azure-ml/client.md#refusals.
"""

from __future__ import annotations

import shlex
from datetime import datetime
from typing import Any

from windrow.common.cron import cron_of, line_of
from windrow.spec.reading.nodes import Mapping, Scalar, to_plain

_NO_SCHEDULES = "this file is a schedule, and Windrow has none. Let cron run the job"


def schedule_refusal(schedule: Mapping) -> str:
    """What is said of a file that is a schedule, as sentences."""
    trigger: Any = to_plain(schedule.entries["trigger"])
    job = schedule.entries["create_job"]
    command = f"windrow run {shlex.quote(job.text) if isinstance(job, Scalar) else 'JOB_FILE'}"
    try:
        if "expression" in trigger:
            fields, rest = str(trigger["expression"]), ""
        else:
            times = trigger.get("schedule") or {}
            start = trigger.get("start_time")
            fields, rest = cron_of(
                str(trigger["frequency"]),
                int(trigger.get("interval", 1)),
                minutes=_several(times.get("minutes")),
                hours=_several(times.get("hours")),
                week_days=_several(times.get("weekdays") or times.get("week_days")),
                month_days=_several(times.get("month_days")),
                start=datetime.fromisoformat(str(start)) if start else None,
            )
    except (AttributeError, KeyError, TypeError, ValueError):
        return f"{_NO_SCHEDULES}: {command}."
    line = line_of(fields, schedule.place.source.folder, command)
    return f"{_NO_SCHEDULES}, with this line in `crontab -e`{f' ({rest})' if rest else ''}: {line}"


def _several(given: Any) -> list[Any]:
    if given is None:
        return []
    return list(given) if isinstance(given, list) else [given]
