"""Disk space held in reserve, so that current work can end durably when the disk is full.

On the first "disk full", the committer releases the reserve and tries its group again. Nothing new is accepted until
`restore` succeeds. That needs twice the space, so that release and restore do not alternate.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

RESERVE_BYTES = 64 << 20


class Reserve:
    """The reserve: a file of allocated blocks."""

    def __init__(self, path: Path, size: int = RESERVE_BYTES) -> None:
        self._path = path
        self._size = size

    @property
    def held(self) -> bool:
        """Whether the space is reserved now."""
        try:
            return self._path.stat().st_size >= self._size
        except OSError:
            return False

    def release(self) -> bool:
        """Return the space to the file system; return whether there was any."""
        try:
            had = self._path.stat().st_size > 0
            self._path.unlink()
        except OSError:
            return False
        return had

    def restore(self) -> bool:
        """Reserve the space (again); return whether it is reserved. False if less than twice the space is free."""
        if self.held:
            return True
        try:
            usage = os.statvfs(self._path.parent)
            if usage.f_bavail * usage.f_frsize < 2 * self._size:
                return False
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, self._size)
            finally:
                os.close(descriptor)
        except OSError:
            with contextlib.suppress(OSError):
                self._path.unlink()
            return False
        return True
