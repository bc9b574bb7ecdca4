"""Recurring times as lines of a crontab."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from windrow.common.cron import cron_of, line_of


@pytest.mark.parametrize(
    ("frequency", "interval", "more", "fields"),
    [
        ("day", 1, {}, "0 0 * * *"),
        ("Day", 1, {"hours": [8, 20], "minutes": [0, 30]}, "0,30 8,20 * * *"),
        ("minute", 1, {}, "* * * * *"),
        ("minute", 10, {"start": datetime(2026, 1, 1, 5, 7)}, "*/10 * * * *"),
        ("hour", 6, {"start": datetime(2026, 1, 1, 5, 7)}, "7 */6 * * *"),
        ("week", 1, {}, "0 0 * * 1"),
        ("week", 1, {"start": datetime(2026, 11, 29, 4, 5)}, "5 4 * * 0"),
        ("week", 1, {"week_days": ["Wed", "sunday"], "hours": [3]}, "0 3 * * 0,3"),
        ("month", 3, {"month_days": [1, 15]}, "0 0 1,15 */3 *"),
    ],
)
def test_the_line_of_a_recurrence(frequency: str, interval: int, more: dict[str, Any], fields: str) -> None:
    assert cron_of(frequency, interval, **more) == (fields, "")


@pytest.mark.parametrize(
    ("frequency", "interval", "rest"),
    [("week", 2, "not every 2 weeks"), ("minute", 7, "in each hour"), ("day", 2, "in each month")],
)
def test_what_cron_cannot_say_is_told(frequency: str, interval: int, rest: str) -> None:
    assert rest in cron_of(frequency, interval).rest


def test_a_crontab_reads_the_command_as_a_shell_does() -> None:
    line = line_of("5 4 * * *", "/data/50% off", "windrow run 'a b.yml' --param 'd=%Y'")
    assert line.startswith("5 4 * * *  cd '/data/50\\% off' && ")
    assert line.endswith("windrow run 'a b.yml' --param 'd=\\%Y'")


def test_what_is_no_recurrence_is_refused() -> None:
    with pytest.raises(ValueError, match="'fortnight' is not one of minute"):
        cron_of("fortnight")
    with pytest.raises(ValueError, match="'someday' is not a day of the week"):
        cron_of("week", week_days=["someday"])
