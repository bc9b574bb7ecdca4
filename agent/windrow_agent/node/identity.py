"""The identity of this node: one agent per folder, one secret per folder, one random incarnation per start."""

from __future__ import annotations

import fcntl
import logging
import os
import re
import secrets
import time
from functools import cached_property
from pathlib import Path

from windrow.common.durable import put_in_place
from windrow.common.journal import say
from windrow.common.notes import NoteDamaged, read_note, write_note

from windrow_agent.node.strays import kill_strays

SECRET_BYTES = 32
SECRET = re.compile(r"[0-9a-f]{64}")


class FolderInUse(Exception):
    """Another agent uses this folder; the text says which one and what to do."""


class Identity:
    """Holds the lock of the agent's folder for the lifetime of the process.

    `replaced_incarnation`: the one that had the folder before, and is certainly dead; empty if there is none.
    """

    def __init__(self, folder: Path) -> None:
        """Raises FolderInUse, OSError."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._take(folder)
        except FolderInUse:
            os.close(self._lock)
            raise
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)
        record = folder / "incarnation.json"
        damaged = False
        try:
            self.replaced_incarnation = str((read_note(record) or {}).get("node_incarnation", ""))
        except (NoteDamaged, OSError) as error:
            say(logging.WARNING, "the note of the earlier agent in this folder cannot be read", reason=str(error))
            self.replaced_incarnation = ""
            damaged = True
        self.strays_killed = 0
        if self.replaced_incarnation or damaged:
            # Without the note, only processes in a recorded process group are found.
            self.strays_killed = kill_strays(folder / "workers", self.replaced_incarnation)
        if (folder / "control-groups").exists():
            from windrow_agent.node.control_groups import remove_leftovers

            remove_leftovers(folder)
        self._secret_file = folder / "secret"
        self.node_incarnation = secrets.token_hex(16)
        # Written before the first worker starts, so that marked processes can be found whatever happens.
        write_note(record, {"node_incarnation": self.node_incarnation, "pid": os.getpid()})

    @cached_property
    def secret(self) -> str:
        """What the node proves itself by to its master. It is made when it is first asked for, and stays with the
        folder. Raises OSError.
        """
        return _secret(self._secret_file)

    def release(self) -> None:
        """Releases the folder; the end of the process does that too."""
        os.close(self._lock)

    def _take(self, folder: Path) -> None:
        # A killed agent keeps its lock until the kernel has cleaned up: wait a moment.
        deadline = time.monotonic() + 2
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    pid = os.pread(self._lock, 32, 0).decode(errors="replace").strip() or "unknown"
                    raise FolderInUse(
                        f"Another agent (process {pid}) uses {folder}. "
                        "Stop it, or use a different folder for this one (--folder)"
                    ) from None
                time.sleep(0.01)
            else:
                return


def _secret(file: Path) -> str:
    """The secret in a file, which is made if it is missing or unusable. Raises OSError."""
    try:
        text = file.read_text("ascii")
    except (FileNotFoundError, UnicodeDecodeError):
        text = ""
    if SECRET.fullmatch(text):
        return text
    text = secrets.token_hex(SECRET_BYTES)
    partial = file.with_name(f".{file.name}.windrow-partial")
    partial.unlink(missing_ok=True)
    # 0600 from the beginning, and on the disk before a master may know it.
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as out:
        out.write(text)
    put_in_place(partial, file)
    return text
