"""Retries of operations that fail for a moment.

The library retries requests without an answer, or with one that says "not now". It does not retry an answer that breaks
off in the middle; this module does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from windrow.storage.errors import StorageError, Trouble

TRIES = 4
FIRST_PAUSE_S = 0.2

_Result = TypeVar("_Result")


def tried(attempt: Callable[[], _Result]) -> _Result:
    """Return the result of an attempt, after a few retries with growing pauses. Raises the last StorageError."""
    pause = FIRST_PAUSE_S
    for left in reversed(range(TRIES)):
        try:
            return attempt()
        except StorageError as error:
            if error.trouble is not Trouble.FAILED or not left:
                raise
        time.sleep(pause)
        pause *= 2
    raise AssertionError("the last try returns or raises")
