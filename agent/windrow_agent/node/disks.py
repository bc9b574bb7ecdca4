"""Brings what scripts have written to disk."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


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
