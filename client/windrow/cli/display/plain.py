"""Progress as plain lines on stderr, for logs, pipes and simple terminals."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime

from windrow.cli.display.lines import first_line, progress_line
from windrow.cli.messages import say
from windrow.common.quantities import first_few
from windrow.sdk.figures import Figures, age_s
from windrow.sdk.job import Job, StepReason
from windrow.sdk.node import Node
from windrow.sdk.waiting import Lull, waiting_line

INTERVAL_S = 5.0
WAITS_MAX_S = 60.0
"""What a job waits for is told again after INTERVAL_S, and then after twice the time, up to this."""
STEPS_NAMED = 5
"""A line names at most this many active steps, and counts the others."""


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
        self._lull = Lull(time.monotonic())
        self._wait_s = 0.0
        """How long the lull is when it says next what the job waits for."""

    def begin(self, job: Job, *, continued: bool | None) -> None:
        """Which run it is."""
        say(first_line(job, continued))
        if continued is None:
            self._figures.begin(age_s(job, datetime.now(UTC)), time.monotonic())

    def show(self, job: Job) -> None:
        """Print a line, if it is time for one."""
        now = time.monotonic()
        self._figures.add(job, now)
        if self._lull.add(job, now):
            self._wait_s = 0.0
        self._job = job
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

    def show_fleet(self, nodes: Sequence[Node], reasons: Sequence[StepReason]) -> None:
        """Print what the job waits for, if it has brought no result for a while."""
        now = time.monotonic()
        age_s = self._lull.age_s(now)
        if self._quiet or self._job is None or not self._lull.is_told(now) or age_s < self._wait_s:
            return
        # A notice says that no node takes work. Only if that lasts, it is said here, too.
        told = [reason for reason in reasons if self._wait_s or not reason.waits_for_node]
        line = waiting_line(self._job, told)
        if line or len(told) < len(reasons):
            self._wait_s = min(age_s + max(INTERVAL_S, self._wait_s), self._wait_s + WAITS_MAX_S)
        if line:
            say(f"Waiting: {line}")

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
    return first_few(active, STEPS_NAMED, "step")
