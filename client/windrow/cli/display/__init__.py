"""The display of a run: live on a terminal, plain lines elsewhere, JSON lines for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from windrow.sdk.job import Job
from windrow.sdk.node import Node


class Display(Protocol):
    """What shows a run. Calls come from one thread."""

    def begin(self, job: Job, *, continued: bool | None) -> None:
        """The run was submitted or is continued; None: a job of another process is followed."""

    def show(self, job: Job) -> None:
        """The run at this moment."""

    def show_nodes(self, nodes: Sequence[Node]) -> None:
        """The fleet at this moment."""

    def notice(self, message: str) -> None:
        """Something to know beside the progress."""

    def tick(self) -> None:
        """Time has passed; a few times a second."""

    def end(self) -> None:
        """Leave the screen in order. Repeatable."""
