"""Schedules of `windrow.ml`: refused, with a line for cron."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from windrow.errors import UsageError
from windrow.ml import MLClient
from windrow.ml.entities import CronTrigger, JobSchedule, RecurrencePattern, RecurrenceTrigger


@pytest.mark.parametrize(
    ("trigger", "line"),
    [
        (CronTrigger(expression="15 10 * * 1", time_zone="Eastern Standard Time"), "15 10 * * 1  cd "),
        (
            RecurrenceTrigger(
                frequency="day", interval=1, schedule=RecurrencePattern(hours=10, minutes=[0, 1]), time_zone="UTC"
            ),
            "0,1 10 * * *  cd ",
        ),
        (RecurrenceTrigger(frequency="month", interval=1, start_time="2026-05-10T10:15:00"), "15 10 10 * *  cd "),
        (RecurrenceTrigger(frequency="week", interval=2, start_time=datetime(2026, 5, 11)), "cron cannot count weeks"),
    ],
)
def test_a_schedule_is_refused_with_a_line_for_cron(
    tmp_path: Path, trigger: CronTrigger | RecurrenceTrigger, line: str
) -> None:
    client = MLClient(state=tmp_path / "state")
    schedule = JobSchedule(name="nightly", trigger=trigger, create_job="jobs/job.yml")
    with pytest.raises(UsageError) as caught:
        client.schedules.begin_create_or_update(schedule)
    assert line in str(caught.value) and "run jobs/job.yml" in str(caught.value)
    assert str(caught.value).startswith("The schedule nightly cannot be made: Windrow has no schedules.")
    with pytest.raises(UsageError, match="Let cron run the command"):
        client.create_or_update(schedule)
    assert client.schedules.list() == []


def test_a_job_of_python_is_written_to_a_file_first(tmp_path: Path) -> None:
    schedule = JobSchedule(name="n", trigger=CronTrigger(expression="0 0 * * *"), create_job=object())
    with pytest.raises(UsageError, match=r"pipeline_job.dump\('job.yml'\)"):
        MLClient(state=tmp_path / "state").create_or_update(schedule)
