"""All objects below a prefix, sorted by path component in byte order, as a stream that can resume after any name.

Stores sort keys as whole texts, so `a-1.csv` comes before `a/z.csv`. Inputs are ordered by path component, so the
folder `a` comes first (docs/reference/azure-ml/mltable.md#paths). The two orders differ only after a character that
sorts before `/` (a space, `-`, `.` …). When a name has such a character, the listing first yields what is in the folder
named by the part before it: found in the current page, else by one request. Memory holds one page for each such folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from windrow.storage.errors import StorageError, Trouble, explained
from windrow.storage.objects import Found, stat_object
from windrow.storage.retries import tried
from windrow.storage.stores import open_store
from windrow.storage.urls import StorageUrl
from windrow.storage.versions import version_of

PAGE = 1000
"""The size of a page, as stores have it."""

_LAST = "\U0010ffff"


def component_order(name: str) -> list[bytes]:
    """The sort key of a name."""
    return [part.encode() for part in name.split("/")]


def walk_objects(url: StorageUrl, after: str = "") -> Iterator[list[Found]]:
    """Yield lists of objects below an address, in order, after the name `after`. Raises StorageError.

    Markers of empty folders (objects whose key ends with `/`) are left out.
    """
    pages = _Pages(url)
    chunk: list[Found] = []
    for found in _sorted_all(pages, after) if _lists_unsorted(url) else _walk(pages, after):
        chunk.append(found)
        if len(chunk) == PAGE:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _lists_unsorted(url: StorageUrl) -> bool:
    """Whether the store may list out of order (hierarchical namespaces of Azure, directory buckets of S3): its listings
    are sorted in memory."""
    return url.scheme in ("abfss", "az") or url.root.endswith("--x-s3")


def _sorted_all(pages: _Pages, after: str) -> Iterator[Found]:
    least = component_order(after) if after else []
    # If an object and the marker of a folder have the same name, the object, which may be empty too, comes first.
    everything = sorted(
        (found for page in pages.read("", "") for found in page),
        key=lambda found: (component_order(found.name), not found.size),
    )
    last = ""
    for found in everything:
        if component_order(found.name) > least and found.name != last:
            last = found.name
            yield from pages.real(found)


def _walk(pages: _Pages, after: str) -> Iterator[Found]:
    if not after:
        yield from _below(pages, "", "", [])
        return
    # First the content of a folder with the last name itself, then what follows in each folder above it.
    yield from _below(pages, after + "/", "", [])
    while after:
        folder, slash, last = after.rpartition("/")
        prefix = folder + slash
        done = [prefix + last[:at] for at in range(1, len(last)) if last[at] < "/"] + [after]
        yield from _below(pages, prefix, after, done)
        after = folder


def _below(pages: _Pages, prefix: str, start: str, done: list[str]) -> Iterator[Found]:
    """Objects below a prefix in order. `start`: only those after this key. `done`: folders that were yielded
    already."""
    cursor = _Cursor(pages, prefix, start)
    while (found := cursor.peek()) is not None:
        name = found.name
        # Only folders that the current name starts with can still occur.
        done = [folder for folder in done if name.startswith(folder)]
        if covering := next((folder for folder in done if name.startswith(folder + "/")), ""):
            cursor.skip(covering + "/")
            continue
        for at in range(len(prefix) + 1, len(name)):
            folder = name[:at]
            if name[at] >= "/" or folder in done or folder.endswith("/"):
                continue
            done.append(folder)
            if cursor.may_hold(folder + "/"):
                yield from _below(pages, folder + "/", "", [])
        cursor.take()
        yield from pages.real(found)


class _Cursor:
    """A position in the store's own order of keys."""

    def __init__(self, pages: _Pages, prefix: str, start: str) -> None:
        self._source = pages
        self._prefix = prefix
        self._pages = pages.read(prefix, start)
        self._page: list[Found] = []
        self._at = 0
        self._last = start

    def peek(self) -> Found | None:
        """The object at this place, None at the end. Raises StorageError if the store does not keep its order.

        The marker of an empty folder is at the position of its key, which ends with `/`: after all objects whose names
        continue with a character before `/`, and after an object of the same name. So a marker that breaks the order of
        names is recognised here; any other needs a request (`_Pages.real`).
        """
        while True:
            while self._at >= len(self._page):
                page = next(self._pages, None)
                if page is None:
                    return None
                self._page, self._at = page, 0
            found = self._page[self._at]
            if not self._last or found.name.encode() > self._last.encode():
                return found
            if not found.size and f"{found.name}/".encode() > self._last.encode():
                self._at += 1
                continue
            raise StorageError(
                f"{self._source.url} lists {found.name!r} after {self._last!r}: this store does not sort its "
                "listings, so the order of the input would not be reliable. Copy the data to another store.",
                Trouble.UNSUPPORTED,
            )

    def take(self) -> None:
        """Move to the next object."""
        self._last = self._page[self._at].name
        self._at += 1

    def skip(self, folder: str) -> None:
        """Move past everything in a folder (its name ends with `/`)."""
        while self._at < len(self._page) and self._page[self._at].name.startswith(folder):
            self.take()
        if self._at >= len(self._page):
            self._pages = self._source.read(self._prefix, folder + _LAST)

    def may_hold(self, folder: str) -> bool:
        """Whether an object that comes later is in a folder. The current page answers if it reaches far enough,
        otherwise a request.
        """
        last = self._page[-1].name
        if last.encode() >= folder.encode():
            return any(found.name.startswith(folder) for found in self._page[self._at :])
        return next(self._source.read(folder, "", size=1), None) is not None


class _Pages:
    """Asks a store for its objects, in the store's own order."""

    def __init__(self, url: StorageUrl) -> None:
        self.url = url
        self._store = open_store(url.root)
        self._base = f"{url.key}/" if url.key else ""

    def read(self, prefix: str, start: str, size: int = PAGE) -> Iterator[list[Found]]:
        """Read the objects below a prefix (a folder: it ends with `/`, or is empty), after the key `start`."""
        base, whole = self._base, self._base + prefix
        listing = _Resumable(self._store, whole.rstrip("/") or None, base + start if start else None, size, self.url)
        while (page := tried(listing.next)) is not None:
            found = [
                Found(item["path"][len(base) :], item["size"], version_of(item))
                for item in page
                if item["path"].startswith(whole)
            ]
            if found:
                yield found

    def real(self, found: Found) -> Iterator[Found]:
        """Yield the object, unless it is the mark of a folder: the library drops the `/` at the end of its key."""
        there = None if found.size else stat_object(self.url.below(found.name))
        if found.size or (there is not None and not there.size):
            yield found


class _Resumable:
    """A listing that resumes after the last page when it breaks off."""

    def __init__(self, store: Any, prefix: str | None, offset: str | None, size: int, url: StorageUrl) -> None:
        self._open = partial(store.list, prefix, chunk_size=size)
        self._offset = offset
        self._url = url
        self._stream: Any = None

    def next(self) -> Any:
        """Return the next page, None at the end. Raises StorageError."""
        try:
            if self._stream is None:
                self._stream = self._open(offset=self._offset)
            page = next(self._stream, None)
        except Exception as error:
            self._stream = None
            raise explained(error, "cannot be listed", str(self._url)) from error
        if page:
            # Not the last one: the name of a mark is less than its key.
            self._offset = max((item["path"] for item in page), key=str.encode)
        return page
