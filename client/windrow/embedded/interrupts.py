"""Interrupts (Ctrl-C, the stop button of a notebook) wait while processes are started and ended.

Python raises KeyboardInterrupt between any two steps of the main thread: also when a process has started and nothing
knows it yet, or half-way through its end. Within `held`, an interrupt waits until it can be raised without such a loss.

States: held <-> released, either -> interrupted.
1. Held, interrupts only count, until `check`, `release` or the end raises the first.
2. Released, the first is raised at once.
3. Interrupted, later ones only count, so that cleaning up is never interrupted.
"""

# Only cheap modules: this is on the way to the first run().
from __future__ import annotations

import contextlib
import signal
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType
    from typing import Any


class Interrupts:
    """Those of the main thread within the outermost `held`. In other threads there are none."""

    def __init__(self, handler: Callable[[int, FrameType | None], Any]) -> None:
        """`handler`: what handles interrupts elsewhere; it raises KeyboardInterrupt, unless the program has its own."""
        self.count = 0
        self.is_held = True
        self._handler = handler
        self._waits = False
        self._is_raised = False

    @property
    def hurried(self) -> bool:
        """Whether an end was asked for more than once."""
        return self.count > 1

    def take(self, number: int, frame: FrameType | None) -> None:
        """Handle the signal."""
        self.count += 1
        self._waits = True
        if not self.is_held:
            self.check()

    def check(self) -> None:
        """Raise an interrupt that waits."""
        if self._waits and not self._is_raised:
            self._waits = False
            self._is_raised = True
            self._handler(signal.SIGINT, None)
            self._is_raised = False

    def release(self) -> None:
        """Let interrupts be raised from now on; raise one that waits."""
        self.is_held = False
        self.check()

    def hold(self) -> None:
        """Let interrupts wait from now on."""
        self.is_held = True


_current: Interrupts | None = None


@contextlib.contextmanager
def held() -> Iterator[Interrupts]:
    """Let interrupts wait. At the end, one that waits is raised, or waits on if this is within another `held`."""
    global _current
    handler = signal.getsignal(signal.SIGINT)
    # Interrupts that are ignored on purpose (nohup), or end the process, stay so.
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield Interrupts(signal.default_int_handler)
    elif _current is not None:
        interrupts, was_held = _current, _current.is_held
        interrupts.hold()
        try:
            yield interrupts
        finally:
            if not was_held:
                interrupts.release()
    else:
        interrupts = Interrupts(handler)
        try:
            _current = interrupts
            signal.signal(signal.SIGINT, interrupts.take)
            yield interrupts
        finally:
            _current = None
            signal.signal(signal.SIGINT, handler)
            interrupts.check()
