"""Progress as JSON lines on stdout, one event per line, for programs.

Events: `begin` {job, continued} (null: a job that is only followed), `progress` {job}, `notice` {message}, `end` {job,
outputs, exit_code}, `error`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from windrow.sdk.job import Job, StepReason
from windrow.sdk.node import Node


def emit(event: str, **values: Any) -> None:
    """Write one event."""
    print(json.dumps({"event": event, **values}), flush=True)


class JsonDisplay:
    """Writes every state that the master reports."""

    def begin(self, job: Job, *, continued: bool | None) -> None:
        """Which run it is."""
        emit("begin", job=job.to_dict(), continued=continued)

    def show(self, job: Job) -> None:
        """Write the whole state of the job."""
        emit("progress", job=job.to_dict())

    def show_fleet(self, nodes: Sequence[Node], reasons: Sequence[StepReason]) -> None:
        """Not shown."""

    def notice(self, message: str) -> None:
        """Something to know."""
        emit("notice", message=message)

    def tick(self) -> None:
        """Do nothing: there is nothing to show between two states."""

    def end(self) -> None:
        """Do nothing: the output needs no cleaning up."""
