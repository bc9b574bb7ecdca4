"""What an exception asks to wait before the next try, as services and their libraries say it."""

from __future__ import annotations

import io
import time
from datetime import timedelta
from email.message import Message
from email.utils import formatdate
from types import SimpleNamespace
from urllib.error import HTTPError

import pytest
from windrow_worker import retry_after, splitting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Busy(Exception):
    """An exception of a script, with what it is given."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__("busy")
        self.__dict__.update(attributes)


def http_error(value: str) -> HTTPError:
    headers = Message()
    headers["Retry-After"] = value
    return HTTPError("http://service.example", 429, "Too Many Requests", headers, io.BytesIO())


def test_nothing_asked_is_no_wait() -> None:
    unusable = ["soon", None, True, -3, "nan", float("inf"), object(), [1]]  # type: List[Any]
    for asked in unusable:
        assert retry_after.seconds_of(Busy(retry_after=asked)) == 0.0
    assert retry_after.seconds_of(ValueError("no")) == 0.0
    assert retry_after.seconds_of(None) == 0.0


@pytest.mark.parametrize("asked", [2, 2.0, "2", b"2", timedelta(seconds=2)], ids=repr)
def test_seconds_may_be_written_in_any_way(asked: Any) -> None:
    assert retry_after.seconds_of(Busy(retry_after=asked)) == 2.0


def test_the_header_of_http_libraries_is_found() -> None:
    assert retry_after.seconds_of(http_error("7")) == 7.0
    assert retry_after.seconds_of(Busy(response=SimpleNamespace(headers={"Retry-After": "5"}))) == 5.0
    assert retry_after.seconds_of(Busy(response=SimpleNamespace(headers={"retry-after": "5"}))) == 5.0
    assert retry_after.seconds_of(Busy(response=None, headers=None)) == 0.0


def test_a_date_is_a_wait_until_then() -> None:
    date = formatdate(time.time() + 100, usegmt=True)
    assert 90 < retry_after.seconds_of(http_error(date)) <= 100
    assert retry_after.seconds_of(http_error("Wed, 21 Oct 2015 07:28:00 GMT")) == 0.0


def test_the_exception_that_led_to_it_is_asked_too() -> None:
    try:
        try:
            raise http_error("4")
        except HTTPError as error:
            raise RuntimeError("the service is busy") from error
    except RuntimeError as error:
        assert retry_after.seconds_of(error) == 4.0
    try:
        try:
            raise http_error("4")
        except HTTPError:
            raise RuntimeError("something else") from None
    except RuntimeError as error:
        assert retry_after.seconds_of(error) == 0.0


def test_a_wait_is_an_hour_at_most() -> None:
    assert retry_after.seconds_of(Busy(retry_after=1e6)) == retry_after.MAX_S


def test_an_exception_that_raises_when_it_is_asked_is_no_wait() -> None:
    class Hostile(Exception):
        @property
        def retry_after(self) -> float:
            raise ValueError("no")

    assert retry_after.seconds_of(Hostile()) == 0.0


class Clock:
    """Stands still, but for sleeping."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(splitting, "monotonic", lambda: self.now)
        monkeypatch.setattr(splitting, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_the_pieces_of_a_split_mini_batch_keep_to_their_share_of_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    order = splitting.Order([4], [], [], 100, call_s=2.0)
    pace = splitting.Pace(order, lambda: None)
    begun = []  # type: List[Tuple[float, int, int]]

    def attempt(first: int, count: int) -> tuple[str, str, str] | None:
        pace.wait(count)
        begun.append((clock.now - 1000.0, first, count))
        return ("exception", "no", "") if first <= 5 < first + count else None

    failed, _ = splitting.find_failures(order, 8, attempt, attempt)
    assert [one.first for one in failed] == [5]
    assert [at for at, _, _ in begun] == [2.0 * number for number in range(len(begun))]


def test_items_of_pieces_count_for_a_rate_of_items(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    pace = splitting.Pace(splitting.Order([], [], [], 100, item_s=0.5), lambda: None)
    moments = []
    for items in (4, 2, 1):
        pace.wait(items)
        moments.append(clock.now - 1000.0)
    assert moments == [0.0, 2.0, 3.0]


def test_a_piece_waits_as_long_as_the_exception_asks_and_shows_that_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    alive = []  # type: List[float]
    pace = splitting.Pace(splitting.Order([], [], [], 100), lambda: alive.append(clock.now - 1000.0))
    pace.delay(12.0)
    pace.wait(1)
    assert clock.now == 1012.0 and alive == [5.0, 10.0, 12.0]
    pace.delay(5000.0)
    pace.wait(1)
    assert clock.now == 1012.0 + splitting.DELAY_MAX_S
