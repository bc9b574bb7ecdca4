"""Says what `windrow run` does before there is a job to show, if that takes longer than a moment."""

from __future__ import annotations

import threading
from collections.abc import Callable

PATIENCE_S = 1.0


class Preparation:
    """The stages before a job begins. Silent for PATIENCE_S; then it tells the present stage, and each later one."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        """`tell`: called with a sentence, by the caller's thread or another, never by two at once."""
        self._tell = tell
        self._lock = threading.Lock()
        self._stage = ""
        self._is_late = False
        self._timer = threading.Timer(PATIENCE_S, self._late)
        self._timer.daemon = True
        self._timer.start()

    def stage(self, words: str) -> None:
        """Begin a stage."""
        with self._lock:
            self._stage = words
            if self._is_late:
                self._tell(words)

    def end(self) -> None:
        """The job has begun, or cannot begin: say nothing more. May be called again."""
        with self._lock:
            self._timer.cancel()
            self._stage = ""
            self._is_late = False

    def _late(self) -> None:
        with self._lock:
            if self._stage:
                self._is_late = True
                self._tell(self._stage)
