"""What a job waits for, of the reasons that its master gives (`Client.explain`). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from windrow.common.quantities import counted
from windrow.sdk.job import Job, StepReason


def waits_of(job: Job, reasons: Sequence[StepReason]) -> list[StepReason]:
    """The reasons worth showing beside the progress: of steps of which nothing comes at the moment.

    A step that waits for others is left out, and so is one at work that has had results.
    """
    steps = {step.name: step for step in job.steps}
    return [
        reason
        for reason in reasons
        if reason.brief
        and reason.code != "WAITS_FOR_STEPS"
        and reason.step in steps
        and not steps[reason.step].has_ended
        and not (reason.code == "RUNNING" and steps[reason.step].mini_batches.ran)
    ]


class Wait(NamedTuple):
    """What steps wait for that wait for the same."""

    code: str
    steps: tuple[str, ...]
    brief: str
    """Of the first of them."""

    @property
    def line(self) -> str:
        """`score: init() for 12 s on 4 workers`, `189 steps: listing the input for 3 s`."""
        return f"{self.steps[0] if len(self.steps) == 1 else counted(len(self.steps), 'step')}: {self.brief}"


def grouped(waits: Iterable[StepReason]) -> list[Wait]:
    """Reasons by code, in their order."""
    groups: dict[str, list[StepReason]] = {}
    for reason in waits:
        groups.setdefault(reason.code, []).append(reason)
    return [Wait(code, tuple(one.step for one in group), group[0].brief) for code, group in groups.items()]


def waits_line(job: Job, reasons: Sequence[StepReason]) -> str:
    """All that a job waits for, in one line; steps are named if the job has several."""
    found = grouped(waits_of(job, reasons))
    if len(job.steps) == 1:
        return "; ".join(wait.brief for wait in found)
    return "; ".join(wait.line for wait in found)


def without_node(reasons: Sequence[StepReason]) -> str:
    """Why no node takes work of a job, and what to check; empty if one does."""
    return " ".join(dict.fromkeys(reason.message for reason in reasons if reason.waits_for_node))
