"""Notices that somebody set the clock of this machine.

While a master runs, the wall clock is compared with the monotonic one. For the time between two masters, each leaves a
note of how its clocks stood. What a set-back clock makes unsafe is to compare the times of files with that of an
earlier job (`earlier.EarlierJobs`), so a set-back becomes an event of the store; everything else goes by the monotonic
clock, or by the order in which things happened.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from windrow.common.journal import say
from windrow.common.notes import NoteDamaged, read_note, write_note

from windrow_master.core.commands import ClockSetBack, Moment

TOLD_FROM_S = 2.0
"""A smaller change is not noticed."""
SLEW = 0.0005
"""So fast, at most, a clock is adjusted without being set: seconds in a second."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Clocks(NamedTuple):
    """How the clocks of this machine stand. `boot`: which start of the machine `since_boot_s` is about."""

    boot: str
    since_boot_s: float
    wall_s: float


def clocks() -> Clocks:
    """How they stand now."""
    try:
        boot = _BOOT_ID.read_text().strip()
    except OSError:
        boot = ""
    return Clocks(boot, time.clock_gettime(time.CLOCK_BOOTTIME), time.time())


def set_back_since(before: Clocks, now: Clocks) -> ClockSetBack | None:
    """Whether the clock was set back since an earlier look, as far as that can be known."""
    if before.boot == now.boot and now.boot:
        passed_s = now.since_boot_s - before.since_boot_s
        by_s = before.wall_s + passed_s - now.wall_s
        tolerated_s = TOLD_FROM_S + SLEW * passed_s
    else:
        passed_s = now.since_boot_s
        by_s = before.wall_s - now.wall_s
        tolerated_s = TOLD_FROM_S
    return ClockSetBack(by_s, now.wall_s - passed_s) if by_s > tolerated_s else None


class ClockWatch:
    """Watches for one master."""

    def __init__(self, note: Path | None = None, look: Callable[[], Clocks] = clocks) -> None:
        """`note`: where it is noted how the clocks stand; None: nowhere."""
        self._note = note
        self._look_at = look
        self._last: Moment | None = None

    def begin(self) -> ClockSetBack | None:
        """Whether the clock was set back since the note of the master before this one."""
        if self._note is None:
            return None
        found = None
        now = self._look_at()
        with contextlib.suppress(NoteDamaged, OSError, ValueError, TypeError):
            before = read_note(self._note)
            found = None if before is None else set_back_since(Clocks(**before), now)
        if found is not None:
            self._tell(-found.by_s)
        self._write(now)
        return found

    def look(self, now: Moment) -> ClockSetBack | None:
        """Whether the clock was set back since the last look. Tells in the log that it was set, either way."""
        last, self._last = self._last, now
        if last is None:
            return None
        passed_s = now.monotonic_s - last.monotonic_s
        by_s = now.wall_s - last.wall_s - passed_s
        if abs(by_s) <= TOLD_FROM_S:
            return None
        self._tell(by_s)
        self._write(self._look_at())
        return ClockSetBack(-by_s, now.wall_s - passed_s) if by_s < 0 else None

    def end(self) -> None:
        """Leave a note for the next master."""
        self._write(self._look_at())

    def _tell(self, by_s: float) -> None:
        say(
            logging.WARNING,
            "the clock of this machine was set; leases and deadlines do not depend on it",
            by_seconds=round(by_s, 1),
        )

    def _write(self, now: Clocks) -> None:
        if self._note is not None:
            # Without a note, only a change between two masters goes unnoticed.
            with contextlib.suppress(OSError):
                write_note(self._note, now._asdict())
