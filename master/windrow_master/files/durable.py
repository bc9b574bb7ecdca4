"""Folders whose names are synced to the disk: without that, a loss of power takes them, and all that is in them.

Also tells a full disk from a broken one.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT)

NO_FOLDER_SYNC = (errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.ENOSYS)
"""What file systems answer that keep no folders of their own (shares, FUSE): there is nothing to bring to a disk."""


def is_full(error: BaseException) -> bool:
    """Whether an error means that there is no room: nothing is broken."""
    return isinstance(error, OSError) and error.errno in _FULL_ERRORS


def make_durable(folder: Path, root: Path | None = None) -> None:
    """Make a folder, with those above it; on return their names are on the disk. Raises OSError.

    `root`: a folder above it that is durable; names below it are synced even where they are there already: the
    process that made them may have been killed before it could. None: the first folder that is there.
    """
    top = root or next(place for place in (folder, *folder.parents) if place.is_dir())
    folder.mkdir(parents=True, exist_ok=True)
    while folder not in (top, folder.parent):
        folder = folder.parent
        sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk. Raises OSError, but not where the system has no way to do it."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:
        # A folder that may be written, but not read, cannot be synced.
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in NO_FOLDER_SYNC:
            raise
    finally:
        os.close(descriptor)
