"""Writes secrets for one owner only, whole or not at all, and hands folders to their owner."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from windrow.common.durable import put_in_place

SUBFOLDERS = ("outputs", "uploads")
"""What the master itself writes in a data folder."""


class Owner(NamedTuple):
    """A user and a group, by number."""

    uid: int
    gid: int


class NotWritable(OSError):
    """A file or folder cannot be given to its owner; the text says what to do."""


def write_secret(path: Path, content: bytes, owner: Owner | None, mode: int = 0o400) -> None:
    """Put a file in its place, for one owner only; its folder is made. Raises OSError, NotWritable.

    If `owner` is None, an existing file keeps its owner, and a new one belongs to the user who runs this.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if owner is None and path.exists():
        status = path.stat()
        owner = Owner(status.st_uid, status.st_gid)
    partial = path.with_name(f".{path.name}.partial")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        os.fchmod(descriptor, mode)
        os.write(descriptor, content)
        if owner is not None:
            _give(path, owner, descriptor)
        put_in_place(partial, path, descriptor)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def read_if_there(path: Path) -> bytes | None:
    """Return the content of a file; None if it does not exist. Raises OSError."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def give_state(folder: Path, owner: Owner) -> None:
    """Give a master's state folder, with all that is in it, to its owner: an earlier owner may have been another user.

    Raises OSError, NotWritable.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _give(folder, owner)

    def fail(error: OSError) -> None:
        raise error

    for place, folders, files in os.walk(folder, onerror=fail):
        for path in (Path(place, name) for name in (*folders, *files)):
            if not path.is_symlink():
                _give(path, owner)


def give_data(folder: Path, owner: Owner) -> None:
    """Let its owner write to a data folder, without touching what is in it. Raises OSError, NotWritable.

    An empty folder is given to the owner; in any other, only the subfolders in which the master writes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        if not any(folder.iterdir()):
            _give(folder, owner)
            return
        for name in SUBFOLDERS:
            place = folder / name
            place.mkdir(exist_ok=True)
            _give(place, owner)
    except PermissionError as error:
        # Without the right to pass over permissions, root itself may neither read nor write in another user's folder.
        uid = folder.stat().st_uid
        if uid == owner.uid:
            return
        raise NotWritable(
            f"The data folder {folder} belongs to user {uid}, and user {owner.uid}, as whom Windrow runs, cannot "
            f"write there. Run it as that user (WINDROW_UID={uid} in .env), or make {' and '.join(SUBFOLDERS)} in "
            f"it for user {owner.uid}."
        ) from error


def _give(path: Path, owner: Owner, descriptor: int | None = None) -> None:
    """Raises NotWritable for who may not. `descriptor`: of the file that is to be at `path`."""
    where = path if descriptor is None else descriptor
    status = os.stat(where)  # noqa: PTH116  also a descriptor
    if (status.st_uid, status.st_gid) == owner:
        return
    try:
        os.chown(where, *owner)
    except PermissionError as error:
        raise NotWritable(
            f"{path} cannot be given to user {owner.uid} (group {owner.gid}): only root may do that. Run this as "
            f"root; or as user {owner.uid}, without --owner."
        ) from error
