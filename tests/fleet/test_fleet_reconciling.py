"""What an engine lists against what the master has: what is told, lost, taken over and cancelled."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from windrow.fleet.cost import hours_of_day
from windrow.fleet.decision import Held
from windrow.fleet.provider import Seen, State
from windrow.fleet.reconciling import LOST, MISSING_S, Reconciling, Report


def rows(*held: Held) -> dict[str, Held]:
    return {one.name: one for one in held}


def test_only_what_has_changed_is_told() -> None:
    reconciling = Reconciling()
    row = Held("a", "g", "queued", "7", reason="Priority")
    seen = Seen("a", "7", State.QUEUED, "Priority")
    assert reconciling.listed([seen], rows(row), (), 1, 0.0) == ((), ())
    for changed in (
        seen._replace(reason="Resources"),
        seen._replace(state=State.STARTED, reason=""),
        seen._replace(engine_id="8"),
    ):
        told = Report("a", changed.state.value, changed.engine_id, changed.reason)
        assert reconciling.listed([changed], rows(row), (), 1, 0.0) == ((told,), ())
    ended = Seen("a", "7", State.PREEMPTED, "node1 was reclaimed")
    assert reconciling.listed([ended], rows(row), (), 1, 0.0).reports[0].state == "preempted"


@pytest.mark.parametrize("state", ["begun", "queued", "started"])
def test_what_the_engine_does_not_list_for_a_minute_is_lost(state: str) -> None:
    reconciling = Reconciling()
    row = Held("a", "g", state)
    for now in (0.0, MISSING_S - 1):
        assert reconciling.listed([], rows(row), (), 1, now).reports == ()
    assert [one.state for one in reconciling.listed([], rows(row), (), 1, MISSING_S).reports] == [LOST]


def test_the_minute_begins_anew_when_it_is_listed_again() -> None:
    reconciling = Reconciling()
    row = Held("a", "g", "queued", "7")
    reconciling.listed([], rows(row), (), 1, 0.0)
    reconciling.listed([Seen("a", "7", State.QUEUED)], rows(row), (), 1, 30.0)
    assert reconciling.listed([], rows(row), (), 1, MISSING_S).reports == ()


def test_the_minute_begins_anew_after_its_agent_was_there() -> None:
    reconciling = Reconciling()
    row = Held("a", "g", "started", "7", has_joined=True)
    reconciling.listed([], rows(row), (), 1, 0.0)
    reconciling.listed([], rows(row._replace(is_alive=True)), (), 1, 30.0)
    assert reconciling.listed([], rows(row), (), 1, MISSING_S).reports == ()
    assert len(reconciling.listed([], rows(row), (), 1, 2 * MISSING_S).reports) == 1


def test_why_it_is_lost_says_whether_the_engine_ever_had_it() -> None:
    reconciling = Reconciling()
    held = rows(Held("a", "g"), Held("b", "g", "queued", "7"))
    reconciling.listed([], held, (), 1, 0.0)
    first, second = reconciling.listed([], held, (), 1, MISSING_S).reports
    assert first.reason == "The engine was not asked for it, or refused it."
    assert (second.engine_id, second.reason) == ("7", "The engine no longer knows it.")


def test_an_agent_that_is_there_is_not_lost_and_neither_is_what_is_being_submitted() -> None:
    reconciling = Reconciling()
    held = rows(Held("a", "g", "started", "7", has_joined=True, is_alive=True), Held("b", "g"))
    for now in (0.0, 2 * MISSING_S):
        assert reconciling.listed([], held, {"b"}, 1, now).reports == ()


def test_what_the_master_does_not_know_is_told_to_it_and_cancelled_if_it_does_not_take_it() -> None:
    reconciling = Reconciling()
    queued, started = Seen("a", "7", State.QUEUED), Seen("b", "8", State.STARTED)
    ended = Seen("c", "9", State.COMPLETED)
    first = reconciling.listed([queued, started, ended], {}, (), 5, 0.0)
    assert ([one.name for one in first.reports], first.cancel) == (["a", "b"], ())
    # The master has answered once since, which may have been before it heard.
    assert reconciling.listed([queued, started], {}, (), 6, 2.0).cancel == ()
    # It has heard, and has them not: they have ended for it. What has started leaves by itself.
    last = reconciling.listed([queued, started], {}, (), 7, 4.0)
    assert (last.reports, last.cancel) == ((), (queued,))


def test_what_the_master_takes_over_is_kept() -> None:
    reconciling = Reconciling()
    queued = Seen("a", "7", State.QUEUED)
    reconciling.listed([queued], {}, (), 5, 0.0)
    row = Held("a", "g", "queued", "7")
    assert reconciling.listed([queued], rows(row), (), 9, 2.0) == ((), ())


def test_what_was_offered_once_is_offered_anew_before_it_is_cancelled() -> None:
    queued = Seen("a", "7", State.QUEUED)
    for between in ([queued], rows(Held("a", "g", "queued", "7"))), ([], {}):
        reconciling = Reconciling()
        reconciling.listed([queued], {}, (), 5, 0.0)
        # The master takes it over and forgets it, or the engine shows it for a while no more.
        assert reconciling.listed(*between, (), 9, 2.0) == ((), ())
        again = reconciling.listed([queued], {}, (), 12, 4.0)
        assert ([one.name for one in again.reports], again.cancel) == (["a"], ())


def test_what_is_being_submitted_is_not_told_before_the_master_has_answered() -> None:
    assert Reconciling().listed([Seen("a", "7", State.QUEUED)], {}, {"a"}, 5, 0.0) == ((), ())


def test_the_hours_of_today_are_those_since_midnight() -> None:
    now = datetime(2026, 5, 2, 3, 0, tzinfo=UTC)
    hour = timedelta(hours=1)
    spans = [
        (now - 5 * hour, None),  # three hours of it are today's
        (now - 2 * hour, now - hour),
        (now - 9 * hour, now - 4 * hour),  # yesterday's
        (None, None),  # not started
    ]
    assert hours_of_day(spans, now) == 4.0
