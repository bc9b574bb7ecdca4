"""Makes folders whose names are synced to the disk. Without that, a loss of power takes a folder with all its content.

Also distinguishes a full disk from a broken one.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from windrow.common.durable import sync_folder
from windrow.common.trees import make_folders

_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT)


def is_full(error: BaseException) -> bool:
    """Whether an error means that the disk is full, not broken."""
    return isinstance(error, OSError) and error.errno in _FULL_ERRORS


def make_durable(folder: Path, root: Path | None = None) -> None:
    """Make a folder and its parents. On return, their names are on the disk. Raises OSError.

    `root`: a parent that is durable already. All names below it are synced, even existing ones, because the process
    that made them may have been killed before it could sync. If None, the nearest existing folder counts as durable.
    """
    top = root or next(place for place in (folder, *folder.parents) if place.is_dir())
    make_folders(folder)
    while folder not in (top, folder.parent):
        folder = folder.parent
        sync_folder(folder)


def sync_file_system(path: Path) -> None:
    """Sync the whole file system that a file or folder is on: for many small files, that is far faster than one by one.
    Raises OSError.
    """
    import ctypes

    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(libc, "syncfs"):
            os.sync()
        elif libc.syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(descriptor)
