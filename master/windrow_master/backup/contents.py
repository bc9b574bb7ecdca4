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

from windrow.common.beneath import Folder, LinkRefused, NotAFile
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
    if link := next(
        (name for name, (length, _) in entries.items() if length < 0 and not StateFiles.is_of_scripts(name)), ""
    ):
        raise BackupError(
            f"{files.note} names the link {link!r}, which leads to {entries[link][1]!r}. Windrow makes no links there, "
            "and would write and delete where this one leads. Whoever made this backup may mean harm; use another one."
        )
    if outside := next((name for name in entries if not _is_below(name)), ""):
        raise BackupError(
            f"{files.note} names {outside!r}, which is no file of a state folder. Whoever made this backup may mean "
            "harm; use another one."
        )
    return BackupNote(**{"left_out": [], **found}, files=entries)


def _is_below(name: str) -> bool:
    """Whether a name leads to something below a folder."""
    return "\0" not in name and not any(part in ("", ".", "..") for part in name.split("/"))


def entries_of(files: StateFiles, backup: Path, left_out: list[str]) -> Iterator[str]:
    """The regular files and links of a state folder that belong to a backup, but for the database, by their path below
    it. What goes meanwhile is left out, and so is the backup itself. Gets into `left_out`: the names of folders with
    paths that are too long. Raises OSError for what cannot be read, BackupError for a link that no script has made.
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
            if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)) or not belongs(entry):
                continue
            if stat.S_ISLNK(mode) and not StateFiles.is_of_scripts(entry.path):
                raise BackupError(
                    f"{files.folder / entry.path} is a link. What it leads to would not be in the backup. Windrow "
                    "makes no links there: put the files themselves in its place, or remove it."
                )
            yield entry.path
    finally:
        os.close(descriptor)


def digest_of(folder: Folder, name: str) -> tuple[int, str]:
    """The length and sha256 of a file below a folder; of a link, -1 and where it leads. Raises OSError."""
    if stat.S_ISLNK(folder.status(name).st_mode):
        return -1, folder.link_target(name)
    with open(folder.read(name), "rb", 0) as file:
        return os.fstat(file.fileno()).st_size, hashlib.file_digest(file, "sha256").hexdigest()


def copy_file(source: Folder, target: Folder, name: str) -> tuple[int, str] | None:
    """Copy a file or link below a folder to the same place below another, with its owner, mode and time; return what
    `digest_of` says of the copy. None: it is gone, or no file any more. Nothing is synced. Raises OSError.

    Both are reached by descriptors: scripts write in folders of a state folder, and may lay a link there meanwhile.
    """
    try:
        is_link = stat.S_ISLNK(source.status(name).st_mode)
        found = source.link_target(name) if is_link else source.read(name)
    except (FileNotFoundError, NotADirectoryError, LinkRefused, NotAFile):
        return None
    if isinstance(found, str):
        _make_like(source, target, name)
        target.make_link(name, found)
        return -1, found
    digest, length = hashlib.sha256(), 0
    with open(found, "rb", 0) as file:
        status = os.fstat(file.fileno())
        _make_like(source, target, name)
        with open(target.create(name), "wb", 0) as out:
            own_like(status, out.fileno())
            # Nothing in a state folder is set-user-ID but what a script has made so.
            os.fchmod(out.fileno(), status.st_mode & 0o777)
            while piece := file.read(_READ_BYTES):
                digest.update(piece)
                length += len(piece)
                view = memoryview(piece)
                while view:
                    view = view[out.write(view) or 0 :]
            os.utime(out.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
    return length, digest.hexdigest()


def _make_like(source: Folder, target: Folder, name: str) -> None:
    """Make the folders above a name that are missing, with the owners and modes of others. Raises OSError."""
    parts = name.split("/")[:-1]
    missing = []
    while parts:
        try:
            target.folder("/".join(parts)).close()
            break
        except FileNotFoundError:
            missing.append("/".join(parts))
            parts.pop()
    for above in reversed(missing):
        try:
            with source.folder(above) as like:
                status = os.fstat(like.descriptor)
        except (FileNotFoundError, NotADirectoryError, LinkRefused):
            # It is gone by now; the file is open.
            status = os.fstat(source.descriptor)
        target.make(above)
        with target.folder(above) as made:
            own_like(status, made.descriptor)
            os.fchmod(made.descriptor, stat.S_IMODE(status.st_mode) | stat.S_IRWXU)


def own_like(status: os.stat_result, target: Path | int) -> None:
    """Give a file or folder the owner of another one, if this is root's process. Raises OSError."""
    if os.geteuid() == 0:
        os.chown(target, status.st_uid, status.st_gid)


def verify(folder: Path, note: BackupNote) -> None:
    """Compare all files below a folder with what a note says of them. Raises BackupError, OSError."""
    with Folder.open(os.path.realpath(folder)) as opened:
        for name, expected in note.files.items():
            try:
                found = digest_of(opened, name)
            except (FileNotFoundError, NotADirectoryError):
                raise BackupError(f"{folder / name} is missing. Use another backup.") from None
            if found != expected:
                raise BackupError(
                    f"{folder / name} is damaged: it is not what was saved. Check that disk, and use another."
                )
