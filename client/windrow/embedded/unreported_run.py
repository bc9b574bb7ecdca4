"""The run whose end has not been reported to the user yet.

`untold` in the state folder holds the id of the run that a command follows, until the command has reported its end. A
command that is killed in the last moment leaves the file behind: the next equal command then reports that end instead
of running everything again. A new run replaces the file, since it may replace the same outputs.
"""

from __future__ import annotations

import contextlib
import os

from windrow.common.notes import NoteDamaged, read_note, write_note

FILE = "untold"


def remember(folder: str, job_id: str) -> None:
    """Note that a command follows the run from now on."""
    write_note(os.path.join(folder, FILE), {"job_id": job_id})


def remembered(folder: str) -> str:
    """The run that was followed last, if its end is unreported; otherwise empty. A damaged note counts as none: an
    equal command then runs the job again.
    """
    with contextlib.suppress(NoteDamaged, OSError):
        return str((read_note(os.path.join(folder, FILE)) or {}).get("job_id", ""))
    return ""


def forget(folder: str, job_id: str) -> None:
    """Note that the end of a run has been reported. May be called again."""
    if remembered(folder) == job_id:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, FILE))
