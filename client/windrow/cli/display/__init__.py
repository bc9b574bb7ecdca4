"""The display of a run: live on a terminal, plain lines elsewhere, JSON lines for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from windrow.sdk.job import Job, StepReason
from windrow.sdk.node import Node


class Display(Protocol):
    """Shows a run. All calls come from one thread."""

    def begin(self, job: Job, *, continued: bool | None) -> None:
        """Begin the display. `continued`: whether the run was started before; None for a job of another process."""

    def show(self, job: Job) -> None:
        """Take in the current state of the job."""

    def show_nodes(self, nodes: Sequence[Node]) -> None:
        """Take in the current state of the nodes."""

    def show_reasons(self, reasons: Sequence[StepReason]) -> None:
        """Take in why each step is in its state, as of now."""

    def notice(self, message: str) -> None:
        """Show a message beside the progress."""

    def tick(self) -> None:
        """Called a few times a second, as time passes."""

    def end(self) -> None:
        """Leave the screen in order. May be called again."""
