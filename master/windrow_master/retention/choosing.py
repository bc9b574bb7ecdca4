"""Which jobs are old enough to be deleted."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from windrow_master.core.ids import JobKey
from windrow_master.retention.job_uses import JobUse


class Rule(NamedTuple):
    """A job is chosen if it ended longer than `older_than_s` ago, and is not among the `keep_last` that ended last.
    What is None chooses all. A rule of two Nones is nobody's. `project`: of its jobs alone; "" for those of all."""

    older_than_s: float | None
    keep_last: int | None
    project: str = ""

    @property
    def chooses(self) -> bool:
        """Whether it says anything."""
        return self.older_than_s is not None or self.keep_last is not None


def chosen(jobs: Collection[JobUse], rule: Rule, now: float) -> Iterator[JobUse]:
    """The ended jobs that a rule chooses, the newest first: a job before those whose results it took over.

    A clock that was set back does not make a job older than one that ended before it.
    """
    ended = sorted((job for job in jobs if job.has_ended), key=lambda job: (job.ended_nth, job.job_key))
    end_times: dict[JobKey, float] = {}
    latest = 0.0
    for job in ended:
        end_times[job.job_key] = max(job.end_time, latest)
        if latest < job.end_time <= now:
            latest = job.end_time
    of_project = [job for job in reversed(ended) if rule.project in ("", job.project)]
    old = of_project[rule.keep_last or 0 :]
    if rule.older_than_s is not None:
        old = [job for job in old if end_times[job.job_key] < now - rule.older_than_s]
    return iter(sorted(old, key=lambda job: job.job_key, reverse=True))
