"""Trying again what has failed in a way that may pass.

The library tries requests again by itself, as long as they get no answer or one of "not now". What breaks off in the
middle of an answer is left to its user.
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
    """What an attempt gives, in one of a few tries with growing pauses. Raises StorageError of the last."""
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
