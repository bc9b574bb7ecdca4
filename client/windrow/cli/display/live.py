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
from windrow.cli.display.live_frame import Lines, live_frame, troubles_of
from windrow.cli.messages import say
from windrow.common.quantities import counted
from windrow.sdk.figures import Figures
from windrow.sdk.job import Job, StepReason
from windrow.sdk.node import Node
from windrow.sdk.waiting import waits_line, waits_of

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

REFRESH_S = 0.2
START_S = 1.5
"""After this time the display is there, whatever is known."""


class LiveDisplay:
    """Shows a bar of mini-batches for each step, and a line of figures. Redraws a few times a second on stderr."""

    def __init__(self) -> None:
        self._figures = Figures()
        self._live: Live | None = None
        self._job: Job | None = None
        self._nodes: Sequence[Node] = ()
        self._reasons: Sequence[StepReason] = ()
        self._begun_s = self._drawn_at = 0.0
        self._ended = False

    def begin(self, job: Job, *, continued: bool | None) -> None:
        """Which run it is."""
        self._job = job
        self._begun_s = time.monotonic()
        self._figures.begin(job, time.monotonic(), datetime.now(UTC) if continued is None else None)
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

    def show_reasons(self, reasons: Sequence[StepReason]) -> None:
        """Keep what is waited for; begin to draw if that is all there is to show."""
        self._reasons = reasons
        job = self._job
        if job is not None:
            self._figures.add(job, time.monotonic())
        if self._live is None and job is not None and not (job.state.ended or self._ended) and waits_of(job, reasons):
            self._start()

    def notice(self, message: str) -> None:
        """Print a line above the display."""
        if self._live is not None:
            self._live.console.print(message, markup=False, highlight=False)
        else:
            say(message)

    def tick(self) -> None:
        """Draw, at most every REFRESH_S seconds."""
        now = time.monotonic()
        if self._live is None and self._job is not None and now - self._begun_s >= START_S and not self._ended:
            # The master is too busy to say more.
            self._start()
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
        assert self._live is not None
        figures = filter(None, (self._figures.clock_line(job, time.monotonic()), self._fleet()))
        waits = "" if job.state.ended else waits_line(job, self._reasons)
        lines = Lines(", ".join(figures), troubles_of(job), waits)
        return live_frame(job, lines, *self._live.console.size)

    def _fleet(self) -> str:
        workers = sum(node.workers or 0 for node in self._nodes)
        if not workers:
            return ""
        nodes = sum(1 for node in self._nodes if node.state in ("ready", "draining"))
        return counted(workers, "worker") + (f" on {counted(nodes, 'node')}" if nodes > 1 else "")
