"""The files of the data cache::

    <folder>/objects/<first two digits of the key>/<key>-<digest>    one entry
    <folder>/partial/<number>                                        one that arrives

The name of an entry says what it is of and what it has to hold, so there is no index that could disagree with it, and
one rename (or link) makes it whole. A digest is the sha256 of the sha256s of its pieces: these arrive in any order, and
each is counted as it came from the store, whatever happens to files.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from windrow.common.removal import discard_tree

from windrow_agent.fetch_process.messages import Piece

_NAME = re.compile(r"([0-9a-f]{64})-([0-9a-f]{64})")
BLOCK_BYTES = 4096
LINKED_MODE = 0o444
"""Of all entries: a link to one is read by the user of a job, who cannot get at the folder of the cache."""


class Damaged(Exception):
    """A file of the cache does not hold what its name says."""


class Entry(NamedTuple):
    """One file. `used_ns`: when it was used last, as its mtime says."""

    key: str
    digest: str
    size: int
    used_ns: int


def occupied(size: int) -> int:
    """What a file of this size takes on a disk, at least."""
    return max(1, -(-size // BLOCK_BYTES)) * BLOCK_BYTES


def digest_of(pieces: Iterable[bytes]) -> str:
    """The digest of content whose pieces have these sha256s."""
    return hashlib.sha256(b"".join(pieces)).hexdigest()


class CacheFolder:
    """The folder is only its owner's: no user of a job gets in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._objects = folder / "objects"
        self._partial = folder / "partial"
        self._last = 0

    def open(self, *, keep: bool) -> list[Entry]:
        """Makes the folder ready; returns the entries in it, those first that were used least recently. Raises OSError.

        `keep`: whether an earlier process may have left entries here that nobody else could change. Otherwise they are
        removed. What arrived when that process ended is removed always.
        """
        _make_own(self.folder)
        discard_tree(self._partial)
        if not keep:
            discard_tree(self._objects)
        _make_own(self._objects)
        _make_own(self._partial)
        return sorted(self._entries(), key=lambda entry: entry.used_ns)

    def _entries(self) -> Iterator[Entry]:
        for shelf in os.scandir(self._objects):
            if not shelf.is_dir(follow_symlinks=False):
                continue
            for file in os.scandir(shelf.path):
                name = _NAME.fullmatch(file.name)
                if name is not None and name[1].startswith(shelf.name) and file.is_file(follow_symlinks=False):
                    status = file.stat(follow_symlinks=False)
                    yield Entry(name[1], name[2], status.st_size, status.st_mtime_ns)

    def path(self, key: str, digest: str) -> Path:
        """Where an entry is."""
        return self._objects / key[:2] / f"{key}-{digest}"

    def new_partial(self) -> tuple[Path, int]:
        """A new file for content that arrives, and its descriptor. Raises OSError."""
        self._last += 1
        path = self._partial / str(self._last)
        return path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, LINKED_MODE)

    def take_in(self, source: Path, key: str, digest: str, *, link: bool) -> None:
        """Makes a complete file an entry. `link`: the file stays where it is, too. Raises OSError."""
        path = self.path(key, digest)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        if not link:
            source.replace(path)
            return
        path.unlink(missing_ok=True)
        os.link(source, path, follow_symlinks=False)
        os.utime(path, follow_symlinks=False)

    def remove(self, entries: Iterable[tuple[str, str]]) -> None:
        """Removes entries, each named by key and digest; what cannot be removed stays."""
        for key, digest in entries:
            try:
                self.path(key, digest).unlink(missing_ok=True)
            except OSError:
                continue

    def is_linked(self, key: str, digest: str) -> bool:
        """Whether an entry is in use as the file of a mini-batch: then its removal frees nothing."""
        try:
            return self.path(key, digest).lstat().st_nlink > 1
        except OSError:
            return False

    def link_out(self, key: str, digest: str, target: Path) -> bool:
        """Makes `target` a link to an entry; False if that is not possible, or the entry is not as it is made here.
        Raises FileNotFoundError if there is no entry, OSError if there is no room.
        """
        path = self.path(key, digest)
        found = path.lstat()
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) != LINKED_MODE:
            return False
        try:
            os.link(path, target, follow_symlinks=False)
        except OSError as error:
            if error.errno not in (errno.EMLINK, errno.EXDEV, errno.EPERM):
                raise
            return False
        return True

    def note_use(self, key: str, digest: str) -> None:
        """Notes that an entry is used now. Raises OSError."""
        os.utime(self.path(key, digest), follow_symlinks=False)

    def read_out(self, key: str, digest: str, pieces: Sequence[Piece], target: int | None) -> None:
        """Checks an entry, and writes it to the descriptor `target`, if there is one, each piece to its place.

        Raises Damaged, or FileNotFoundError, if it is of no use; other OSErrors are of the target.
        """
        path = self.path(key, digest)
        try:
            source = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise Damaged(f"{path} cannot be opened: {error}") from error
        try:
            sums = []
            for piece in pieces:
                data = _read(source, piece.end - piece.begin, path)
                sums.append(hashlib.sha256(data).digest())
                if target is not None:
                    write_at(target, memoryview(data), piece.at)
            if _read(source, 1, path, exactly=False) or digest_of(sums) != digest:
                raise Damaged(f"{path} does not hold what was fetched")
        finally:
            os.close(source)


def _make_own(folder: Path) -> None:
    """Makes a folder that only its owner enters. A link in its place, which a script may have laid under an agent that
    confined none, is removed. Raises OSError.
    """
    if folder.is_symlink():
        folder.unlink()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)


def _read(source: int, length: int, path: Path, *, exactly: bool = True) -> bytes:
    data = b""
    try:
        while len(data) < length and (more := os.read(source, length - len(data))):
            data = data + more if data else more
    except OSError as error:
        raise Damaged(f"{path} cannot be read: {error}") from error
    if exactly and len(data) < length:
        raise Damaged(f"{path} is cut short")
    return data


def write_at(descriptor: int, data: memoryview, at: int) -> None:
    """Writes all of `data` at a place in a file. Raises OSError."""
    while data:
        written = os.pwrite(descriptor, data, at)
        data = data[written:]
        at += written
