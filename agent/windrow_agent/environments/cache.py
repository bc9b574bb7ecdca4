"""The folder of a node's environments, which several agents on one machine may share.

    <folder>/<digest>/                 an environment, complete or being built
    <folder>/<digest>.json             its note, there if it is complete; its mtime is the time of the last use
    <folder>/<digest>.lock             flock: exclusive while it is built or removed, shared while it is used
    <folder>/pythons/                  interpreters that uv has fetched (docs/contracts.md, section 4d)

Invariants:
1. An environment with a note is complete: the note is written last, synced, and renamed into place. It lies beside the
   environment, where no confined builder writes: code of a package cannot say that its environment is complete, nor
   what it is made of.
2. Nobody writes to or removes an environment without its exclusive lock. uv inherits the lock, so if the agent dies,
   the lock holds for as long as uv writes. A shared lock needs read access only, so another user's environments can be
   used.
3. An incomplete environment is removed before it is built again, or once nobody builds it any more.

An environment is built in its final place and never renamed: its programs contain the path of their interpreter.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from windrow.common.durable import write_whole
from windrow.common.removal import discard_tree
from windrow.common.trees import walk

PYTHONS = "pythons"
KEPT = 20
KEPT_BYTES = 64 << 30
UNUSED_S = 60 * 24 * 3600.0
"""Limits for environments that nobody uses: their number, their bytes in all, and the time since the last use."""


_DIGEST = re.compile(r"[0-9a-f]{64}")


class Kept(NamedTuple):
    """What a folder of environments takes. `size`: in bytes, of the complete ones. `unfinished`: builds that broke off,
    or go on."""

    complete: int
    size: int
    unfinished: int


def user_cache(environment: Mapping[str, str]) -> Path | None:
    """Where the environments are that all agents of a user on this machine share; None without a home."""
    cache = environment.get("XDG_CACHE_HOME") or (
        str(Path(home) / ".cache") if (home := environment.get("HOME", "")) else ""
    )
    return Path(cache) / "windrow" / "environments" if cache.startswith("/") else None


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

    def note(self, digest: str) -> Path:
        """The path of the note that an environment is complete."""
        return self.folder / f"{digest}.json"

    def try_lock(self, digest: str) -> Lock | None:
        """Takes the exclusive lock of an environment; None while another process holds it. Raises OSError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{digest}.lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
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
        return self.note(digest).exists()

    def note_use(self, digest: str) -> None:
        """Notes its use. Best effort: another user's cache may be read-only."""
        try:
            os.utime(self.note(digest), follow_symlinks=False)
        except OSError:
            pass

    def remove(self, digest: str) -> None:
        """Removes an environment; the caller holds its exclusive lock."""
        place, note = self.place(digest), self.note(digest)
        for path in (note, _partial(note)):
            path.unlink(missing_ok=True)
        if place.is_symlink() or place.is_file():
            place.unlink()
        discard_tree(place)

    def read_places(self, digest: str) -> list[Path]:
        """What must be readable to run a complete environment: its folder, and the Python that it was made from.

        Wherever its `bin/python` leads now: code of a package may have put another link there, which opens nothing.
        """
        place = self.place(digest)
        try:
            interpreter = str(json.loads(self.note(digest).read_text()).get("interpreter") or "")
        except (OSError, ValueError):
            interpreter = ""
        folder = Path(interpreter).parent
        return [place, folder, folder.parent] if interpreter else [place]

    def finish(self, digest: str, facts: dict[str, object]) -> None:
        """Marks an environment as complete, durably. Raises OSError."""
        # After a power failure, an environment with a note must not lack files.
        os.sync()
        content = json.dumps(facts | {"bytes": _size(self.place(digest))}, indent=2).encode()
        note = self.note(digest)
        write_whole(note, content, partial=_partial(note))

    def kept(self) -> Kept:
        """What the folder takes."""
        complete = self._complete()
        return Kept(len(complete), sum(size for _, size, _ in complete), len(self._unfinished()))

    def prune(self) -> list[str]:
        """Removes unused environments beyond the limits, the longest unused first, and what is left of builds that
        broke off; returns their digests.

        Best effort: another user's environments stay.
        """
        going, kept_bytes = self._unfinished(), 0
        for number, (used, size, digest) in enumerate(sorted(self._complete(), reverse=True), 1):
            kept_bytes += size
            if number > KEPT or kept_bytes > KEPT_BYTES or time.time() - used > UNUSED_S:
                going.append(digest)
        return [digest for digest in going if self._removed(digest)]

    def _complete(self) -> list[tuple[float, int, str]]:
        """The time of the last use, the bytes and the digest of each complete environment."""
        found: list[tuple[float, int, str]] = []
        for note in self.folder.glob("*.json"):
            if not _DIGEST.fullmatch(note.stem):
                continue
            try:
                used = note.stat().st_mtime
                size = json.loads(note.read_text()).get("bytes", 0)
            except (OSError, ValueError):
                continue
            found.append((used, size, note.stem))
        return found

    def _unfinished(self) -> list[str]:
        """The digests of which there is something, but no complete environment."""
        try:
            names = {path.name.partition(".")[0] for path in self.folder.iterdir()}
        except OSError:
            return []
        return sorted(name for name in names if _DIGEST.fullmatch(name) and not self.is_whole(name))

    def _removed(self, digest: str) -> bool:
        """Removes an environment with its lock; False if it is in use or being built, or another user's."""
        was_whole = self.is_whole(digest)
        try:
            lock = self.try_lock(digest)
            if lock is None:
                return False
            try:
                if self.is_whole(digest) and not was_whole:
                    return False  # it has been built meanwhile
                self.remove(digest)
                (self.folder / f"{digest}.lock").unlink(missing_ok=True)
            finally:
                lock.release()
        except OSError:
            return False
        return True


def _partial(note: Path) -> Path:
    return note.with_name(f"{note.name}.partial")


def _size(folder: Path) -> int:
    total = 0
    for parent, _, names in walk(folder):
        for name in names:
            try:
                total += os.lstat(f"{parent}/{name}").st_size
            except OSError:
                continue
    return total
