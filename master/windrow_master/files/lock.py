"""Allows one live master for each state folder: a flock on the file `lock`, held until the process ends."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
from pathlib import Path

from windrow_master.files.errors import StateFolderInUse, StateUnusable
from windrow_master.files.state_files import StateFiles


class StateLock:
    """Holds a state folder. The kernel releases it with the process, so a file left behind means nothing.

    The file is never removed: a lock on an unlinked file would exclude nobody.
    """

    def __init__(self, descriptor: int, incarnation_before: int) -> None:
        self._descriptor = descriptor
        self.incarnation_before = incarnation_before
        """The last incarnation that was noted in the lock file; 0 if there was none."""

    @classmethod
    def acquire(cls, files: StateFiles) -> StateLock:
        """Lock a folder that exists. Raises StateFolderInUse, naming the other's pid, or StateUnusable."""
        folder, path = files.folder, files.lock
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StateUnusable(
                f"The state folder {folder} cannot be used: {path}: {error.strerror}. Choose a folder that this "
                "user can write to: --state DIR."
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = _read_holder(descriptor)
            os.close(descriptor)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise StateUnusable(
                    f"The state folder {folder} cannot be locked: {error.strerror}. "
                    f"Use one on a local disk: --state DIR."
                ) from error
            raise _in_use(folder, holder) from None
        before = _read_holder(descriptor).get("incarnation")
        lock = cls(descriptor, before if isinstance(before, int) and before > 0 else 0)
        lock.note(lock.incarnation_before)
        return lock

    def note(self, incarnation: int) -> None:
        """Note who holds the folder.

        `incarnation`: that of this folder's database, which is durable, so that an older one in its place is detected.
        """
        content = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "incarnation": incarnation}).encode()
        # Overwrite, then cut: if the process is killed in between, the file is not empty.
        with contextlib.suppress(OSError):
            # The disk may be full. The lock itself stands; only its holder's name is missing.
            os.pwrite(self._descriptor, content, 0)
            os.ftruncate(self._descriptor, len(content))

    def release(self) -> None:
        """Release the folder. May be repeated."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def incarnation_in(lock: Path) -> int:
    """The last incarnation noted in a lock file; 0 if there is none."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        found = json.loads(lock.read_bytes()).get("incarnation")
        return found if isinstance(found, int) else 0
    return 0


def is_locked(lock: Path) -> bool:
    """Whether a process holds this lock file."""
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


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
        f"{who} is using the state folder {folder}. Use that one, stop it first, or give this one another "
        "folder: --state DIR.",
        number,
    )
