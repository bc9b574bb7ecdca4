"""Wakes the calls that wait for a job to change."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from windrow_master.core.ids import JobKey


@dataclass(eq=False, slots=True)
class Watch:
    """What one watcher of a job waits for."""

    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set at each change; cleared by the watcher."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the job has ended."""

    async def next_change(self, interval_s: float) -> None:
        """Wait for a change, then `interval_s` longer for more changes, but not past the end of the job."""
        await self.changed.wait()
        with suppress(TimeoutError):
            await asyncio.wait_for(self.ended.wait(), interval_s)


class Watchers:
    """All watches. The shell calls `notify` after every commit that changed a job."""

    def __init__(self) -> None:
        self._watches: defaultdict[JobKey, set[Watch]] = defaultdict(set)

    @contextmanager
    def watch(self, job_key: JobKey) -> Iterator[Watch]:
        """Watch a job for as long as the context lasts."""
        watch = Watch()
        self._watches[job_key].add(watch)
        try:
            yield watch
        finally:
            self._watches[job_key].discard(watch)
            if not self._watches[job_key]:
                del self._watches[job_key]

    def notify(self, job_key: JobKey, *, ended: bool) -> None:
        """Wake the watches of a job whose change is durable."""
        for watch in self._watches.get(job_key, ()):
            watch.changed.set()
            if ended:
                watch.ended.set()
