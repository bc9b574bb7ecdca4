"""The run whose end nobody has been told yet.

`untold` in the state folder holds the id of the run that a command follows, from its beginning until its end has been
said. A command that is killed in the last moment leaves it behind: the next equal one then tells the end instead of
running everything again. Any new run takes its place, since that may replace the same outputs.
"""

from __future__ import annotations

import contextlib
import os

from windrow.common.notes import NoteDamaged, read_note, write_note

FILE = "untold"


def remember(folder: str, job_id: str) -> None:
    """A run is followed from now on."""
    write_note(os.path.join(folder, FILE), {"job_id": job_id})


def remembered(folder: str) -> str:
    """The run that was followed last, if its end has not been said; else "".

    A note that is damaged tells of none: then an equal command runs again what has ended already.
    """
    with contextlib.suppress(NoteDamaged, OSError):
        return str((read_note(os.path.join(folder, FILE)) or {}).get("job_id", ""))
    return ""


def forget(folder: str, job_id: str) -> None:
    """The end of a run has been said. Repeatable."""
    if remembered(folder) == job_id:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, FILE))
