"""Which jobs are old enough to be deleted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

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


def chosen(jobs: Iterable[JobUse], rule: Rule, now: float) -> Iterator[JobUse]:
    """The ended jobs that a rule chooses, the newest first: a job before those whose results it took over."""
    of_project = (job for job in jobs if job.has_ended and rule.project in ("", job.project))
    ended = sorted(of_project, key=lambda job: (job.end_time, job.job_key), reverse=True)
    old = ended[rule.keep_last or 0 :]
    if rule.older_than_s is not None:
        old = [job for job in old if job.end_time < now - rule.older_than_s]
    return iter(sorted(old, key=lambda job: job.job_key, reverse=True))
