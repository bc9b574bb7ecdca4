"""All files below a folder, sorted by path component in byte order, as a stream that can be resumed after any name.

Order: `a/z.csv` < `a-1.csv` < `a.csv`. Within a folder, entries of every kind are sorted by their raw name, and the
content of a subfolder takes the place of its name. So names rise strictly, and a resumed walk only needs the last name.
Reference: docs/reference/azure-ml/mltable.md#paths.
"""

from __future__ import annotations

import errno
import os
import stat
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from windrow.common.state_mark import STATE_MARK

from windrow_master.planning.errors import PlanningError, shown
from windrow_master.planning.listing.opening import entries_within
from windrow_master.planning.listing.outside import outside
from windrow_master.roots import Roots

CHUNK_FIRST = 4096
CHUNK_MAX = 65536
"""Names are yielded in lists: a short one first, so that the first mini-batches need not wait."""

Warn = Callable[[str], None]
Note = Callable[[bytes], None]
Descend = Callable[[bytes], bool]
Wanted = Callable[[bytes], bool]
_STATE_MARK = os.fsencode(STATE_MARK)


class _Folder:
    """A folder being walked: its sorted names, the positions of subfolders among them, and the progress of the walk."""

    def __init__(self, prefix: bytes, names: list[bytes], subfolders: list[int]) -> None:
        self.prefix = prefix
        self.names = names
        self.subfolders = subfolders
        self.at = 0
        self.next_subfolder = 0

    @property
    def is_state(self) -> bool:
        """Whether it is a state folder of Windrow: its files are not data, and change while they are listed."""
        at = bisect_left(self.names, _STATE_MARK)
        return at < len(self.names) and self.names[at] == _STATE_MARK


class _Entries(NamedTuple):
    names: list[bytes]
    subfolders: list[int]


class Guard:
    """Finds links that point outside the folders from which files may be read."""

    def __init__(self, roots: Roots) -> None:
        self.roots = roots
        self.outside: set[bytes] = set()
        """Names of files that are such links, relative to the folder that is walked."""

    def look(self, path: bytes, name: bytes) -> None:
        """Note the link at `path` if it points outside; `check_names` refuses it if the input asks for it."""
        if not self.roots.hold(path):
            self.outside.add(name)

    def check_names(self, folder: bytes, names: list[bytes]) -> None:
        """Raise PlanningError if one of these files is a link that points outside."""
        for name in names if self.outside else ():
            if name in self.outside:
                raise outside(os.path.join(folder, name), self.roots)


def walk(
    root: bytes,
    warn: Warn,
    after: bytes = b"",
    descend: Descend | None = None,
    guard: Guard | None = None,
    note: Note | None = None,
    wanted: Wanted | None = None,
) -> Iterator[list[bytes]]:
    """Yield lists of file names, relative to `root`.

    `after`: only later names. `descend(name)` says whether to enter a subfolder (default: all). `wanted(name)` says
    whether something that is left out is missed, if it might have been a file (default: all); it filters no files.
    Links to files and folders are followed. A link to a folder that contains it, a broken link, anything that is
    neither file nor folder, and a state folder of Windrow below `root` are left out with a warning. `guard` checks all
    links that are followed; `note` gets the path of each folder that is entered and of each link to a file. Raises
    PlanningError if a folder cannot be read, or is where the guard does not allow it.
    """
    size = CHUNK_FIRST
    chunk: list[bytes] = []
    look = _Look(warn, guard, note, descend, wanted)
    stack = [_open(root, b"", after.split(b"/") if after else [], look)]
    resume = after.split(b"/")[1:] if after else []
    while stack:
        folder = stack[-1]
        positions, at = folder.subfolders, folder.at
        end = positions[folder.next_subfolder] if folder.next_subfolder < len(positions) else len(folder.names)
        while at < end:
            part = folder.names[at : min(end, at + size - len(chunk))]
            at += len(part)
            chunk += [folder.prefix + name for name in part] if folder.prefix else part
            if len(chunk) >= size:
                yield chunk
                chunk, size = [], CHUNK_MAX
        folder.at = end + 1
        if end == len(folder.names):
            stack.pop()
            resume = []
            continue
        folder.next_subfolder += 1
        name = folder.prefix + folder.names[end]
        # Only the first subfolder of a resumed path can be the one in which the walk stopped.
        inside = bool(resume) and after.startswith(name + b"/")
        path = os.path.join(root, name)
        if (descend is None or descend(name)) and not _is_loop(
            path, (os.path.join(root, open_.prefix) for open_ in stack), warn
        ):
            opened = _open(path, name + b"/", resume if inside else [], look)
            if opened.is_state:
                warn(f"{shown(path)} was left out: it is a state folder of Windrow.")
            else:
                stack.append(opened)
        resume = resume[1:] if inside else []
    if chunk:
        yield chunk


class _Look(NamedTuple):
    """What a walk tells of what it finds, and to whom: see `walk`."""

    warn: Warn
    guard: Guard | None
    note: Note | None
    descend: Descend | None
    wanted: Wanted | None

    def misses(self, name: bytes, *, is_link: bool) -> bool:
        """Whether something that is neither file nor folder might have been one that is asked for."""
        is_file = self.wanted is None or self.wanted(name)
        return is_file or (is_link and (self.descend is None or self.descend(name)))


def _open(path: bytes, prefix: bytes, resume: list[bytes], look: _Look) -> _Folder:
    names, subfolders = _entries(path, prefix, look)
    folder = _Folder(prefix, names, subfolders)
    if resume:
        # In the folders above it, the last name's folder is entered again; in its own, everything up to it is done.
        find = bisect_left if len(resume) > 1 else bisect_right
        folder.at = find(names, resume[0])
        folder.next_subfolder = bisect_left(subfolders, folder.at)
    return folder


def _entries(path: bytes, prefix: bytes, look: _Look) -> _Entries:
    guard, note = look.guard, look.note
    names: list[bytes] = []
    subfolders: list[bytes] = []
    others: list[tuple[bytes, bool]] = []
    add = names.append
    try:
        with entries_within(path, None if guard is None else guard.roots) as entries:
            for entry in entries:
                # For plain files and folders, which most are, these two cost no system call.
                try:
                    if entry.is_file():
                        add(entry.name)
                        if entry.is_symlink():
                            at = os.path.join(path, entry.name)
                            if guard is not None:
                                guard.look(at, prefix + entry.name)
                            if note is not None:
                                note(at)
                    elif entry.is_dir():
                        subfolders.append(entry.name)
                    else:
                        others.append((entry.name, entry.is_symlink()))
                except OSError:
                    others.append((entry.name, entry.is_symlink()))
    except OSError as error:
        raise unreadable_folder(path, error) from error
    if note is not None:
        note(path)
    for name, is_link in others:
        if look.misses(prefix + name, is_link=is_link):
            at = os.path.join(path, name)
            look.warn(f"{shown(at)} was left out: {_kind(at, is_link=is_link)}.")
    names += subfolders
    names.sort()
    return _Entries(names, sorted(bisect_left(names, name) for name in subfolders))


def unreadable_folder(path: bytes, error: OSError) -> PlanningError:
    """The error for a folder that cannot be listed."""
    advice = {
        errno.EACCES: "Give Windrow's user read permission (chmod a+rx), or remove it from the input.",
        errno.ENOENT: "It was removed while the input was being listed; submit the job again.",
        errno.ENAMETOOLONG: "The folders are nested too deep for the operating system; move the data up.",
    }.get(error.errno or 0, "Check the disk or network share.")
    return PlanningError(f"The folder {shown(path)} of the input cannot be read: {error.strerror}. {advice}")


def _is_loop(path: bytes, ancestors: Iterable[bytes], warn: Warn) -> bool:
    """Whether `path` is a link to a folder that contains it: really, or by the way the walk came.

    Only links are looked at: nothing else can close a loop.
    """
    try:
        if not stat.S_ISLNK(os.lstat(path).st_mode):
            return False
        target, place = os.path.realpath(path), os.path.realpath(os.path.dirname(path))
        holder = os.stat(path)
        inside = os.path.commonpath((target, place)) == target
        if inside or any(os.path.samestat(holder, os.stat(ancestor)) for ancestor in ancestors):
            warn(f"{shown(path)} was left out: it is a link to a folder that contains it.")
            return True
    except OSError as error:
        raise unreadable_folder(path, error) from error
    return False


def _kind(path: bytes, *, is_link: bool) -> str:
    try:
        mode = os.stat(path, follow_symlinks=is_link).st_mode
    except OSError as error:
        return f"a broken link ({error.strerror})" if is_link else f"it cannot be looked at ({error.strerror})"
    for test, name in (
        (stat.S_ISFIFO, "a named pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a device"),
    ):
        if test(mode):
            return f"{name}, not a file"
    return "neither file nor folder"
