"""What the log of a master or an agent says of things that go on: once when they begin, once when they are over."""

from __future__ import annotations

import datetime
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from self_signed import authority_until
from windrow.common import journal
from windrow.common.journal import REPEATED_EVERY_S, REPEATED_TIMES, Condition, Repeated
from windrow.rpc.certificates import LOOK_EVERY_S, CertificateWatch, good_until

DAY_S = 86_400.0
Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def lines(tmp_path: Path) -> Iterator[Lines]:
    """The lines of the log so far."""
    handler = journal._JsonFile(tmp_path / "log")
    before = journal.log.level
    journal.log.addHandler(handler)
    journal.log.setLevel(logging.INFO)
    yield lambda: [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    journal.log.removeHandler(handler)
    journal.log.setLevel(before)
    handler.close()


def test_a_condition_takes_two_lines_however_often_it_happens(lines: Lines) -> None:
    slow = Condition(logging.WARNING, "slow", "fast again")
    slow.is_over()
    for number in range(359):
        slow.goes_on(number=number)
    slow.is_over()
    slow.is_over()
    begun, over = lines()
    assert (begun["level"], begun["event"], begun["number"]) == ("warning", "slow", 0)
    assert (over["level"], over["event"], over["times"]) == ("info", "fast again", 359)
    assert over["seconds"] >= 0
    slow.goes_on()
    assert len(lines()) == 3, "it may begin again"


def test_a_condition_that_hardly_happens_is_not_said(lines: Lines) -> None:
    lost = Condition(logging.WARNING, "lost", "found", from_times=3)
    for _ in range(2):
        lost.goes_on()
    lost.is_over()
    assert not lines()
    for _ in range(3):
        lost.goes_on()
    assert [line["event"] for line in lines()] == ["lost"]


def test_what_anybody_can_bring_about_is_bounded_by_kind_and_counted(
    lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now_s)
    refusals = Repeated()
    for _ in range(1000):
        refusals.say("a", logging.WARNING, "refused")
    refusals.say("b", logging.WARNING, "refused")
    assert len(lines()) == REPEATED_TIMES + 1
    now_s += REPEATED_EVERY_S + 1
    refusals.say("a", logging.WARNING, "refused")
    assert lines()[-1]["left_out_before"] == 1000 - REPEATED_TIMES
    for number in range(10_000):
        refusals.say(number, logging.DEBUG, "refused")
    assert len(refusals._said) <= Repeated.KINDS_MAX


def test_whatever_kinds_others_make_up_so_many_lines_a_minute_are_logged_and_the_rest_is_told(
    lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now_s)
    refusals = Repeated(in_all=30)
    for number in range(10_000):
        refusals.say(number, logging.WARNING, "refused")
    assert len(lines()) == 30
    now_s += REPEATED_EVERY_S + 1
    refusals.say("again", logging.WARNING, "refused")
    told, again = lines()[30:]
    assert (told["event"], told["count"]) == ("refused: some have no line of their own", 10_000 - 30)
    assert again["event"] == "refused"


def test_lines_that_a_full_disk_did_not_take_come_when_there_is_room(small_disk: Path) -> None:
    log = logging.Logger("log")
    own = journal._JsonFile(small_disk / "master.log")
    log.addHandler(own)
    log.info("before")
    filler = small_disk / "filler"
    with filler.open("ab", buffering=0) as file, pytest.raises(OSError, match="No space"):
        while file.write(bytes(4096)):
            pass
    for number in range(100):
        log.error("%s %d", "full " * 50, number)
    filler.unlink()
    log.info("after")
    own.close()
    said = [json.loads(line)["event"] for line in (small_disk / "master.log").read_text().splitlines()]
    assert said[0] == "before" and said[-1] == "after"
    assert [line for line in said if line.startswith("full")] == [f"{'full ' * 50} {number}" for number in range(100)]


# Certificates.


@pytest.mark.parametrize("year", [2031, 2049, 2050, 2113])
def test_the_end_of_a_certificate_is_read(year: int) -> None:
    ends = datetime.datetime(year, 2, 3, 4, 5, 6)
    other = authority_until(datetime.datetime(2200, 1, 1))
    told = good_until(b"text\n" + other + authority_until(ends))
    assert told == ends.replace(tzinfo=datetime.UTC).timestamp(), "the first that ends"


@pytest.mark.parametrize("pem", [b"", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----", b"\xff" * 10])
def test_what_is_no_certificate_has_no_end(pem: bytes) -> None:
    assert good_until(pem) is None
    cut = authority_until(datetime.datetime(2031, 1, 1)).splitlines(keepends=True)
    assert good_until(cut[0] + cut[1] + cut[-1]) is None


def test_a_certificate_that_runs_out_is_told_in_time_and_once_a_day_when_it_is_near(lines: Lines) -> None:
    ends = datetime.datetime(2031, 6, 1)
    ends_s = ends.replace(tzinfo=datetime.UTC).timestamp()
    content = authority_until(ends)
    watch = CertificateWatch("the certificate", "Renew it.", lambda: content)
    at_s = ends_s - 40 * DAY_S
    told: list[tuple[float, str]] = []
    while at_s < ends_s + 2 * DAY_S:
        before = len(lines())
        watch.look(at_s)
        told += [((ends_s - at_s) / DAY_S, line["level"]) for line in lines()[before:]]
        at_s += LOOK_EVERY_S
    days = [round(left) for left, _ in told]
    assert days == [30, 7, 6, 5, 4, 3, 2, 1, 0, -1]
    assert [level for _, level in told] == ["warning"] * 7 + ["error"] * 3
    assert "has expired" in lines()[-1]["event"] and "Renew it." in lines()[-1]["event"]
    content = authority_until(datetime.datetime(2041, 1, 1))
    watch.look(at_s + LOOK_EVERY_S)
    assert lines()[-1]["event"] == "the certificate was renewed"
    watch.look(at_s + 3 * LOOK_EVERY_S)
    assert len(lines()) == len(told) + 1
