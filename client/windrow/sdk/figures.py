"""Rates and estimates of a job, for displays. Pure: time is an argument."""

from __future__ import annotations

from collections import deque
from datetime import datetime

from windrow.common.quantities import duration, rate
from windrow.sdk.job import Job

WINDOW_S = 20.0
"""Rates are of this last span: short enough to follow changes, long enough to be calm."""


class Figures:
    """The figures of one run."""

    def __init__(self) -> None:
        self._moments: deque[tuple[float, int, int]] = deque()

    def begin(self, age_s: float, now: float) -> None:
        """Begin with a job that has been running for `age_s` seconds: until there is a span to look at, rates are those
        of its whole time.
        """
        self._moments.append((now - age_s, 0, 0))

    def add(self, job: Job, now: float) -> None:
        """Take in the state of the run at `now` (monotonic seconds)."""
        work = job.parallel
        self._moments.append((now, work.items.ran, work.mini_batches.ran))
        while len(self._moments) > 2 and now - self._moments[1][0] >= WINDOW_S:
            self._moments.popleft()

    def items_per_s(self) -> float | None:
        """Items run per second; None while unknown."""
        return self._rate(1)

    def mini_batches_per_s(self) -> float | None:
        """Mini-batches run per second; None while unknown."""
        return self._rate(2)

    def remaining_s(self, job: Job) -> float | None:
        """Seconds until all planned mini-batches have an outcome, by the master's forecast; where it makes none, since
        it runs this job alone, by the rate. None while the totals are not known or nothing advances.
        """
        if job.forecast is not None:
            return job.forecast.end_s
        rate, work = self.mini_batches_per_s(), job.parallel
        if not rate or not all(
            step.planned or step.state in ("completed", "failed", "cancelled", "skipped") for step in work.steps
        ):
            return None
        return (work.mini_batches.total - work.mini_batches.done) / rate

    def pace(self, job: Job) -> str:
        """Time to go, and the rate of items, as far as they are known: `30 s to go, 4.2 items/s`; empty if none is."""
        left, items = self.remaining_s(job), self.items_per_s()
        known = [f"{duration(left)} to go"] if left is not None and left >= 1 else []
        return ", ".join(known + ([rate(items, "items")] if items is not None else []))

    def _rate(self, index: int) -> float | None:
        if len(self._moments) < 2:
            return None
        first, last = self._moments[0], self._moments[-1]
        elapsed, count = last[0] - first[0], last[index] - first[index]
        return count / elapsed if elapsed > 0 and count > 0 else None


def age_s(job: Job, wall_now: datetime) -> float:
    """How long a job has been running, in seconds: since its first step began; 0 if none has. That of a job that was
    retried is not known, because there may be days between its end and its retry.
    """
    begun = [step.start_time for step in job.steps if step.start_time is not None]
    if not begun or job.generation > 1:
        return 0.0
    return max(0.0, (wall_now - min(begun)).total_seconds())
