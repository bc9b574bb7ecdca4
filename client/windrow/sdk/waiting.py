"""What a job waits for, of the reasons that its master gives (`Client.explain`). Pure."""

from __future__ import annotations

from collections.abc import Sequence

from windrow.common.quantities import counted
from windrow.sdk.job import Job, StepReason

NAMED_MAX = 3


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


def waits_line(job: Job, reasons: Sequence[StepReason]) -> str:
    """All that a job waits for, in one line; steps are named if the job has several."""
    waits = waits_of(job, reasons)
    several = len(job.steps) > 1
    shown = [f"{reason.step}: {reason.brief}" if several else reason.brief for reason in waits[:NAMED_MAX]]
    more = [counted(len(waits) - NAMED_MAX, "more step")] if len(waits) > NAMED_MAX else []
    return "; ".join(shown + more)


def without_node(reasons: Sequence[StepReason]) -> str:
    """Why no node takes work of a job, and what to check; empty if one does."""
    return " ".join(dict.fromkeys(reason.message for reason in reasons if reason.waits_for_node))
