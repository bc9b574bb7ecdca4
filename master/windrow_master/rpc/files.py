"""Lists and reads folders that clients may download from."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from windrow.common.trees import walk

CHUNK_BYTES = 1 << 20


def walk_files(root: Path) -> list[tuple[str, int]]:
    """(path below `root`, bytes) of every regular file, sorted; links are not followed.

    Takes seconds where there are a million: not for the event loop's thread.
    """
    found: list[tuple[str, int]] = []
    for folder, _, names in walk(root):
        for name in names:
            path = Path(folder, name)
            try:
                status = path.lstat()
            except FileNotFoundError:
                continue
            if stat.S_ISREG(status.st_mode):
                found.append((str(path.relative_to(root)), status.st_size))
    return sorted(found)


def file_below(root: Path, name: str) -> Path | None:
    """A regular file by its path below `root`, as `walk_files` names it; None if it does not exist.

    Names come from peers: nothing outside `root` is found, and no link is followed.
    """
    path = root
    parts = name.split("/")
    try:
        for part in parts:
            if part in ("", ".", "..") or "\0" in part or path.is_symlink():
                return None
            path = path / part
        return path if stat.S_ISREG(path.lstat().st_mode) else None
    except OSError:
        return None


def read_file_chunks(path: Path, offset: int) -> Iterator[bytes]:
    """The bytes of a file from `offset` to its current end: none where that is before it."""
    with path.open("rb") as file:
        # Offsets come from peers, and may be no number of a file.
        file.seek(min(offset, os.fstat(file.fileno()).st_size))
        while chunk := file.read(CHUNK_BYTES):
            yield chunk
