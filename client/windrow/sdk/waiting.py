"""What a job waits for, in one line: from its beginning to its first result, and whenever no result comes for a while.

Its words are those of the master (`Client.explain`). Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from windrow.common.quantities import counted
from windrow.sdk.job import Job, StepReason

FIRST_LULL_S = 0.4
LULL_S = 5.0
GROUPS_NAMED = 3


class Lull:
    """How long a job has brought no result. Times are seconds of one clock."""

    def __init__(self, now_s: float) -> None:
        self._job: Job | None = None
        self._since_s = now_s

    def add(self, job: Job, now_s: float) -> bool:
        """Take in the newest state. Return whether mini-batches have ended since the one before."""
        has_ended = self._job is None or self._job.mini_batches.done != job.mini_batches.done
        if has_ended:
            self._since_s = now_s
        self._job = job
        return has_ended

    def age_s(self, now_s: float) -> float:
        """How long ago a mini-batch has ended."""
        return now_s - self._since_s

    def is_told(self, now_s: float) -> bool:
        """Whether it has lasted so long that people want to know what the job waits for: at once until its first
        result, and later only if mini-batches take long.
        """
        if self._job is None:
            return False
        return self.age_s(now_s) >= (LULL_S if self._job.mini_batches.ran else FIRST_LULL_S)


def active_reasons(job: Job, reasons: Iterable[StepReason]) -> list[StepReason]:
    """Those of steps at work: not of steps that have ended, or wait for others."""
    active = {step.name for step in job.steps if step.state in ("running", "concatenating")}
    return [reason for reason in reasons if reason.step in active and reason.brief]


def waiting_line(job: Job, reasons: Iterable[StepReason]) -> str:
    """Return what the steps at work wait for, such as `score: init() for 12 s on 4 workers`; steps that wait for the
    same are counted, as in `189 steps: listing the input for 3 s`. Empty if nothing is known.
    """
    groups: dict[str, list[StepReason]] = {}
    for reason in active_reasons(job, reasons):
        groups.setdefault(reason.code, []).append(reason)
    if len(job.steps) == 1:
        return "; ".join(group[0].brief for group in groups.values())
    told = [_told(group) for group in groups.values()]
    left = sum(len(group) for group in list(groups.values())[GROUPS_NAMED:])
    return "; ".join(told[:GROUPS_NAMED] + ([counted(left, "more step")] if left else []))


def _told(group: Sequence[StepReason]) -> str:
    """What steps wait for that wait for the same; the words are those of the first."""
    who = group[0].step if len(group) == 1 else counted(len(group), "step")
    return f"{who}: {group[0].brief}"
