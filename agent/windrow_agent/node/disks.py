"""Brings what scripts have written to disk, and tries whether a disk works."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path

_TRIED_BYTES = 1 << 20
"""So much free space is little enough that a disk counts as full."""


def sync_places(places: Iterable[str]) -> None:
    """Writes to disk all of the file systems that these files and folders are on, or will be. Blocks. Raises OSError.

    Whole file systems: nobody knows which files a script has written, and each is named in a folder that has to be
    written, too.
    """
    # Not at the top: the first run() waits for imports.
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    synced: set[int] = set()
    for place in places:
        descriptor = _open(place)
        if descriptor < 0:
            os.sync()
            return
        try:
            device = os.fstat(descriptor).st_dev
            if device in synced:
                continue
            if library.syncfs(descriptor):
                error = ctypes.get_errno()
                raise OSError(error, os.strerror(error), place)
            synced.add(device)
        finally:
            os.close(descriptor)


def try_disk(folder: Path) -> None:
    """Makes a file in a folder, brings it to the disk, and reads it again. Blocks.

    Raises OSError if that fails, if other bytes come back, or if nearly no space is left for users who are not root.
    """
    # Not at the top: the first run() waits for imports.
    from windrow.common.beneath import Folder

    content, name = os.urandom(_TRIED_BYTES), f".trial-{os.urandom(8).hex()}"
    # No script can write above the folder, so links there are followed; the folder itself may not be one.
    with Folder.open(os.path.realpath(folder.parent)) as above, above.folder(folder.name) as opened:
        space = os.fstatvfs(opened.descriptor)
        if space.f_blocks and space.f_bavail * space.f_frsize < _TRIED_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
        descriptor = opened.create(name)
        try:
            with open(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
                # Otherwise, what is read comes from memory.
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            with open(opened.read(name), "rb") as file:
                if file.read() != content:
                    raise OSError(errno.EIO, "a file did not come back as it was written", str(folder))
        finally:
            opened.remove(name)


def _open(place: str) -> int:
    """A place that is a folder, else the folder that it is in, or will be; -1 if it cannot be opened."""
    # The folder itself may be another file system than the one above.
    for folder in (Path(place), *Path(place).parents):
        try:
            return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            break
    return -1
