"""Progress as JSON lines on stdout, one event per line, for programs.

Events: `begin` {job, continued} (null: a job that is only followed), `progress` {job}, `waits` {steps: [{step, code,
message, brief}]}, `notice` {message}, `end` {job, outputs, exit_code}, `error`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from windrow.sdk.job import Job, StepReason
from windrow.sdk.node import Node
from windrow.sdk.waiting import waits_of


def emit(event: str, **values: Any) -> None:
    """Write one event."""
    print(json.dumps({"event": event, **values}), flush=True)


class JsonDisplay:
    """Writes every state that the master reports."""

    def __init__(self) -> None:
        self._job: Job | None = None
        self._codes: list[tuple[str, str]] = []

    def begin(self, job: Job, *, continued: bool | None) -> None:
        """Which run it is."""
        self._job = job
        emit("begin", job=job.to_dict(), continued=continued)

    def show(self, job: Job) -> None:
        """Write the whole state of the job."""
        self._job = job
        emit("progress", job=job.to_dict())

    def show_nodes(self, nodes: Sequence[Node]) -> None:
        """Not shown."""

    def show_reasons(self, reasons: Sequence[StepReason]) -> None:
        """Write what is waited for, when that changes."""
        waits = [] if self._job is None else waits_of(self._job, reasons)
        codes = [(reason.step, reason.code) for reason in waits]
        if codes != self._codes:
            self._codes = codes
            emit("waits", steps=[reason._asdict() for reason in waits])

    def notice(self, message: str) -> None:
        """Something to know."""
        emit("notice", message=message)

    def tick(self) -> None:
        """Do nothing: there is nothing to show between two states."""

    def end(self) -> None:
        """Do nothing: the output needs no cleaning up."""
