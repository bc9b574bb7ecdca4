"""What the live display shows at one moment: bars of steps, figures, what is waited for. Pure.

Of a pipeline of many steps it shows those at work, and numbers of the others: a frame that is taller than the terminal
cannot be drawn anew in its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from windrow.common.quantities import counted
from windrow.sdk.job import Job, Step

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

BAR_MAX, BAR_MIN = 40, 12
"""Width of a bar, in columns."""
NAME_MAX = 32
STEPS_MAX = 12
LINES_OF_THE_REST = 7
"""Of the terminal, for figures, failures, what is waited for, and a notice above."""
GAP = 2
_AT_WORK = ("running", "concatenating")


class Lines(NamedTuple):
    """The lines below the bars; empty ones are left out."""

    figures: str
    troubles: str
    waits: str


class _Row(NamedTuple):
    name: str
    done: int
    total: int | None
    counts: str
    brief_counts: str
    state: str


def live_frame(job: Job, lines: Lines, width: int, height: int) -> RenderableType:
    """The frame for a terminal of this many columns and lines."""
    from rich.console import Group
    from rich.text import Text

    told = ((lines.figures, ""), (lines.waits, "cyan"), (lines.troubles, "yellow"))
    below = [Text(text, style=style, overflow="ellipsis", no_wrap=text is lines.waits) for text, style in told if text]
    return Group(_table(_rows(job, height - LINES_OF_THE_REST), width), *below)


def chosen_steps(steps: Sequence[Step], room: int) -> list[Step]:
    """All steps if there is room for them, else those with leases, then others at work, then those that failed; in
    their order.
    """
    if len(steps) <= room:
        return list(steps)
    order = sorted(range(len(steps)), key=lambda index: (_rank(steps[index]), index))
    worth = [index for index in order if _rank(steps[index]) < 3]
    return [steps[index] for index in sorted(worth[:room])]


def _rank(step: Step) -> int:
    if step.state in _AT_WORK:
        return 0 if step.mini_batches.leased else 1
    return 2 if step.state == "failed" else 3


def sums_of(steps: Sequence[Step]) -> str:
    """How many steps are in each state, `3 running, 200 completed, 437 waiting`."""
    counts: dict[str, int] = {}
    for step in steps:
        counts[step.shown_state] = counts.get(step.shown_state, 0) + 1
    return ", ".join(f"{count:,} {state}" for state, count in counts.items())


def _rows(job: Job, room: int) -> list[_Row]:
    room = max(1, min(STEPS_MAX, room))
    if len(job.steps) <= room:
        return [_row(step) for step in job.steps]
    shown = chosen_steps(job.steps, room - 1)
    ended = sum(step.has_ended for step in job.steps)
    rows = [_row(step) for step in shown]
    counts = sums_of([step for step in job.steps if step not in shown])
    more = f"and {len(job.steps) - len(shown):,} more" if shown else "all steps"
    rows.append(_Row(more, ended, len(job.steps), counts, f"{ended:,}/{len(job.steps):,}", job.state.value))
    return rows


def _row(step: Step) -> _Row:
    batches, items = step.mini_batches, step.items
    more = "" if step.planned else "+"
    if step.reused_from or step.is_command:
        counts = "reused" if step.reused_from else "command"
        brief = ""
    else:
        brief = f"{items.done:,}/{items.total:,}{more}"
        counts = f"{brief} items, {batches.done:,}/{batches.total:,}{more} mini-batches"
    total = batches.total if step.planned or batches.total else None
    return _Row(step.name, batches.done, total, counts, brief, step.state)


def _table(rows: Sequence[_Row], width: int) -> Table:
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    names = min(NAME_MAX, width // 4, max(len(row.name) for row in rows))
    left = width - names - 3 * GAP - max(len(row.state) for row in rows)
    in_full = left - max(len(row.counts) for row in rows) >= BAR_MIN
    bar = left - max(len(row.counts if in_full else row.brief_counts) for row in rows)
    table = Table.grid(padding=(0, GAP))
    table.add_column(width=names, no_wrap=True, overflow="ellipsis")
    table.add_column()
    table.add_column(no_wrap=True, overflow="ellipsis")
    table.add_column(no_wrap=True, overflow="ellipsis")
    for row in rows:
        colour = "red" if row.state == "failed" else "green" if row.state == "completed" else "cyan"
        table.add_row(
            Text(row.name, style="bold"),
            ProgressBar(
                total=row.total or 1,
                completed=row.done,
                width=max(1, min(BAR_MAX, bar)),
                complete_style=colour,
                finished_style=colour,
            ),
            row.counts if in_full else row.brief_counts,
            Text(row.state, style=colour),
        )
    return table


def troubles_of(job: Job) -> str:
    """Failed items, retries, and failed attempts by cause; empty if there are none."""
    parts = []
    if job.items.failed:
        parts.append(f"{counted(job.items.failed, 'item')} failed")
    if job.retries:
        parts.append(counted(job.retries, "retry"))
    causes: dict[str, int] = {}
    for step in job.steps:
        for cause, count in step.failed_attempts.items():
            causes[cause] = causes.get(cause, 0) + count
    parts += [f"{cause} {count:,}" for cause, count in sorted(causes.items(), key=lambda entry: -entry[1])]
    return ", ".join(parts)
