"""How much of a state folder each kind of thing takes."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from windrow.common.trees import entries_below

from windrow_master.files.state_files import StateFiles

_BLOCK = 512
"""The unit of st_blocks, whatever the file system."""


def bytes_below(path: Path) -> int:
    """The bytes that a file, or a folder and all below it, take on the disk; 0 if it is not there. Links are not
    followed. What goes meanwhile does not count.
    """
    total = 0
    with contextlib.suppress(OSError):
        total += os.lstat(path).st_blocks * _BLOCK
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            for entry in entries_below(descriptor):
                total += entry.status.st_blocks * _BLOCK
        finally:
            os.close(descriptor)
    return total


def kinds(files: StateFiles) -> dict[str, int]:
    """The bytes that each kind takes, by a word for people, the largest first; without what takes nothing."""
    found = {
        "database": sum(bytes_below(Path(f"{files.database}{end}")) for end in ("", "-wal", "-shm")),
        "code and data archives": bytes_below(files.artifacts),
        "lists of uploads": bytes_below(files.uploads),
        "notes for reuse": bytes_below(files.made) + bytes_below(files.digests),
        "kept outputs": bytes_below(files.outputs),
        "deleted jobs that are not gone yet": bytes_below(files.removed),
        "reserve": bytes_below(files.reserve),
    }
    rest = "recipes and listings of jobs"
    for job_id in files.jobs_found():
        found[rest] = found.get(rest, 0) + bytes_below(files.job(job_id))
        parts = [("logs and reports of jobs", files.logs(job_id))]
        for step in files.steps_of(job_id):
            parts += [("rows of jobs", step.segments), ("sorted rows of jobs", step.sorted_rows)]
        for kind, folder in parts:
            size = bytes_below(folder)
            found[kind] = found.get(kind, 0) + size
            found[rest] -= size
    return dict(sorted(((kind, size) for kind, size in found.items() if size), key=lambda one: -one[1]))
