"""Walking and reading folders that clients may download from."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

CHUNK_BYTES = 1 << 20


def walk_files(root: Path) -> list[tuple[str, int]]:
    """(path below `root`, bytes) of every regular file, sorted; links are not followed."""
    found: list[tuple[str, int]] = []
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder, name)
            try:
                status = path.lstat()
            except FileNotFoundError:
                continue
            if stat.S_ISREG(status.st_mode):
                found.append((str(path.relative_to(root)), status.st_size))
    return sorted(found)


def read_file_chunks(path: Path, offset: int) -> Iterator[bytes]:
    """The bytes of a file from `offset` to its present end."""
    with path.open("rb") as file:
        file.seek(offset)
        while chunk := file.read(CHUNK_BYTES):
            yield chunk
