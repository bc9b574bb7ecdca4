"""The clock by which old jobs and files are deleted: it does not believe a leap forward at once.

A clock that somebody sets a year ahead by mistake makes everything old, and what is deleted does not come back when the
clock is set right again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import timedelta

from windrow.common.journal import say

LEAP_S = 600.0
"""A clock that gains less on the monotonic one between two questions is adjusted, not set."""
BELIEVED_AFTER_S = 86_400.0
"""How long a clock has to go on evenly after a leap forward until deletions go by it."""
LEAP = (
    "the clock of this machine was set forward: for a day, old jobs and files are deleted as if it had not been; if it "
    "is wrong, set it right before then"
)


class PatientClock:
    """Seconds since 1970, for one thread at a time. A clock that is set back is believed at once: that deletes less."""

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._believed = wall() - monotonic()
        """What the wall clock is ahead of the monotonic one."""
        self._seen = self._believed
        self._since = 0.0
        """The monotonic time since which the wall clock goes on evenly, ahead of what is believed."""

    def __call__(self) -> float:
        now = self._monotonic()
        ahead = self._wall() - now
        if ahead < self._believed + LEAP_S:
            self._believed = ahead
        elif abs(ahead - self._seen) >= LEAP_S:
            self._since = now
            say(
                logging.WARNING,
                LEAP,
                by=str(timedelta(seconds=round(ahead - self._believed))),
            )
        elif now - self._since >= BELIEVED_AFTER_S:
            self._believed = ahead
        self._seen = ahead
        return now + self._believed
