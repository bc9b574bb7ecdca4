"""Who watches a job hears of changes at a pace, and of its end at once."""

from __future__ import annotations

import asyncio

from windrow_master.core.ids import JobKey
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
