"""Wakes who waits for a job to change."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from windrow_master.core.ids import JobKey


class Watchers:
    """One event a watcher; set whenever a commit changed its job."""

    def __init__(self) -> None:
        self._events: defaultdict[JobKey, set[asyncio.Event]] = defaultdict(set)

    @contextmanager
    def watch(self, job_key: JobKey) -> Iterator[asyncio.Event]:
        """An event that is set at each change, for as long as the context lasts."""
        event = asyncio.Event()
        self._events[job_key].add(event)
        try:
            yield event
        finally:
            self._events[job_key].discard(event)
            if not self._events[job_key]:
                del self._events[job_key]

    def notify(self, job_key: JobKey) -> None:
        """The job changed, durably."""
        for event in self._events.get(job_key, ()):
            event.set()
