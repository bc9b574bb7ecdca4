"""Progress as a live display on a terminal. rich is imported with the first progress: it takes 50 ms, which must not
delay the first `run()`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from windrow.cli.display.figures import Figures, first_line
from windrow.cli.messages import say
from windrow.common.quantities import counted, duration, rate
from windrow.sdk.job import Job, Step
from windrow.sdk.node import Node

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live
    from rich.table import Table

REFRESH_S = 0.2
BAR_WIDTH = 28
NARROW = 100
"""In fewer columns than this, each step has one short line, and the figures are below as text."""


class LiveDisplay:
    """Shows a bar of mini-batches for each step, and a line of figures. Redraws a few times a second on stderr."""

    def __init__(self) -> None:
        self._figures = Figures()
        self._live: Live | None = None
        self._job: Job | None = None
        self._nodes: Sequence[Node] = ()
        self._began = time.monotonic()
        self._drawn_at = 0.0
        self._ended = False

    def begin(self, job: Job, *, continued: bool | None) -> None:
        """Which run it is."""
        say(first_line(job, continued))

    def show(self, job: Job) -> None:
        """Keep the newest state; the next tick draws it."""
        self._job = job
        self._figures.add(job, time.monotonic())
        if self._live is None and job.mini_batches.done and not job.state.ended and not self._ended:
            self._start()
        self.tick()

    def show_nodes(self, nodes: Sequence[Node]) -> None:
        """Keep the number of workers."""
        self._nodes = nodes

    def notice(self, message: str) -> None:
        """Print a line above the display."""
        if self._live is not None:
            self._live.console.print(message, markup=False, highlight=False)
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

        narrow = self._live is not None and self._live.console.width < NARROW
        table = self._table(job, narrow=narrow)
        figures = [self._clock(job), self._pace(job), self._fleet()]
        if narrow:
            line = Text(", ".join(filter(None, figures)))
            troubles = self._troubles(job)
            return Group(table, line, Text(troubles, style="yellow")) if troubles else Group(table, line)
        table.add_row(Text(""), *map(Text, figures))
        if troubles := self._troubles(job):
            table.add_row(Text(""), Text(""), Text(troubles, style="yellow"), Text(""))
        return table

    def _table(self, job: Job, *, narrow: bool) -> Table:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 1 if narrow else 2))
        for step in job.steps:
            batches = step.mini_batches
            colour = "red" if step.state == "failed" else "green" if step.state == "completed" else "cyan"
            total = batches.total if step.planned or batches.total else None
            table.add_row(
                Text(step.name, style="bold", overflow="ellipsis", no_wrap=True),
                ProgressBar(
                    total=total or 1,
                    completed=batches.done,
                    width=BAR_WIDTH // 4 if narrow else BAR_WIDTH,
                    complete_style=colour,
                    finished_style=colour,
                ),
                Text(_counts(step, narrow=narrow), no_wrap=True),
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
