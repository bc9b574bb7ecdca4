"""Removes folders where scripts have written, however deep: `shutil.rmtree` and `os.fwalk` call themselves for each
folder, and fail with a RecursionError in some hundred of them.

No link is followed, and no path used twice: everything is reached from the open folder. What lies deeper is moved up
into it first, so the depth costs neither stack nor descriptors.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ROUNDS_MAX = 3
"""A process that still writes there may add something behind the removal."""


def remove_tree(folder: str | os.PathLike[str]) -> None:
    """Removes a folder and all below it. Raises OSError: FileNotFoundError, where there is none, NotADirectoryError for
    a file or a link, or the first of what could not be removed, at the end.
    """
    for _ in removal(folder):
        pass


def discard_tree(folder: str | os.PathLike[str]) -> None:
    """The same; what cannot be removed stays."""
    with suppress(OSError):
        remove_tree(folder)


@contextmanager
def temporary_tree(prefix: str, parent: str | os.PathLike[str] | None = None) -> Iterator[str]:
    """A new folder that only this user can read, below `parent` (None: the usual place), removed at the end with all
    that came into it. Raises OSError.
    """
    # Most commands need none.
    import tempfile

    folder = tempfile.mkdtemp(prefix=prefix, dir=parent)
    try:
        yield folder
    finally:
        discard_tree(folder)


def removal(folder: str | os.PathLike[str], most: int = 1000) -> Iterator[None]:
    """Removes a folder as `remove_tree` does, and yields after every `most` entries."""
    failed: list[OSError] = []
    done = 0
    root = os.open(folder, _FOLDER)
    try:
        for _ in range(_ROUNDS_MAX):
            failed.clear()
            waiting = _names(root)
            while waiting:
                name = waiting.pop()
                done += 1
                if done % most == 0:
                    yield
                try:
                    below = _open(root, name)
                    if below is None:
                        continue
                    try:
                        for entry in _names(below):
                            try:
                                if (moved := _move_up(below, entry, root)) is not None:
                                    waiting.append(moved)
                            except OSError as error:
                                failed.append(error)
                            done += 1
                            if done % most == 0:
                                yield
                    finally:
                        os.close(below)
                    os.rmdir(name, dir_fd=root)
                except OSError as error:
                    failed.append(error)
            if not _names(root):
                break
    finally:
        os.close(root)
    try:
        Path(folder).rmdir()
    except OSError as error:
        failed.append(error)
        raise failed[0] from None


def _names(folder: int) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries]


def _open(at: int, name: str) -> int | None:
    """A folder that is not empty, opened. Anything else is removed; then None."""
    with suppress(FileNotFoundError):
        if not stat.S_ISDIR(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=at)
            return None
        return os.open(name, _FOLDER, dir_fd=at)
    return None


def _move_up(at: int, name: str, root: int) -> str | None:
    """Removes an entry; moves a folder that is not empty up, and returns its name there."""
    with suppress(FileNotFoundError):
        if not stat.S_ISDIR(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=at)
            return None
        try:
            os.rmdir(name, dir_fd=at)
        except OSError:
            moved = f".{os.urandom(8).hex()}"
            os.rename(name, moved, src_dir_fd=at, dst_dir_fd=root)
            return moved
    return None
