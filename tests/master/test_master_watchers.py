"""Who watches a job hears of changes at a pace, and of its end at once."""

from __future__ import annotations

import asyncio

import pytest
from windrow.cli.display.follower import FLEET_INTERVAL_MAX_S, FLEET_INTERVAL_S, fleet_interval_s
from windrow_master.core.ids import JobKey
from windrow_master.rpc.job_service import WATCH_INTERVAL_MAX_S, WATCH_INTERVAL_S, watch_interval_s
from windrow_master.watchers import Watchers

DEADLINE_S = 180.0
JOB, OTHER = JobKey(1), JobKey(2)


def test_the_end_is_told_without_the_pause_between_changes() -> None:
    async def scenario() -> None:
        watchers = Watchers()
        with watchers.watch(JOB) as watch:
            watchers.notify(JOB, ended=False)
            waiting = asyncio.create_task(watch.next_change(interval_s=10 * DEADLINE_S))
            await asyncio.sleep(0)
            watchers.notify(OTHER, ended=True)
            await asyncio.sleep(0)
            assert not waiting.done()
            watchers.notify(JOB, ended=True)
            await asyncio.wait_for(waiting, DEADLINE_S)
        watchers.notify(JOB, ended=True)  # nobody watches any more

    asyncio.run(scenario())


def test_changes_are_told_after_the_pause() -> None:
    async def scenario() -> None:
        watchers = Watchers()
        with watchers.watch(JOB) as watch:
            watchers.notify(JOB, ended=False)
            await asyncio.wait_for(watch.next_change(interval_s=0.001), DEADLINE_S)
            watch.changed.clear()
            waiting = asyncio.create_task(watch.next_change(interval_s=0.0))
            await asyncio.sleep(0)
            assert not waiting.done()
            watchers.notify(JOB, ended=False)
            await asyncio.wait_for(waiting, DEADLINE_S)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("took_s", "interval_s"),
    [(0.0, WATCH_INTERVAL_S), (0.001, WATCH_INTERVAL_S), (0.1, 2.0), (3.0, WATCH_INTERVAL_MAX_S)],
)
def test_the_pause_grows_with_the_cost_of_a_message_up_to_a_bound(took_s: float, interval_s: float) -> None:
    assert watch_interval_s(took_s) == pytest.approx(interval_s)


@pytest.mark.parametrize(
    ("took_s", "interval_s"),
    [(0.0, FLEET_INTERVAL_S), (0.01, FLEET_INTERVAL_S), (0.25, 5.0), (3.0, FLEET_INTERVAL_MAX_S)],
)
def test_a_watcher_of_the_fleet_asks_less_often_if_answers_take_long(took_s: float, interval_s: float) -> None:
    assert fleet_interval_s(took_s) == pytest.approx(interval_s)
