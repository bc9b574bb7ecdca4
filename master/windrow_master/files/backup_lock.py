"""Keeps backups and deletions apart: what the copied database names must be there until it is copied, too.

A flock on a file of its own: alone for a backup, shared by deletions. The kernel releases it with the process, so a
file left behind means nothing. It is taken anew for each deletion, so a backup waits for one at most.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator

from windrow_master.files.errors import StateError
from windrow_master.files.state_files import StateFiles

WAIT_S = 60.0
"""How long a backup waits for deletions; each takes seconds at most."""
_LOOK_S = 0.05


class BackupRuns(StateError):
    """A backup of the state folder is being made."""


@contextlib.contextmanager
def backing_up(files: StateFiles) -> Iterator[None]:
    """Let nothing be deleted in the block. Raises BackupRuns if another backup is being made; OSError."""
    with _locked(files, fcntl.LOCK_EX, WAIT_S, f"Another backup of {files.folder} is being made. Wait for its end."):
        yield


@contextlib.contextmanager
def deleting(files: StateFiles) -> Iterator[None]:
    """Let no backup begin in the block. Raises BackupRuns if one is being made; OSError."""
    with _locked(files, fcntl.LOCK_SH, 0.0, "A backup of the state is being made. Delete jobs when it has ended."):
        yield


@contextlib.contextmanager
def _locked(files: StateFiles, how: int, wait_s: float, refusal: str) -> Iterator[None]:
    descriptor = os.open(files.backup_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.geteuid() == 0:
            # A backup may be root's, and the master another user's.
            owner = files.folder.stat()
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
        deadline = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(descriptor, how | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise BackupRuns(refusal) from None
                time.sleep(_LOOK_S)
        yield
    finally:
        os.close(descriptor)
