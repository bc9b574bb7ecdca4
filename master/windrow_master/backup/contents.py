"""Which files of a state folder a backup holds, and the list of them that it carries.

A backup is a folder: `state/`, and `backup.json`, a note that is written last and names every file with its length and
sha256.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from windrow.common.notes import NoteDamaged, read_note
from windrow.common.trees import Entry, NestedTooDeep, entries_below

from windrow_master.files.errors import StateError
from windrow_master.files.state_files import StateFiles

FORMAT = 1
PATH_MAX = 3000
"""Of a path below the state folder, in bytes: a backup can then be made and restored below folders with 1,000."""
_READ_BYTES = 1 << 20


class BackupError(StateError):
    """A backup cannot be made, or brought back. The text says why, and what to do."""


class BackupFiles(NamedTuple):
    """The places in a backup."""

    folder: Path

    @property
    def state(self) -> Path:
        """What becomes a state folder."""
        return self.folder / "state"

    @property
    def note(self) -> Path:
        """The note that makes it whole."""
        return self.folder / "backup.json"


class BackupNote(NamedTuple):
    """What a backup says of itself. `files`: path below `state/` -> length and sha256; of links: -1 and where to.
    `left_out`: folders in which scripts have nested others deeper than a backup can hold.
    """

    time: float
    windrow_version: str
    schema: int
    incarnation: int
    jobs: int
    files: dict[str, tuple[int, str]]
    left_out: list[str]

    def to_json(self) -> dict[str, Any]:
        """Return the content of the note."""
        return {"format": FORMAT, **self._asdict()}

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(length for length, _ in self.files.values() if length > 0)


def read_backup_note(files: BackupFiles) -> BackupNote:
    """Return the note of a backup. Raises BackupError, OSError."""
    try:
        found = read_note(files.note)
    except NoteDamaged as error:
        raise BackupError(f"{error}. This backup cannot be trusted; use another one.") from error
    if found is None:
        raise BackupError(f"{files.folder} is not a whole backup: it has no {files.note.name}. Use another one.")
    if found.pop("format") != FORMAT:
        raise BackupError(f"{files.folder} was made by another version of Windrow. Restore it with that version.")
    entries = {name: (int(length), str(digest)) for name, (length, digest) in found.pop("files").items()}
    return BackupNote(**{"left_out": [], **found}, files=entries)


def entries_of(files: StateFiles, backup: Path, left_out: list[str]) -> Iterator[str]:
    """The regular files and links of a state folder that belong to a backup, but for the database, by their path below
    it. What goes meanwhile is left out, and so is the backup itself. Gets into `left_out`: the names of folders with
    paths that are too long. Raises OSError for what cannot be read.
    """
    root = files.folder.resolve()
    own = {str(backup.resolve().relative_to(root))} if backup.resolve().is_relative_to(root) else set()
    not_saved = files.not_backed_up() | own

    def belongs(entry: Entry) -> bool:
        return not entry.name.endswith(".partial") and entry.path not in not_saved

    def note(error: OSError) -> None:
        if not isinstance(error, NestedTooDeep):
            raise error
        left_out.append(str(error.filename))

    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for entry in entries_below(descriptor, note, path_max=PATH_MAX, enter=belongs):
            mode = entry.status.st_mode
            if (stat.S_ISREG(mode) or stat.S_ISLNK(mode)) and belongs(entry):
                yield entry.path
    finally:
        os.close(descriptor)


def digest_of(path: Path) -> tuple[int, str]:
    """The length and sha256 of a file; of a link, -1 and where it leads. Raises OSError."""
    if path.is_symlink():
        return -1, str(path.readlink())
    with path.open("rb", 0) as file:
        return os.fstat(file.fileno()).st_size, hashlib.file_digest(file, "sha256").hexdigest()


def copy_file(source: Path, target: Path) -> tuple[int, str] | None:
    """Copy a file or link with its owner, mode and time; return what `digest_of` says of the copy. None: it is gone, or
    no file any more. Nothing is synced. Raises OSError.
    """
    try:
        _make_like(source.parent, target.parent)
        status = source.lstat()
        if stat.S_ISLNK(status.st_mode):
            target.symlink_to(source.readlink())
            return -1, str(target.readlink())
        descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        if source.is_symlink() or source.is_file():
            raise
        return None
    digest, length = hashlib.sha256(), 0
    with open(descriptor, "rb", 0) as file, target.open("xb", 0) as out:
        own_like(status, out.fileno())
        os.fchmod(out.fileno(), stat.S_IMODE(status.st_mode))
        while piece := file.read(_READ_BYTES):
            digest.update(piece)
            length += len(piece)
            view = memoryview(piece)
            while view:
                view = view[out.write(view) or 0 :]
        os.utime(out.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
    return length, digest.hexdigest()


def _make_like(source: Path, target: Path) -> None:
    """Make a folder, and those above it that are missing, with the owners and modes of others. Raises OSError."""
    missing = []
    while not target.is_dir():
        missing.append((source, target))
        source, target = source.parent, target.parent
    for like, folder in reversed(missing):
        status = like.stat()
        folder.mkdir()
        own_like(status, folder)
        folder.chmod(stat.S_IMODE(status.st_mode) | stat.S_IRWXU)


def own_like(status: os.stat_result, target: Path | int) -> None:
    """Give a file or folder the owner of another one, if this is root's process. Raises OSError."""
    if os.geteuid() == 0:
        os.chown(target, status.st_uid, status.st_gid)


def verify(folder: Path, note: BackupNote) -> None:
    """Compare all files below a folder with what a note says of them. Raises BackupError, OSError."""
    for name, expected in note.files.items():
        try:
            found = digest_of(folder / name)
        except FileNotFoundError:
            raise BackupError(f"{folder / name} is missing. Use another backup.") from None
        if found != expected:
            raise BackupError(
                f"{folder / name} is damaged: it is not what was saved. Check that disk, and use another."
            )
