"""Progress as a live display on a terminal. rich is imported with the first progress: it takes 50 ms, which must not
delay the first `run()`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from windrow.cli.display.lines import first_line
from windrow.cli.messages import at_words, printable, say, visible
from windrow.cli.tables import shortened
from windrow.common.quantities import counted, duration, rate
from windrow.sdk.figures import Figures, age_s
from windrow.sdk.job import Job, Step, StepReason
from windrow.sdk.node import Node
from windrow.sdk.waiting import Lull, waiting_line

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live
    from rich.table import Table

REFRESH_S = 0.2
BAR_MIN, BAR_MAX = 10, 40
"""Columns of a bar: what the other columns leave."""
NAME_MAX = 24
"""Longer names of steps are shortened in the middle."""
NARROW = 100
"""In fewer columns than this, a step's line counts its items alone."""
STEPS_MIN = 4
LINES_BESIDE = 8
"""Lines of the terminal that are not for steps."""


class LiveDisplay:
    """Shows a bar of mini-batches for each step, and a line of figures. Redraws a few times a second on stderr."""

    def __init__(self) -> None:
        self._figures = Figures()
        self._live: Live | None = None
        self._job: Job | None = None
        self._nodes: Sequence[Node] = ()
        self._waits = ""
        self._began = time.monotonic()
        """When the job began."""
        self._lull = Lull(self._began)
        self._drawn_at = 0.0
        self._ended = False

    def begin(self, job: Job, *, continued: bool | None) -> None:
        """Which run it is."""
        say(first_line(job, continued))
        if continued is None:
            age = age_s(job, datetime.now(UTC))
            self._began -= age
            self._figures.begin(age, time.monotonic())

    def show(self, job: Job) -> None:
        """Keep the newest state; the next tick draws it."""
        now = time.monotonic()
        if self._lull.add(job, now):
            self._waits = ""
        self._job = job
        self._figures.add(job, now)
        if job.mini_batches.done:
            self._start()
        self.tick()

    def show_fleet(self, nodes: Sequence[Node], reasons: Sequence[StepReason]) -> None:
        """Keep the number of workers, and what the job waits for if it has brought no result for a while."""
        self._nodes = nodes
        if self._job is not None and self._lull.is_told(time.monotonic()):
            self._waits = waiting_line(self._job, reasons)
            if self._waits:
                self._start()
        self.tick()

    def notice(self, message: str) -> None:
        """Print a line above the display."""
        if self._live is not None:
            shown = at_words(printable(message, sys.stderr.encoding), sys.stderr)
            # rich counts colours as columns, and breaks long words.
            self._live.console.print(shown, markup=False, highlight=False, soft_wrap=True)
        else:
            say(message)

    def tick(self) -> None:
        """Draw, at most every REFRESH_S seconds."""
        now = time.monotonic()
        if self._live is None or self._job is None or now - self._drawn_at < REFRESH_S:
            return
        self._drawn_at = now
        self._live.update(self._view(self._job), refresh=True)

    def end(self) -> None:
        """Draw the last state, and leave the cursor below it."""
        self._ended = True
        if self._live is not None:
            if self._job is not None:
                self._live.update(self._view(self._job), refresh=True)
            self._live.stop()
            self._live = None

    def _start(self) -> None:
        if self._live is not None or self._job is None or self._job.state.ended or self._ended:
            return
        from rich.console import Console
        from rich.live import Live

        console = Console(file=sys.stderr)
        self._live = Live(
            console=console, auto_refresh=False, transient=False, redirect_stdout=False, redirect_stderr=False
        )
        self._live.start()

    def _view(self, job: Job) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        assert self._live is not None
        width, height = self._live.console.size
        narrow = width < NARROW
        shown, rest = steps_shown(job.steps, max(STEPS_MIN, height - LINES_BESIDE))
        figures = ", ".join(filter(None, (self._clock(job), self._pace(job), self._fleet())))
        lines = [Text(rest, style="dim")] if rest else []
        lines.append(Text(figures, no_wrap=True, overflow="ellipsis"))
        if troubles := self._troubles(job):
            lines.append(Text(troubles, style="yellow"))
        if self._waits and not job.state.ended:
            lines.append(Text(visible(f"Waiting: {self._waits}"), style="cyan"))
        return Group(self._table(shown, width, narrow=narrow), *lines)

    def _table(self, steps: Sequence[Step], width: int, *, narrow: bool) -> Table:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 1 if narrow else 2))
        counts = [_counts(step, narrow=narrow) for step in steps]
        words = max((len(text) for text in counts), default=0) + max((len(step.state) for step in steps), default=0)
        names = max((min(len(step.name), NAME_MAX) for step in steps), default=0)
        bar = min(BAR_MAX, max(BAR_MIN, width - words - names - 8))
        for step, told in zip(steps, counts, strict=True):
            batches = step.mini_batches
            colour = "red" if step.state == "failed" else "green" if step.state == "completed" else "cyan"
            total = batches.total if step.planned or batches.total else None
            table.add_row(
                Text(shortened(step.name, NAME_MAX), style="bold", no_wrap=True),
                ProgressBar(
                    total=total or 1,
                    completed=batches.done,
                    width=bar,
                    complete_style=colour,
                    finished_style=colour,
                ),
                Text(told, no_wrap=True),
                Text(step.state, style=colour),
            )
        return table

    def _clock(self, job: Job) -> str:
        elapsed = duration(time.monotonic() - self._began)
        left = self._figures.remaining_s(job)
        return f"{elapsed}, {duration(left)} to go" if left and left >= 1 else elapsed

    def _pace(self, job: Job) -> str:
        items, batches = self._figures.items_per_s(), self._figures.mini_batches_per_s()
        if items is None or batches is None:
            return ""
        return f"{rate(items, 'items')}, {rate(batches, 'mini-batches')}"

    def _fleet(self) -> str:
        workers = sum(node.workers or 0 for node in self._nodes)
        if not workers:
            return ""
        nodes = sum(1 for node in self._nodes if node.state in ("ready", "draining"))
        return counted(workers, "worker") + (f" on {counted(nodes, 'node')}" if nodes > 1 else "")

    def _troubles(self, job: Job) -> str:
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


def steps_shown(steps: Sequence[Step], most: int) -> tuple[list[Step], str]:
    """Return the steps that have a line of their own, at most `most`, in the job's order, and the others in words.

    Steps at work come first, then those that failed, then those that wait, in their order, and then those that are
    done, the last one first.
    """
    if len(steps) <= most:
        return list(steps), ""
    ranks = {"running": 0, "concatenating": 0, "failed": 1, "waiting": 2}
    places = range(len(steps))
    by_rank = sorted(places, key=lambda at: (rank := ranks.get(steps[at].state, 3), at if rank < 3 else -at))
    shown = set(by_rank[:most])
    left: dict[str, int] = {}
    for at in places:
        if at not in shown:
            left[steps[at].state] = left.get(steps[at].state, 0) + 1
    counts = ", ".join(f"{count:,} {state}" for state, count in left.items())
    return [steps[at] for at in sorted(shown)], f"… and {counted(sum(left.values()), 'more step')}: {counts}"


def _counts(step: Step, *, narrow: bool) -> str:
    if step.reused_from:
        return "" if narrow else "reused"
    if step.is_command:
        return "" if narrow else "command"
    more = "" if step.planned else "+"
    items, batches = step.items, step.mini_batches
    if narrow:
        return f"{items.done:,}/{items.total:,}{more}"
    return f"{items.done:,}/{items.total:,}{more} items, {batches.done:,}/{batches.total:,}{more} mini-batches"
