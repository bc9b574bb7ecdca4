"""The folder of a node's environments, which several agents on one machine may share.

    <folder>/<digest>/                 an environment, complete or being built
    <folder>/<digest>/windrow.json     there if it is complete; its mtime is the time of the last use
    <folder>/<digest>.lock             flock: exclusive while it is built or removed, shared while it is used

Invariants:
1. An environment with a `windrow.json` is complete: that file is written last, synced, and renamed into place.
2. Nobody writes to or removes an environment without its exclusive lock. uv inherits the lock, so if the agent dies,
   the lock holds for as long as uv writes. A shared lock needs read access only, so another user's environments can be
   used.
3. An incomplete environment is removed before it is built again.

An environment is built in its final place and never renamed: its programs contain the path of their interpreter.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from windrow.common.durable import write_whole

MARK = "windrow.json"
KEPT = 20
KEPT_BYTES = 64 << 30
UNUSED_S = 60 * 24 * 3600.0
"""Limits for environments that nobody uses: their number, their bytes in all, and the time since the last use."""


@dataclass(slots=True)
class Lock:
    """A held lock of one environment; release it."""

    descriptor: int

    def release(self) -> None:
        """May be called again."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class Cache:
    """The environments below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def place(self, digest: str) -> Path:
        """Where an environment is, or will be."""
        return self.folder / digest

    def python(self, digest: str) -> Path:
        """The path of an environment's interpreter."""
        return self.folder / digest / "bin" / "python"

    def try_lock(self, digest: str) -> Lock | None:
        """Takes the exclusive lock of an environment; None while another process holds it. Raises OSError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{digest}.lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Pruning also removes the lock file: this must still be the file at that path.
            if os.fstat(descriptor).st_ino == path.stat().st_ino:
                return Lock(descriptor)
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EAGAIN):
                os.close(descriptor)
                raise
        os.close(descriptor)
        return None

    def try_share(self, digest: str) -> Lock | None:
        """Takes a shared lock of a complete environment; None if it is not complete. Raises OSError."""
        if not self.is_whole(digest):
            return None
        try:
            descriptor = os.open(self.folder / f"{digest}.lock", os.O_RDONLY | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                os.close(descriptor)
                return None
        except FileNotFoundError:
            return None
        lock = Lock(descriptor)
        if self.is_whole(digest):
            return lock
        lock.release()
        return None

    def is_whole(self, digest: str) -> bool:
        """Whether an environment is there and complete."""
        return (self.folder / digest / MARK).exists()

    def note_use(self, digest: str) -> None:
        """Notes its use. Best effort: another user's cache may be read-only."""
        try:
            os.utime(self.folder / digest / MARK)
        except OSError:
            pass

    def remove(self, digest: str) -> None:
        """Removes an environment; the caller holds its exclusive lock."""
        place = self.folder / digest
        try:
            (place / MARK).unlink(missing_ok=True)
        except NotADirectoryError:
            place.unlink()
        shutil.rmtree(place, ignore_errors=True)

    def finish(self, digest: str, facts: dict[str, object]) -> None:
        """Marks an environment as complete, durably. Raises OSError."""
        place = self.folder / digest
        # After a power failure, a marked environment must not lack files.
        os.sync()
        content = json.dumps(facts | {"bytes": _size(place)}, indent=2).encode()
        write_whole(place / MARK, content, partial=place / f"{MARK}.partial")

    def prune(self) -> list[str]:
        """Removes unused environments beyond the limits, the longest unused first; returns their digests.

        Best effort: another user's environments stay.
        """
        found: list[tuple[float, int, str]] = []
        for mark in self.folder.glob(f"*/{MARK}"):
            try:
                used = mark.stat().st_mtime
                size = json.loads(mark.read_text()).get("bytes", 0)
            except (OSError, ValueError):
                continue
            found.append((used, size, mark.parent.name))
        removed, kept_bytes = [], 0
        for number, (used, size, digest) in enumerate(sorted(found, reverse=True), 1):
            kept_bytes += size
            if number <= KEPT and kept_bytes <= KEPT_BYTES and time.time() - used <= UNUSED_S:
                continue
            try:
                lock = self.try_lock(digest)
                if lock is None:
                    continue  # in use
                try:
                    self.remove(digest)
                    (self.folder / f"{digest}.lock").unlink(missing_ok=True)
                    removed.append(digest)
                finally:
                    lock.release()
            except OSError:
                continue
        return removed


def _size(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(f"{parent}/{name}").st_size
            except OSError:
                continue
    return total
