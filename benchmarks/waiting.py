"""Waits for what a measurement needs to have happened."""

from __future__ import annotations

import time
from collections.abc import Callable

DEADLINE_S = 120.0


def wait_until(what: str, condition: Callable[[], object]) -> None:
    """Wait for a condition. Raises RuntimeError if it does not hold within DEADLINE_S."""
    end = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"it took longer than {DEADLINE_S:.0f} s until {what}")
        time.sleep(0.01)
