"""Writes secrets for one owner only, whole or not at all, and hands folders to their owner.

This runs as root, in folders where others may write. So no link is followed when an owner is changed: files are named
within an open folder, and a folder that is itself a link is refused.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from windrow.common.durable import put_in_place
from windrow.common.trees import Entry, entries_below

from windrow_master.files.durable import make_durable

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
    make_durable(path.parent)
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

    def fail(error: OSError) -> None:
        raise error

    with _opened(folder, owner) as descriptor:
        _give(folder, owner, descriptor)
        for entry in entries_below(descriptor, fail):
            _give_entry(folder, entry, owner)


def give_data(folder: Path, owner: Owner) -> None:
    """Let its owner write to a data folder, without touching what is in it. Raises OSError, NotWritable.

    An empty folder is given to the owner; in any other, only the subfolders in which the master writes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with _opened(folder, owner) as descriptor:
            if not os.listdir(descriptor):  # noqa: PTH208  the open folder
                _give(folder, owner, descriptor)
                return
            for name in SUBFOLDERS:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, dir_fd=descriptor)
                with _opened(folder / name, owner, descriptor) as subfolder:
                    _give(folder / name, owner, subfolder)
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


@contextlib.contextmanager
def _opened(folder: Path, owner: Owner, within: int | None = None) -> Iterator[int]:
    """Open a folder, which must not be a link. `within`: the open folder that it is in."""
    try:
        name = folder if within is None else folder.name
        descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=within)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR) or not folder.is_symlink():
            raise
        raise NotWritable(
            f"{folder} is a link. Links are not followed when an owner is changed, since others may have made them. "
            f"Name the folder itself; or put a folder in place of the link, and give it to user {owner.uid}."
        ) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _give(path: Path, owner: Owner, descriptor: int) -> None:
    """Give an open file or folder to its owner. `path`: for messages. Raises NotWritable for who may not."""
    status = os.fstat(descriptor)
    if (status.st_uid, status.st_gid) != owner:
        with _only_root(path, owner):
            os.fchown(descriptor, *owner)


def _give_entry(folder: Path, entry: Entry, owner: Owner) -> None:
    """Give an entry below a folder to its owner; a link stays as it is. Raises NotWritable for who may not."""
    status = entry.status
    if not stat.S_ISLNK(status.st_mode) and (status.st_uid, status.st_gid) != owner:
        with _only_root(folder / entry.path, owner):
            # If somebody puts a link in its place meanwhile, this changes the link.
            os.chown(entry.name, *owner, dir_fd=entry.holder, follow_symlinks=False)


@contextlib.contextmanager
def _only_root(path: Path, owner: Owner) -> Iterator[None]:
    try:
        yield
    except PermissionError as error:
        raise NotWritable(
            f"{path} cannot be given to user {owner.uid} (group {owner.gid}): only root may do that. Run this as "
            f"root; or as user {owner.uid}, without --owner."
        ) from error
