"""Rates and estimates of a job, for displays. Pure: time is an argument."""

from __future__ import annotations

from collections import deque
from datetime import datetime

from windrow.common.quantities import duration, rate
from windrow.sdk.job import Job

WINDOW_S = 20.0
"""Rates are of this last span: short enough to follow changes, long enough to be calm."""


class Figures:
    """The figures of one job: since this process watches it, and of a job that was at work before, since it began."""

    def __init__(self) -> None:
        self._moments: deque[tuple[float, int, int]] = deque()
        self._begun = 0.0
        """When the job was submitted, or when the watching began (monotonic)."""

    def begin(self, job: Job, now: float, wall: datetime | None) -> None:
        """Begin at `now` (monotonic seconds). `wall`: the same moment, for a job that is at work already: its time
        counts from its submission, and its first rate is that of all its work so far. None: count from now.
        """
        self._begun = now
        if wall is None:
            return
        if job.create_time is not None:
            self._begun = now - max(0.0, (wall - job.create_time).total_seconds())
        starts = [step.start_time for step in job.parallel.steps if step.start_time is not None]
        if starts:
            self._moments.append((now - max(0.0, (wall - min(starts)).total_seconds()), 0, 0))

    def add(self, job: Job, now: float) -> None:
        """Take in the state of the job at `now` (monotonic seconds)."""
        work = job.parallel
        if len(self._moments) == 1 and self._moments[0][1:] == (work.items.ran, work.mini_batches.ran):
            # Nothing has come yet: what is waited for (environments, init()) does not count in the rate.
            self._moments.clear()
        self._moments.append((now, work.items.ran, work.mini_batches.ran))
        while len(self._moments) > 2 and now - self._moments[1][0] >= WINDOW_S:
            self._moments.popleft()

    def elapsed_s(self, now: float) -> float:
        """Seconds since the job began."""
        return now - self._begun

    def clock_line(self, job: Job, now: float) -> str:
        """Elapsed time, and what `pace_line` says: `12 s, 30 s to go, 4.2 items/s`."""
        return ", ".join(filter(None, (duration(self.elapsed_s(now)), self.pace_line(job))))

    def pace_line(self, job: Job, *, briefly: bool = False) -> str:
        """Time to go and rates, as far as they are known; empty if none is. `briefly`: one rate."""
        parts = []
        left = self.remaining_s(job)
        if left is not None and left >= 1:
            parts.append(f"{duration(left)} to go")
        if (items := self.items_per_s()) is not None:
            parts.append(rate(items, "items"))
        if (batches := self.mini_batches_per_s()) is not None and not (briefly and items is not None):
            parts.append(rate(batches, "mini-batches"))
        return ", ".join(parts)

    def items_per_s(self) -> float | None:
        """Items run per second; None while unknown."""
        return self._rate(1)

    def mini_batches_per_s(self) -> float | None:
        """Mini-batches run per second; None while unknown."""
        return self._rate(2)

    def remaining_s(self, job: Job) -> float | None:
        """Seconds until all planned mini-batches have an outcome; None while the totals are not known or nothing
        advances.
        """
        rate, work = self.mini_batches_per_s(), job.parallel
        if not rate or not all(step.planned or step.has_ended for step in work.steps):
            return None
        return (work.mini_batches.total - work.mini_batches.done) / rate

    def _rate(self, index: int) -> float | None:
        if len(self._moments) < 2:
            return None
        first, last = self._moments[0], self._moments[-1]
        elapsed, count = last[0] - first[0], last[index] - first[index]
        return count / elapsed if elapsed > 0 and count > 0 else None
