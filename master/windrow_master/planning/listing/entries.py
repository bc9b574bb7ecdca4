"""Entries of an input: folders, files and patterns, each as a stream of file names that can be resumed."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from windrow_master.planning.errors import PlanningError, shown
from windrow_master.planning.listing.outside import outside
from windrow_master.planning.listing.patterns import Pattern, compile_pattern, is_wild
from windrow_master.planning.listing.walk import Guard, Note, Warn, walk
from windrow_master.roots import Roots

Keep = Callable[[bytes], bool]


class Entry(NamedTuple):
    """An entry of an input. `folder` is absolute; `file`: a single name in it; else `pattern`, else everything below.

    `text`: the entry as the user wrote it, for messages; `roots`: where all files have to be; anywhere if None.
    """

    folder: bytes
    text: str
    roots: Roots | None = None
    file: bytes = b""
    pattern: Pattern | None = None
    leave_out: bytes = b""

    def names(self, warn: Warn, note: Note, after: bytes = b"") -> Iterator[list[bytes]]:
        """Lists of file names relative to `folder`, in order, those after `after`. Raises PlanningError."""
        if self.file:
            if not after:
                note(self.folder)
                note(os.path.join(self.folder, self.file))
                yield [self.file]
            return
        found = self._found(warn, note, after)
        yield from found if self.pattern is None else named_by_pattern(self, found, after)

    def _found(self, warn: Warn, note: Note, after: bytes) -> Iterator[list[bytes]]:
        pattern = self.pattern
        guard = None if self.roots is None else Guard(self.roots)
        descend, wanted = (pattern.leads_into, pattern.names_file) if pattern else (None, None)
        for chunk in walk(self.folder, warn, after, descend, guard, note, wanted):
            names = [name for name in chunk if pattern.names_file(name)] if pattern else chunk
            if self.leave_out and self.leave_out in names:
                names.remove(self.leave_out)
            if guard is not None:
                guard.check_names(self.folder, names)
            if names:
                yield names


class AnyEntry(Protocol):
    """An entry of an input, in a file system or (`remote.RemoteEntry`) in remote storage."""

    @property
    def folder(self) -> bytes:
        """What names are relative to: an absolute path, or an address in a store."""

    @property
    def text(self) -> str:
        """The entry as the user wrote it, for messages."""

    @property
    def file(self) -> bytes:
        """The name, if the entry is one file."""

    @property
    def pattern(self) -> Pattern | None:
        """The pattern that names have to match."""

    def names(self, warn: Warn, note: Note, after: bytes = b"") -> Iterator[list[bytes]]:
        """Lists of names in order, those after `after`. `note`: as in `walk`."""
        ...


def named_by_pattern(entry: AnyEntry, chunks: Iterator[list[bytes]], after: bytes) -> Iterator[list[bytes]]:
    """The names that a pattern has found. Raises PlanningError at the end if there is none: in Azure ML, too, data that
    is not there is no empty data.
    """
    is_empty = not after
    for chunk in chunks:
        is_empty = False
        yield chunk
    if is_empty:
        raise PlanningError(
            f'The pattern "{entry.text}" names no files below {shown(entry.folder)}. Check it, or take it out: each '
            "pattern has to name at least one file."
        )


def folder_entry(path: bytes, text: str, roots: Roots | None) -> Entry:
    """All files below a folder. Raises PlanningError if it is not a folder."""
    if not stat.S_ISDIR(_stat(path, text, roots).st_mode):
        raise PlanningError(
            f"{shown(path)} should be a folder, but is a file. Give the folder, or make the type of the input uri_file."
        )
    return Entry(path, text, roots)


def file_entry(path: bytes, text: str, roots: Roots | None) -> Entry:
    """One file; a folder means all files below it. Raises PlanningError if there is neither."""
    mode = _stat(path, text, roots).st_mode
    if stat.S_ISDIR(mode):
        return Entry(path, text, roots)
    if not stat.S_ISREG(mode):
        raise PlanningError(f"{shown(path)} is neither a file nor a folder (it is a pipe, socket or device).")
    folder, name = os.path.split(path)
    return Entry(folder, text, roots, file=name)


def pattern_entry(start: bytes, text: bytes, roots: Roots | None) -> Entry:
    """The files that a pattern names, relative to the folder `start`.

    A pattern without a wildcard names a file, or a folder and everything in it.
    """
    readable = shown(text)
    if not is_wild(text):
        return file_entry(os.path.normpath(os.path.join(start, text)), readable, roots)
    pattern = compile_pattern(text)
    folder = os.path.normpath(os.path.join(start, pattern.base))
    if not stat.S_ISDIR(_stat(folder, readable, roots).st_mode):
        raise PlanningError(f'The pattern "{readable}" names files below {shown(folder)}, which is not a folder.')
    return Entry(folder, readable, roots, pattern=pattern)


def common_root(entries: Sequence[AnyEntry]) -> bytes:
    """The folder to which the names of all entries are relative; `b""`: names have to be absolute."""
    folders = {entry.folder for entry in entries}
    return folders.pop() if len(folders) == 1 else b""


def nothing_found(path: bytes, entries: Sequence[AnyEntry]) -> PlanningError:
    """The error for an input without any file."""
    if len(entries) == 1 and entries[0].pattern is None:
        return PlanningError(
            f"The input {shown(path)} contains no files. Check the path; an input needs at least one file."
        )
    texts = ", ".join(f'"{entry.text}"' for entry in entries) or "no paths"
    return PlanningError(
        f"The input {shown(path)} names no files ({texts}). Check its paths; an input needs at least one file."
    )


def _stat(path: bytes, text: str, roots: Roots | None) -> os.stat_result:
    """The status of a path. Nothing is revealed about paths outside the roots."""
    if roots is not None and not roots.hold(path):
        raise outside(path, roots)
    try:
        return os.stat(path)
    except OSError as error:
        named = "" if shown(path).endswith(text) else f' (from "{text}")'
        missing = isinstance(error, FileNotFoundError)
        what = "does not exist on the master's machine" if missing else f"cannot be accessed: {error.strerror}"
        raise PlanningError(f"The input {shown(path)}{named} {what}. Check the path.") from error
