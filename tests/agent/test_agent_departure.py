"""When an agent leaves by itself."""

from __future__ import annotations

import pytest
from windrow_agent.config import HAND_BACK_S, AgentConfig, BadConfig
from windrow_agent.session.departure import Departure


def test_an_agent_without_an_end_stays() -> None:
    departure = Departure(None, None, 30.0, 100.0)
    assert not departure.is_planned
    assert departure.left_s(1e9) is None
    assert not departure.why(1e9, busy=False)


def test_it_drains_so_early_that_what_runs_has_its_grace_and_is_handed_back() -> None:
    departure = Departure(600.0, None, 30.0, 100.0)
    drains_s = 700 - 30 - HAND_BACK_S
    assert departure.left_s(200.0) == 500.0
    assert not departure.why(drains_s - 0.1, busy=False)
    assert departure.due_s(drains_s - 0.1) == pytest.approx(0.1)
    assert departure.why(drains_s, busy=True) == "its lifetime ends in 35 s"
    assert departure.left_s(1000.0) == 0.0


def test_it_leaves_when_it_has_had_nothing_to_do_for_so_long() -> None:
    departure = Departure(None, 120.0, 30.0, 0.0)
    assert not departure.why(119.0, busy=False)
    assert not departure.why(130.0, busy=True)
    assert departure.due_s(130.0) == 120.0
    assert not departure.why(249.0, busy=False)
    assert departure.why(250.0, busy=False) == "it has had nothing to do for 2 min"


def test_an_agent_that_is_awaited_stays() -> None:
    departure = Departure(None, 120.0, 30.0, 0.0)
    departure.stay(100.0)
    assert not departure.why(219.0, busy=False)
    assert departure.why(220.0, busy=False)


def test_a_life_that_is_too_short_for_any_work_is_refused() -> None:
    with pytest.raises(BadConfig, match=r"lifetime_s is 35.* would never take work"):
        AgentConfig.parse('{"folder": "/x", "master_addresses": ["unix:/m"], "lifetime_s": 35}')
    assert AgentConfig.parse('{"folder": "/x", "master_addresses": ["unix:/m"], "lifetime_s": 36}').lifetime_s == 36.0
