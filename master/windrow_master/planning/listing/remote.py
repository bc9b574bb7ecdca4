"""What an input in remote storage names: folders (prefixes), files (objects) and patterns, each as a stream of stamped
names.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from windrow.storage.errors import StorageError, Trouble
from windrow.storage.listing import walk_objects
from windrow.storage.objects import stat_object
from windrow.storage.urls import BadUrl, StorageUrl, parse_url

from windrow_master.planning.errors import DEPENDENCY_ERROR, USER_ERROR, PlanningError, shown
from windrow_master.planning.listing.entries import named_by_pattern
from windrow_master.planning.listing.outside import outside
from windrow_master.planning.listing.patterns import Pattern, compile_pattern, is_wild
from windrow_master.planning.listing.stamps import name_of, stamped
from windrow_master.planning.listing.walk import Note, Warn
from windrow_master.roots import Roots


class RemoteEntry(NamedTuple):
    """One place of an input, as `entries.Entry` is for folders of a file system; `url` is that of `folder`."""

    folder: bytes
    text: str
    url: StorageUrl
    file: bytes = b""
    pattern: Pattern | None = None
    leave_out: bytes = b""
    missing: str = ""
    """The error if nothing is there; checking beforehand would list the first page twice."""

    def names(self, warn: Warn, note: Note, after: bytes = b"") -> Iterator[list[bytes]]:
        """Lists of stamped names relative to `folder`, in order, those after `after`; stores have no folders to note.
        Raises PlanningError."""
        if self.file:
            if not after:
                yield [self.file]
            return
        found = self._found(after)
        yield from found if self.pattern is None else named_by_pattern(self, found, after)

    def _found(self, after: bytes) -> Iterator[list[bytes]]:
        pattern = self.pattern
        empty = not after
        with storage_errors():
            for chunk in walk_objects(self.url, name_of(after).decode()):
                names, empty = [], False
                for found in chunk:
                    name = found.name.encode()
                    if name != self.leave_out and (pattern is None or pattern.names_file(name)):
                        names.append(stamped(name, found.size, found.version))
                if names:
                    yield names
            if empty and self.missing:
                raise PlanningError(self._why_missing())

    def _why_missing(self) -> str:
        if stat_object(self.url) is None:
            return self.missing
        return (
            f"{shown(self.folder)} should be a folder, but is a file. Give the folder, or make the type of the input "
            "uri_file."
        )


@contextmanager
def storage_errors() -> Iterator[None]:
    """Turns errors of storage into PlanningError."""
    try:
        yield
    except StorageError as error:
        users = error.trouble in (Trouble.MISSING, Trouble.UNSUPPORTED, Trouble.CHANGED)
        raise PlanningError(str(error), USER_ERROR if users else DEPENDENCY_ERROR) from error


def remote_url(address: bytes, roots: Roots | None) -> StorageUrl:
    """The address, if it may be read. Raises PlanningError."""
    try:
        url = parse_url(address.decode())
    except (BadUrl, UnicodeDecodeError) as error:
        raise PlanningError(f"{error}. Check the path.") from error
    if roots is not None and not roots.hold(str(url)):
        raise outside(address, roots)
    return url


def remote_folder(address: bytes, text: str, roots: Roots | None) -> RemoteEntry:
    """All objects below a prefix; an empty prefix is found when it is listed. Raises PlanningError."""
    url = remote_url(address, roots)
    missing = f"The input {shown(address)} is empty. Check the path."
    return RemoteEntry(str(url).encode(), text, url, missing=missing)


def remote_file(address: bytes, text: str, roots: Roots | None) -> RemoteEntry:
    """One object; a prefix means all objects below it. Raises PlanningError."""
    url = remote_url(address, roots)
    missing = f"The input {shown(address)} does not exist in its store. Check the path."
    with storage_errors():
        found = stat_object(url)
    if found is None and url.is_web:
        raise PlanningError(missing)
    if found is None:
        return RemoteEntry(str(url).encode(), text, url, missing=missing)
    folder, _, _ = str(url).rpartition("/")
    name = stamped(found.name.encode(), found.size, found.version)
    return RemoteEntry(folder.encode(), text, parse_url(folder), file=name)


def remote_pattern(address: bytes, text: str, roots: Roots | None) -> RemoteEntry:
    """The objects that a pattern names; without a wildcard, the object or everything below it."""
    if not is_wild(address):
        return remote_file(address, text, roots)
    scheme, slashes, rest = address.partition(b"://")
    host, _, key = rest.partition(b"/")
    pattern = compile_pattern(key)
    url = remote_url(scheme + slashes + host + b"/" + pattern.base, roots)
    return RemoteEntry(str(url).encode(), text, url, pattern=pattern)
