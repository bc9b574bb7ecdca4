"""Who owns a state folder of the embedded mode, and how others find the master that serves it.

There are two locks, both `flock`, which the kernel releases when their holder dies:

- `embedded.lock`: held by the process that started, and supervises, the private master and agent.
- `lock`: held by a master for its life (docs/contracts.md, section 2). This module only tests it.

`embedded.json` holds the address of the private master. It is valid only while `embedded.lock` is held. `socket` links
to the folder of the master's socket. The link is made before the folder, so that a later process can remove the folder
after a kill.
"""

# pathlib costs several milliseconds on the way to the first run().
from __future__ import annotations

import errno
import fcntl
import os
import time

from windrow.common.notes import NoteDamaged, read_note, write_note
from windrow.errors import StateFolderError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

DEFAULT = ".windrow"
OWNER_LOCK = "embedded.lock"
MASTER_LOCK = "lock"
ENDPOINT = "embedded.json"
RUN_FOLDER_LINK = "socket"
AGENT_LOCK = "agent/lock"
FORMER_END_S = 20.0
"""How long a master and an agent may take to end after their starter is gone."""
UNKNOWN_END_S = 3.0
"""The same if nothing was published: the starter died early, or a served master uses the folder."""
POLL_S = 0.01
RUN_FOLDER_PREFIX = "windrow-"
RUN_FOLDER_VARIABLE = "WINDROW_RUN_FOLDER"
"""Names the folder that a started master removes at its end."""


def default() -> str:
    """The state folder where none is given: $WINDROW_STATE, else `.windrow`."""
    return os.environ.get("WINDROW_STATE") or DEFAULT


def has_state(folder: str) -> bool:
    """Whether Windrow has used this folder. Raises StateFolderError if this user may not look into it."""
    from windrow.common.state_mark import STATE_MARK

    try:
        os.stat(os.path.join(folder, STATE_MARK))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise StateFolderError(
            f"The state folder {os.path.abspath(folder)} cannot be read: {error.strerror}. Run the command as the user "
            "who owns it, or choose another: --state DIR"
        ) from error
    return True


class Ownership:
    """This process's ownership of a state folder, until `release` or the end of the process."""

    def __init__(self, folder: str, descriptor: int) -> None:
        self.folder = folder
        self._descriptor = descriptor

    def publish(self, endpoint: Mapping[str, Any]) -> None:
        """Publish, atomically, where the master listens."""
        write_note(os.path.join(self.folder, ENDPOINT), {"format": 1, **endpoint})

    def release(self) -> None:
        """Release the folder. May be called again."""
        if self._descriptor < 0:
            return
        _clear(self.folder)
        os.close(self._descriptor)
        self._descriptor = -1


def prepare(folder: str) -> str:
    """Make the folder, readable only by its owner; return its absolute path. Raises StateFolderError."""
    folder = os.path.abspath(folder)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except FileExistsError:
        raise StateFolderError(f"{folder} is a file; --state must be a folder. Choose another.") from None
    except OSError as error:
        raise StateFolderError(
            f"The state folder {folder} cannot be created: {error.strerror}. Choose a folder that you can write to: "
            "--state DIR"
        ) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StateFolderError(
            f"The state folder {folder} cannot be written. Choose a folder that you can write to: --state DIR"
        )
    ignore = os.path.join(folder, ".gitignore")
    try:
        # Version control and code archives must leave a state folder out.
        os.close(os.open(ignore, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return folder
    except OSError as error:
        raise _unusable(folder, error) from error
    with open(ignore, "w") as file:
        file.write("*\n")
    return folder


def claim(folder: str, check: Callable[[], None] = lambda: None) -> Ownership | None:
    """Take ownership of the folder; returns None if it has an owner. Waits for a former master and agent to end.

    `check`: called while it waits; it may raise. Raises StateFolderError if a master serves the folder that no embedded
    run started.
    """
    try:
        descriptor = os.open(os.path.join(folder, OWNER_LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unusable(folder, error) from error
    if not try_lock(descriptor, folder):
        os.close(descriptor)
        return None
    try:
        _wait_for_former(folder, check)
    except BaseException:
        os.close(descriptor)
        raise
    _clear(folder)
    return Ownership(folder, descriptor)


def _wait_for_former(folder: str, check: Callable[[], None]) -> None:
    was_published = os.path.exists(os.path.join(folder, ENDPOINT))
    deadline = time.monotonic() + (FORMER_END_S if was_published else UNKNOWN_END_S)
    while any(_is_locked(os.path.join(folder, name)) for name in (MASTER_LOCK, AGENT_LOCK)):
        if time.monotonic() > deadline:
            raise StateFolderError(
                f"The state folder {folder} is in use by a master or an agent that no `windrow run` started. "
                f"Give that master's address with --master ADDRESS, or choose another folder with --state DIR."
            )
        check()
        time.sleep(POLL_S)


def is_owned(folder: str) -> bool:
    """Whether a process owns the folder now."""
    return _is_locked(os.path.join(folder, OWNER_LOCK))


def read_endpoint(folder: str) -> dict[str, Any] | None:
    """What the owner published; None if there is no owner, or nothing was published yet.

    Raises StateFolderError if it is damaged.
    """
    if not is_owned(folder):
        return None
    try:
        endpoint = read_note(os.path.join(folder, ENDPOINT))
    except OSError:
        return None
    except NoteDamaged as error:
        raise StateFolderError(
            f"{error}. It holds the address of the master over this folder. The run that started that master "
            "continues: follow it in the terminal where it was started, and wait for it to finish."
        ) from error
    return endpoint if endpoint is not None and isinstance(endpoint.get("address"), str) else None


def make_run_folder(state: str) -> str:
    """Make a fresh folder for the socket that only this user can enter. Paths of sockets have at most 107 bytes."""
    link = os.path.join(state, RUN_FOLDER_LINK)
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    temporary = os.environ.get("TMPDIR", "")
    for parent in (runtime, temporary, "/tmp"):
        if not parent.startswith("/") or len(os.fsencode(parent)) > 60:
            continue
        folder = os.path.join(parent, f"{RUN_FOLDER_PREFIX}{os.urandom(6).hex()}")
        try:
            _remove(link)
            os.symlink(folder, link)
        except OSError:
            pass  # A file system without links: a kill may leave the folder behind.
        try:
            os.mkdir(folder, 0o700)
        except OSError:
            continue
        return folder
    raise StateFolderError(
        "A folder for the socket cannot be created: none of $XDG_RUNTIME_DIR, $TMPDIR and /tmp can be written. Set "
        "TMPDIR to a folder that you can write to."
    )


def remove_run_folder(folder: str) -> None:
    """Remove the socket's folder, and the files in it. May be called again."""
    try:
        for name in os.listdir(folder):
            os.unlink(os.path.join(folder, name))
        os.rmdir(folder)
    except OSError:
        pass


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


def _clear(folder: str) -> None:
    """Remove what an owner published, and the folder of the socket, which a killed master leaves behind."""
    link = os.path.join(folder, RUN_FOLDER_LINK)
    _remove(os.path.join(folder, ENDPOINT))
    try:
        run_folder = os.readlink(link)
        os.unlink(link)
    except OSError:
        return
    if os.path.basename(run_folder).startswith(RUN_FOLDER_PREFIX):
        remove_run_folder(run_folder)


def try_lock(descriptor: int, folder: str) -> bool:
    """Lock an open file of a state folder; False if somebody else has. Raises StateFolderError."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in (errno.ENOLCK, errno.ENOTSUP):
            raise StateFolderError(
                f"The file system of {folder} has no locks: {error.strerror}. Put the state on a local disk: --state "
                "DIR"
            ) from error
        raise _unusable(folder, error) from error
    return True


def _is_locked(path: str) -> bool:
    """Whether another open file holds the lock. Tested with a shared lock, so that observers do not meet."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _unusable(folder: str, error: OSError) -> StateFolderError:
    return StateFolderError(f"The state folder {folder} cannot be used: {error.strerror}. Choose another: --state DIR")
