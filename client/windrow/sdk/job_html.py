"""A job as notebooks show it: HTML without scripts and colours of its own, so that it fits light and dark pages."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from html import escape
from typing import NamedTuple, Protocol

from windrow.common.failure_kinds import FailedStep, cause_line, within
from windrow.common.quantities import counted, duration

KINDS_SHOWN = 3
WARNINGS_SHOWN = 3
MESSAGE_CHARACTERS_MAX = 300
_SIGNS = {"completed": "✓", "completed_with_failures": "!", "failed": "✗", "cancelled": "✗", "paused": "‖"}
_STRIPES = "repeating-linear-gradient(135deg,currentColor 0 2px,transparent 2px 5px)"


class ShownState(Protocol):
    """The state of a job."""

    @property
    def value(self) -> str: ...
    @property
    def label(self) -> str: ...


class ShownItems(Protocol):
    """Numbers of items."""

    @property
    def total(self) -> int: ...
    @property
    def ok(self) -> int: ...
    @property
    def failed(self) -> int: ...


class ShownMiniBatches(Protocol):
    """Numbers of mini-batches."""

    @property
    def total(self) -> int: ...
    @property
    def succeeded(self) -> int: ...
    @property
    def failed(self) -> int: ...
    @property
    def done(self) -> int: ...


class ShownStep(FailedStep, Protocol):
    """A step of a job."""

    @property
    def rows(self) -> int: ...


class ShownJob(Protocol):
    """What is shown of a job; `windrow.Job` has this shape, and shows itself by this module."""

    @property
    def job_id(self) -> str: ...
    @property
    def display_name(self) -> str: ...
    @property
    def state(self) -> ShownState: ...
    @property
    def message(self) -> str: ...
    @property
    def create_time(self) -> datetime | None: ...
    @property
    def end_time(self) -> datetime | None: ...
    @property
    def warnings(self) -> Sequence[str]: ...
    @property
    def notes(self) -> Sequence[str]: ...
    @property
    def steps(self) -> Sequence[ShownStep]: ...
    @property
    def items(self) -> ShownItems: ...
    @property
    def mini_batches(self) -> ShownMiniBatches: ...
    @property
    def parallel(self) -> ShownJob: ...


class Progress(NamedTuple):
    """How far a job is: numbers of items, or of mini-batches where no items are counted."""

    unit: str
    total: int
    ok: int
    failed: int

    @property
    def words(self) -> str:
        """Such as `8 of 10 items ok, 2 failed`."""
        if not self.total:
            return "nothing is counted yet"
        failed = f", {self.failed:,} failed" if self.failed else ""
        return f"{self.ok:,} of {counted(self.total, self.unit)} ok{failed}"


def progress_of(job: ShownJob) -> Progress:
    """How far a job is. Steps that are not planned yet are not counted, so the total may grow."""
    items, batches = job.items, job.mini_batches
    if items.total:
        return Progress("item", items.total, items.ok, items.failed)
    unit = "mini-batch" if job.parallel.steps else "command"
    return Progress(unit, batches.total, batches.succeeded, batches.failed)


def job_html(job: ShownJob, options: str = "", now: str = "", label: str = "") -> str:
    """The state of a job, a bar, counts, what failed, warnings, and the command that shows the report.

    `options`: what commands about the job need, such as ` --state folder`. `now`: what happens at the moment.
    `label`: shown in place of the job's state, such as `Interrupted`.
    """
    progress = progress_of(job)
    lines = [
        f"<div><b>{escape(job.display_name or job.job_id)}</b> "
        f"{'‖' if label else _SIGNS.get(job.state.value, '…')} {escape(label or job.state.label)}</div>",
        _bar(progress),
        f"<div>{escape(_counts(job, progress))}</div>",
    ]
    if now:
        lines.append(f"<div>{escape(now)}</div>")
    if job.message:
        lines.append(f"<div>{escape(job.message)}</div>")
    lines += _failures(job) + _warnings(job) + _notes(job)
    report = f"windrow job report {job.job_id}{options} --open"
    lines.append(f"<div style='opacity:.75'>Report: <code>{escape(report)}</code></div>")
    return f"<div class='windrow-job' style='color:inherit;line-height:1.5'>{''.join(lines)}</div>"


def _bar(progress: Progress) -> str:
    ok, failed = (100 * part / max(1, progress.total) for part in (progress.ok, progress.failed))
    return (
        f"<div role='img' aria-label='{escape(progress.words)}' style='display:flex;max-width:32em;height:8px;"
        "margin:4px 0;border:1px solid currentColor;border-radius:3px;overflow:hidden'>"
        f"<div style='width:{ok:.2f}%;background:currentColor'></div>"
        f"<div style='width:{failed:.2f}%;background:{_STRIPES}'></div></div>"
    )


def _counts(job: ShownJob, progress: Progress) -> str:
    parts = [progress.words]
    batches = job.parallel.mini_batches
    if progress.unit == "item" and batches.total:
        parts.append(f"{batches.done:,} of {counted(batches.total, 'mini-batch')} done")
    if rows := sum(step.rows for step in job.steps):
        parts.append(counted(rows, "row"))
    if job.create_time is not None and job.end_time is not None:
        parts.append(duration(max(0.0, (job.end_time - job.create_time).total_seconds())))
    return " · ".join(parts)


def _failures(job: ShownJob) -> list[str]:
    kinds = [(step, kind) for step in job.steps for kind in step.failure_kinds]
    # Kinds come in order already; sorting is stable.
    kinds.sort(key=lambda pair: not pair[1].is_permanent)
    shown = []
    for step, kind in kinds[:KINDS_SHOWN]:
        told = f": {within(kind.message, MESSAGE_CHARACTERS_MAX)}" if kind.is_permanent and kind.message else ""
        shown.append(f"<li>{escape(cause_line(step, kind) + told)}</li>")
    if len(kinds) > KINDS_SHOWN:
        shown.append(f"<li>{escape(counted(len(kinds) - KINDS_SHOWN, 'more kind'))} of failures</li>")
    return _list(shown)


def _warnings(job: ShownJob) -> list[str]:
    shown = [f"<li>Warning: {escape(text[:MESSAGE_CHARACTERS_MAX])}</li>" for text in job.warnings[:WARNINGS_SHOWN]]
    if len(job.warnings) > WARNINGS_SHOWN:
        shown.append(f"<li>{escape(counted(len(job.warnings) - WARNINGS_SHOWN, 'more warning'))}</li>")
    return _list(shown)


def _notes(job: ShownJob) -> list[str]:
    return _list([f"<li>{escape(text[:MESSAGE_CHARACTERS_MAX])}</li>" for text in job.notes[:WARNINGS_SHOWN]])


def _list(entries: list[str]) -> list[str]:
    return [f"<ul style='margin:0'>{''.join(entries)}</ul>"] if entries else []
