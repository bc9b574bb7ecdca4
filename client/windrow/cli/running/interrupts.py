"""Ctrl-C, SIGTERM and a closing terminal: the first asks for an orderly end, a second for one at once.

States: armed -> interrupted -> hurried.
1. Armed, the first signal raises KeyboardInterrupt in the main thread.
2. Later ones only count, so that cleaning up is never interrupted.
3. A closing terminal counts once, although the kernel signals it twice: to the leader of the session and to its group.
"""

from __future__ import annotations

import signal
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Counts the signals of this process from now on."""

    def __init__(self) -> None:
        self._armed = True
        self._hung_up = False
        self.count = 0
        for number in SIGNALS:
            # Signals that were ignored on purpose (nohup) stay ignored.
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._take)

    @property
    def hurried(self) -> bool:
        """Whether an end was asked for more than once."""
        return self.count > 1

    def disarm(self) -> None:
        """Only count signals from now on."""
        self._armed = False

    def _take(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP and self._hung_up:
            return
        self._hung_up = self._hung_up or number == signal.SIGHUP
        self.count += 1
        if self._armed:
            self._armed = False
            raise KeyboardInterrupt
