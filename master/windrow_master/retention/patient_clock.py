"""The clock by which old jobs and files are deleted: it does not believe a leap forward at once.

A clock that somebody sets a year ahead by mistake makes everything old, and what is deleted does not come back when the
clock is set right again. The same mistake may have been made while no master ran, or when the machine started: so what
is believed is noted, and a master goes on from there.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from windrow.common.journal import say
from windrow.common.notes import NoteDamaged, read_note, write_note

LEAP_S = 600.0
"""A clock that gains less on the monotonic one between two questions is adjusted, not set."""
BELIEVED_AFTER_S = 86_400.0
"""How long a clock has to go on evenly after a leap forward until deletions go by it: while a master runs."""
LEAP = (
    "the clock of this machine was set forward: for a day, old jobs and files are deleted as if it had not been; if it "
    "is wrong, set it right before then"
)
AHEAD = (
    "the clock of this machine is further on than when a master ran here last: until a master has run for a day, old "
    "jobs and files are deleted as if no time had passed meanwhile; if it is wrong, set it right before then"
)


class _Noted(NamedTuple):
    """What an earlier master has left. `boot`, `since_boot_s`: as of `SinceBoot`; `even_s`: for how long the clock
    `wall_s` had gone on evenly, ahead of `believed_s`.
    """

    boot: str
    since_boot_s: float
    wall_s: float
    believed_s: float
    even_s: float


SinceBoot = Callable[[], tuple[str, float]]
"""Which start of the machine this is ("": not known), and how many seconds ago it was."""


class PatientClock:
    """Seconds since 1970, for one thread at a time. A clock that is set back is believed at once: that deletes less."""

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        note: Path | None = None,
        since_boot: SinceBoot = lambda: ("", 0.0),
    ) -> None:
        """`note`: where it is noted what is believed; None: nowhere."""
        self._wall, self._monotonic, self._note, self._since_boot = wall, monotonic, note, since_boot
        now = monotonic()
        self._believed = wall() - now
        """What the wall clock is ahead of the monotonic one."""
        self._seen = self._believed
        self._since = 0.0
        """The monotonic time since which the wall clock goes on evenly, ahead of what is believed."""
        if (noted := self._read()) is not None:
            self._go_on(noted, now)

    def __call__(self) -> float:
        now = self._monotonic()
        ahead = self._wall() - now
        if ahead < self._believed + LEAP_S:
            self._believed = ahead
        elif abs(ahead - self._seen) >= LEAP_S:
            self._since = now
            self._tell(LEAP, ahead)
        elif now - self._since >= BELIEVED_AFTER_S:
            self._believed = ahead
        self._seen = ahead
        self._write(now)
        return now + self._believed

    def _go_on(self, noted: _Noted, now: float) -> None:
        """Believe no more than the master before has believed, and what has passed since then for sure."""
        boot, since_boot_s = self._since_boot()
        same_boot = bool(boot) and boot == noted.boot
        passed_s = max(0.0, since_boot_s - noted.since_boot_s) if same_boot else 0.0
        wall_s = self._wall()
        if wall_s < noted.believed_s + passed_s + LEAP_S:
            return
        self._believed = noted.believed_s + passed_s - now
        was_ahead = noted.wall_s >= noted.believed_s + LEAP_S
        # Nobody knows how long a machine was off: any time is even that is not before the last one.
        gained_s = wall_s - noted.wall_s - passed_s
        is_even = abs(gained_s) < LEAP_S if same_boot else gained_s >= 0
        self._since = now - (noted.even_s if was_ahead and is_even else 0.0)
        self._tell(AHEAD, self._seen)

    def _tell(self, what: str, ahead: float) -> None:
        say(logging.WARNING, what, by=str(timedelta(seconds=round(ahead - self._believed))))

    def _read(self) -> _Noted | None:
        with contextlib.suppress(NoteDamaged, OSError, ValueError, TypeError):
            found = None if self._note is None else read_note(self._note)
            if found is not None:
                return _Noted(**found)
        return None

    def _write(self, now: float) -> None:
        if self._note is None:
            return
        is_ahead = self._seen >= self._believed + LEAP_S
        boot, since_boot_s = self._since_boot()
        even_s = now - self._since if is_ahead else 0.0
        # Without a note, only a leap between two masters goes unnoticed.
        with contextlib.suppress(OSError):
            noted = _Noted(boot, since_boot_s, now + self._seen, now + self._believed, even_s)
            write_note(self._note, noted._asdict())
