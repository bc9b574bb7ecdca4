"""Progress as JSON lines on stdout, one event per line, for programs.

Events: `begin` {job, continued} (null: a job that is only followed), `progress` {job}, `waits` {steps: [{step, code,
message, brief}]}, `notice` {message}, `end` {job, outputs, exit_code}, `error`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from windrow.sdk.job import Job, StepReason
from windrow.sdk.node import Node
from windrow.sdk.waiting import Lull, active_reasons


def emit(event: str, **values: Any) -> None:
    """Write one event."""
    print(json.dumps({"event": event, **values}), flush=True)


class JsonDisplay:
    """Writes every state that the master reports, and why no result comes, whenever that changes."""

    def __init__(self) -> None:
        self._job: Job | None = None
        self._lull = Lull(time.monotonic())
        self._waits: list[tuple[str, str]] = []
        """Steps and codes as they were told last."""

    def begin(self, job: Job, *, continued: bool | None) -> None:
        """Which run it is."""
        emit("begin", job=job.to_dict(), continued=continued)

    def show(self, job: Job) -> None:
        """Write the whole state of the job."""
        self._lull.add(job, time.monotonic())
        self._job = job
        emit("progress", job=job.to_dict())

    def show_fleet(self, nodes: Sequence[Node], reasons: Sequence[StepReason]) -> None:
        """Write what steps wait for, if that has changed; nodes are not shown."""
        if self._job is None:
            return
        is_late = self._lull.is_told(time.monotonic())
        waits = [reason for reason in active_reasons(self._job, reasons) if is_late]
        told = [(reason.step, reason.code) for reason in waits]
        if told != self._waits:
            self._waits = told
            emit("waits", steps=[reason._asdict() for reason in waits])

    def notice(self, message: str) -> None:
        """Something to know."""
        emit("notice", message=message)

    def tick(self) -> None:
        """Do nothing: there is nothing to show between two states."""

    def end(self) -> None:
        """Do nothing: the output needs no cleaning up."""
