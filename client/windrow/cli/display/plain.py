"""Progress as plain lines on stderr, for logs, pipes and simple terminals."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from windrow.cli.display.lines import first_line, progress_line
from windrow.cli.messages import say
from windrow.common.quantities import counted
from windrow.sdk.figures import Figures
from windrow.sdk.job import Job, StepReason
from windrow.sdk.node import Node
from windrow.sdk.waiting import grouped, waits_of

INTERVAL_S = 5.0
PAUSE_MAX_S = 60.0
"""What is waited for is said again after INTERVAL_S, then after twice as long each time, up to this."""
STEPS_NAMED = 5
"""A line names at most this many active steps, and counts the others."""


class _Told(NamedTuple):
    """When what is waited for is said again (monotonic), and the pause until then."""

    again: float
    pause: float


class PlainDisplay:
    """Prints a line at the beginning, at each change of state, and otherwise every INTERVAL_S. With `quiet`, it prints
    no progress.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._figures = Figures()
        self._shown_at = 0.0
        self._shown = ""
        self._states: tuple[str, ...] = ()
        self._job: Job | None = None
        self._told: dict[tuple[str, str], _Told] = {}

    def begin(self, job: Job, *, continued: bool | None) -> None:
        """Which run it is."""
        self._job = job
        self._figures.begin(job, time.monotonic(), datetime.now(UTC) if continued is None else None)
        say(first_line(job, continued))

    def show(self, job: Job) -> None:
        """Print a line, if it is time for one."""
        self._job = job
        now = time.monotonic()
        self._figures.add(job, now)
        states = tuple(step.state for step in job.steps)
        due = now - self._shown_at >= INTERVAL_S
        if self._quiet or job.state.ended or not (due or states != self._states):
            return
        self._states = states
        line = progress_line(job, self._figures)
        if not job.mini_batches.done or line == self._shown:
            return
        self._shown, self._shown_at = line, now
        say(f"{line} ({_active_steps(job) or job.state.value})")

    def show_nodes(self, nodes: Sequence[Node]) -> None:
        """Not shown."""

    def show_reasons(self, reasons: Sequence[StepReason]) -> None:
        """Say what is waited for: when that changes, and otherwise ever more rarely."""
        if self._quiet or self._job is None or self._job.state.ended:
            return
        now = time.monotonic()
        self._figures.add(self._job, now)
        few = len(self._job.steps) <= STEPS_NAMED
        # In a pipeline of hundreds, steps begin and end all the time: only what they wait for is news.
        waits = {(wait.code, wait.steps[0] if few else ""): wait.line for wait in grouped(waits_of(self._job, reasons))}
        for key in self._told.keys() - waits.keys():
            del self._told[key]
        for key, line in waits.items():
            told = self._told.get(key)
            if told is not None and now < told.again:
                continue
            pause = INTERVAL_S if told is None else min(2 * told.pause, PAUSE_MAX_S)
            self._told[key] = _Told(now + pause, pause)
            say(line)

    def notice(self, message: str) -> None:
        """Print the message on a line of its own."""
        say(message)

    def tick(self) -> None:
        """Do nothing: there is nothing to show between two states."""

    def end(self) -> None:
        """Do nothing: the output needs no cleaning up."""


def _active_steps(job: Job) -> str:
    """The steps at work with their states, `a running, b concatenating, 200 more steps`; empty if there are none."""
    active = [f"{step.name} {step.state}" for step in job.steps if step.state in ("running", "concatenating")]
    left = len(active) - STEPS_NAMED
    return ", ".join(active[:STEPS_NAMED] + ([counted(left, "more step")] if left > 0 else []))
