"""Goes through folders that scripts or strangers may have made: thousands deep in each other, deeper than a path may be
long, and changed meanwhile.

`os.walk` (before Python 3.12), `os.fwalk`, `Path.rglob`, `shutil.copytree` and `os.makedirs` call themselves for each
folder, and fail with a RecursionError in some hundred of them. Nothing here does. (To remove: `removal`.)
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

from windrow.errors import UsageError

PATH_BYTES_MAX = 4095
"""The longest path that Linux takes."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

OnError = Callable[[OSError], object]


class NestedTooDeep(OSError):
    """Something lies so deep that no path leads to it."""

    def __init__(self, folder: str) -> None:
        """`folder`: one of those above it."""
        what = "the folders in it are nested deeper than a path may be long; move what is in them up"
        super().__init__(errno.ENAMETOOLONG, what, folder)


class _Way(NamedTuple):
    """A folder, and the one through which the walk came."""

    device: int
    inode: int
    above: _Way | None


def walk(
    top: str | os.PathLike[str], on_error: OnError = lambda error: None, *, follow_links: bool = False
) -> Iterator[tuple[str, list[str], list[str]]]:
    """The path of each folder, its folders and its other names, as `os.walk` gives them: from above, and what the
    caller takes out of the list of folders is left out.

    `on_error` gets what cannot be read, which is left out then: raise there to end the walk. `follow_links`: into
    folders, too, but not into one that contains the link.
    """
    waiting: list[tuple[str, _Way | None, bool]] = [(os.fspath(top), None, False)]
    while waiting:
        path, above, is_link = waiting.pop()
        way = above
        try:
            if follow_links:
                status = os.stat(path)  # noqa: PTH116  text
                if is_link and _leads_back(status, above):
                    continue
                way = _Way(status.st_dev, status.st_ino, above)
            folders, names, links = _split(path)
        except OSError as error:
            on_error(error)
            continue
        yield path, folders, names
        for name in reversed(folders):
            if follow_links or name not in links:
                waiting.append((os.path.join(path, name), way, name in links))  # noqa: PTH118  text


def _leads_back(status: os.stat_result, way: _Way | None) -> bool:
    while way is not None:
        if (way.device, way.inode) == (status.st_dev, status.st_ino):
            return True
        way = way.above
    return False


def _split(path: str) -> tuple[list[str], list[str], set[str]]:
    """The folders, the other names, and which of the folders are links."""
    folders: list[str] = []
    names: list[str] = []
    links: set[str] = set()
    with os.scandir(path) as entries:
        for entry in entries:
            try:
                is_folder = entry.is_dir()
            except OSError:
                is_folder = False
            (folders if is_folder else names).append(entry.name)
            if is_folder and entry.is_symlink():
                links.add(entry.name)
    return folders, names, links


class Entry(NamedTuple):
    """Something below an open folder. `holder`: the folder that holds it, open until the next entry is asked for.
    `above`: the names of the folders between; it changes as the walk goes on.
    """

    holder: int
    name: str
    status: os.stat_result
    above: list[str]

    @property
    def is_folder(self) -> bool:
        """Whether it is one, and no link to one."""
        return stat.S_ISDIR(self.status.st_mode)

    @property
    def path(self) -> str:
        """Its path below the open folder."""
        return "/".join([*self.above, self.name])


class _Level(NamedTuple):
    """A folder on the way down: which one it is, and those in it that are still to be entered."""

    identity: tuple[int, int]
    waiting: list[str]


def entries_below(
    top: int,
    on_error: OnError = lambda error: None,
    *,
    path_max: int = 0,
    enter: Callable[[Entry], bool] = lambda entry: True,
) -> Iterator[Entry]:
    """Everything below an open folder, in no order, but a folder before what is in it. No link is followed, and no path
    used: it costs the same however deep it goes, and at most three descriptors.

    `on_error` gets what cannot be read, which is left out then: raise there to end the walk. `path_max`: the longest
    path below the folder, in bytes; longer ones are left out, after a NestedTooDeep for `on_error`; 0: none is too
    long. `enter`: whether to look into a folder, asked before what is below it is found. What goes meanwhile is left
    out. Raises OSError if the folder itself cannot be read.
    """
    above: list[str] = []
    levels: list[_Level] = []
    lengths = [0]
    here = os.open(".", _FOLDER, dir_fd=top)
    try:
        while True:
            waiting: list[str] = []
            for name in _readable_names(here, on_error, is_top=not levels):
                if path_max and lengths[-1] + len(os.fsencode(name)) > path_max:
                    on_error(NestedTooDeep("/".join(above[:5])))
                    break
                try:
                    status = os.stat(name, dir_fd=here, follow_symlinks=False)
                except FileNotFoundError:
                    continue
                entry = Entry(here, name, status, above)
                yield entry
                if entry.is_folder and enter(entry):
                    waiting.append(name)
            levels.append(_Level(_identity(here), waiting))
            while (below := _next(here, levels[-1].waiting, on_error)) is None:
                levels.pop()
                if not levels:
                    return
                here = _up(here, top, above, levels, lengths)
            os.close(here)
            name, here = below
            above.append(name)
            lengths.append(lengths[-1] + len(os.fsencode(name)) + 1)
    finally:
        os.close(here)


def _readable_names(folder: int, on_error: OnError, *, is_top: bool) -> list[str]:
    try:
        return _names(folder)
    except OSError as error:
        if is_top:
            raise
        on_error(error)
        return []


def _names(folder: int) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries]


def _identity(folder: int) -> tuple[int, int]:
    status = os.fstat(folder)
    return status.st_dev, status.st_ino


def _next(here: int, waiting: list[str], on_error: OnError) -> tuple[str, int] | None:
    """The next folder to enter, opened."""
    while waiting:
        name = waiting.pop()
        try:
            return name, os.open(name, _FOLDER, dir_fd=here)
        except FileNotFoundError:
            continue
        except OSError as error:
            on_error(error)
    return None


def _up(here: int, top: int, above: list[str], levels: list[_Level], lengths: list[int]) -> int:
    """Go from a folder to the one above it, and close it: by `..`, if that is where the walk came from. Where a script
    has moved something, the nearest folder above that is still in its place; what waits in the others is left out.
    """
    above.pop()
    lengths.pop()
    found = -1
    with suppress(OSError):
        found = os.open("..", _FOLDER, dir_fd=here)
    if found < 0 or _identity(found) != levels[-1].identity:
        if found >= 0:
            os.close(found)
        found = os.open(".", _FOLDER, dir_fd=top)
        for depth, name in enumerate(above):
            below = -1
            with suppress(OSError):
                below = os.open(name, _FOLDER, dir_fd=found)
            if below < 0 or _identity(below) != levels[depth + 1].identity:
                if below >= 0:
                    os.close(below)
                del above[depth:], levels[depth + 1 :], lengths[depth + 1 :]
                break
            os.close(found)
            found = below
    os.close(here)
    return found


def copy_tree(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    copy: Callable[[str, str], object] | None = None,
) -> None:
    """Copy a folder with all below it into another, which may exist. Links are followed. `copy`: of a file to a path;
    by default with its times and its mode (`shutil.copy2`). Raises OSError.
    """
    if copy is None:
        import shutil

        copy = shutil.copy2

    def fail(error: OSError) -> None:
        raise error

    for folder, _, names in walk(source, fail, follow_links=True):
        there = os.path.normpath(os.path.join(target, os.path.relpath(folder, source)))  # noqa: PTH118  text
        make_folders(there)
        for name in names:
            copy(os.path.join(folder, name), os.path.join(there, name))  # noqa: PTH118  text


def make_folders(path: str | os.PathLike[str]) -> None:
    """Make a folder and those above it, unless they are there. Raises OSError."""
    missing: list[str] = []
    place = os.path.abspath(path)  # noqa: PTH100  text
    while not os.path.isdir(place):  # noqa: PTH112
        try:
            os.mkdir(place)  # noqa: PTH102
        except FileNotFoundError:
            missing.append(place)
            place = os.path.dirname(place)  # noqa: PTH120
        except FileExistsError:
            if not os.path.isdir(place):  # noqa: PTH112
                raise
            break
        else:
            break
    for place in reversed(missing):
        try:
            os.mkdir(place)  # noqa: PTH102
        except FileExistsError:
            if not os.path.isdir(place):  # noqa: PTH112
                raise


def paths_named(pattern: str) -> list[str]:
    """What a pattern of a path names, in no order; `**` is any number of folders. Raises UsageError, where that leads
    too deep.
    """
    # Most commands need none.
    import glob

    try:
        return glob.glob(pattern, recursive=True)  # noqa: PTH207  text
    except RecursionError:
        raise UsageError(
            f"The folders that the pattern {pattern} leads into are nested too deep. Move the files up, or name a "
            "folder further down."
        ) from None
