"""One live master a state folder: flock on `lock`, held until the process ends, however it ends."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
from pathlib import Path

from windrow_master.store.errors import StateFolderInUse, StoreUnusable

LOCK_FILE = "lock"


class StateLock:
    """Holds a state folder. The kernel lets go of it with the process; a file left behind means nothing.

    The file is never removed: a lock on a file that somebody unlinks would exclude nobody.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def acquire(cls, folder: Path) -> StateLock:
        """Lock a folder that exists. Raises StateFolderInUse, naming the other's pid, or StoreUnusable."""
        path = folder / LOCK_FILE
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreUnusable(
                f"The state folder {folder} cannot be used: {path}: {error.strerror}. "
                f"Give a folder that this user may write: --state DIR."
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = _read_holder(descriptor)
            os.close(descriptor)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise StoreUnusable(
                    f"The state folder {folder} cannot be locked: {error.strerror}. "
                    f"Use one on a local disk: --state DIR."
                ) from error
            raise _in_use(folder, holder) from None
        content = json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode()
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, content, 0)
        except OSError:
            # The disk may be full. The lock itself stands; only its holder's name is missing.
            pass
        return cls(descriptor)

    def release(self) -> None:
        """Let go. Repeatable."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _read_holder(descriptor: int) -> dict[str, object]:
    with contextlib.suppress(OSError, ValueError):
        holder = json.loads(os.pread(descriptor, 4096, 0))
        if isinstance(holder, dict):
            return holder
    return {}


def _in_use(folder: Path, holder: dict[str, object]) -> StateFolderInUse:
    pid, host = holder.get("pid"), holder.get("host")
    number = pid if isinstance(pid, int) else None
    who = "Another master" if number is None else f"Another master (pid {number} on {host})"
    return StateFolderInUse(
        f"{who} is using the state folder {folder}. Work with that one, stop it first, "
        f"or give this one a folder of its own: --state DIR.",
        number,
    )
