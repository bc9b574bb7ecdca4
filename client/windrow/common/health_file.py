"""Says whether a master or an agent on this machine is healthy, from the time stamp of a file in its folder.

The event loop of the process sets the time stamp, because a thread would continue if the loop hangs. A check needs no
imports and no connection: container engines run one every few seconds, in each of many containers. Only the time stamp
is written, which works even on a full disk. A time stamp of one second after the start of 1970 means that the process
lives, but does not serve at the moment.
"""

from __future__ import annotations

import os
import time

NAME = "health"
TOLD_EVERY_S = 5.0
FRESH_S = 30.0
"""A process that was silent for longer hangs, or is gone. On a busy machine an event loop may be late by seconds."""
_NOT_SERVING_S = 1.0

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path


class HealthFile:
    """Writes the time stamp. If that fails, the process only looks unwell."""

    def __init__(self, folder: Path) -> None:
        self._path = str(folder / NAME)

    def tell(self, *, serving: bool) -> None:
        """Set the time stamp. The event loop calls this at least every `TOLD_EVERY_S` seconds."""
        try:
            os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
            os.utime(self._path, None if serving else (_NOT_SERVING_S, _NOT_SERVING_S))
        except OSError:
            pass

    def remove(self) -> None:
        """Remove the file, as the process ends."""
        try:
            os.unlink(self._path)  # noqa: PTH108  pathlib costs milliseconds here
        except OSError:
            pass


class Silent(Exception):
    """The process gives no sign of life; the text says since when, or that it never gave one."""


def is_serving(folder: str, now_s: float | None = None) -> bool:
    """Whether the process that works in a folder serves. Raises Silent, PermissionError."""
    path = os.path.join(folder, NAME)  # noqa: PTH118
    try:
        told_s = os.stat(path).st_mtime  # noqa: PTH116
    except PermissionError:
        raise
    except OSError as error:
        raise Silent(f"no process gives a sign of life in {folder} ({path}: {error.strerror})") from error
    if told_s == _NOT_SERVING_S:
        return False
    age_s = (time.time() if now_s is None else now_s) - told_s
    # If the clock was set back, the time stamp is in the future until the process sets it again.
    if not -FRESH_S < age_s < FRESH_S:
        raise Silent(f"it has given no sign of life for {abs(age_s):.0f} s: it hangs, or is gone")
    return True
