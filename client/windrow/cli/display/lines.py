"""What displays print as lines. Pure."""

from __future__ import annotations

from windrow.common.quantities import counted, duration, rate
from windrow.sdk.figures import Figures
from windrow.sdk.job import Job


def first_line(job: Job, continued: bool | None) -> str:
    """The line that says which run this is, and how much of it was done before. `continued`: None for a job that
    another process runs.
    """
    if continued is None:
        return f"Job {job.job_id} ({job.state.value})"
    if not continued:
        return f"Run {job.job_id}"
    done = ", ".join(_done(job)) or counted(0, "mini-batch")
    return f"Continuing run {job.job_id}: {done} done before"


def _done(job: Job) -> list[str]:
    batches, commands = job.parallel.mini_batches, job.commands
    return [counted(batches.done, "mini-batch")] * bool(batches.done) + [counted(commands.done, "command")] * bool(
        commands.done
    )


def progress_line(job: Job, figures: Figures) -> str:
    """One line: items, mini-batches, commands, rate, time to go, failures, retries."""
    work, parts = job.parallel, []
    items, batches = work.items, work.mini_batches
    if work.steps:
        more = "" if all(step.planned for step in work.steps) else "+"
        parts += [
            f"items {items.done:,}/{items.total:,}{more}",
            f"mini-batches {batches.done:,}/{batches.total:,}{more}",
        ]
    if batches.taken_over:
        parts[-1] += f" ({batches.taken_over:,} taken over)"
    if commands := sum(step.state != "skipped" for step in job.steps) - len(work.steps):
        parts.append(f"commands {job.commands.done:,}/{commands:,}")
    if (per_s := figures.items_per_s()) is not None:
        parts.append(rate(per_s, "items"))
    if (left := figures.remaining_s(job)) is not None and left >= 1:
        parts.append(f"{duration(left)} to go")
    if items.failed:
        parts.append(f"{items.failed:,} failed")
    if job.retries:
        parts.append(counted(job.retries, "retry"))
    return ", ".join(parts)
