"""What one worker process of a step spent its time on, for a job report (terms: `job_figures`)."""

from __future__ import annotations

from array import array
from typing import Final

BINS: Final = 180
"""Charts divide the time of a step into this many parts."""
USEFUL, RETRIED, LOST, RUNNING = range(4)
KINDS: Final = ("useful", "retried", "lost", "running")


class WorkerTime:
    """The time of one worker so far, by kind, and its attempts."""

    __slots__ = (
        "attempts",
        "begin_us",
        "cells",
        "dead",
        "end_us",
        "gone",
        "items",
        "key",
        "peak_rss_kib",
        "spent_us",
        "succeeded",
    )

    def __init__(self, key: tuple[str, str, int], begin_us: int, *, drawn: bool) -> None:
        self.key = key
        self.begin_us = begin_us
        self.end_us = begin_us
        self.spent_us = [0, 0, 0, 0]
        self.attempts = 0
        self.succeeded = 0
        self.items = 0
        self.peak_rss_kib = 0
        self.dead = False
        self.gone = False
        """A later process of the node started after its last end."""
        self.cells: list[array[float] | None] | None = [None] * len(KINDS) if drawn else None
        """By kind: µs in each bin; made when there is something."""

    def cells_of(self, kind: int) -> array[float]:
        """The bins of a kind, to add to. Only for a worker that is drawn."""
        assert self.cells is not None
        found = self.cells[kind]
        if found is None:
            found = self.cells[kind] = array("f", bytes(4 * BINS))
        return found
