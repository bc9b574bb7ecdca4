"""Single objects: their properties, and reads of parts, as long as they have not changed since they were listed."""

from __future__ import annotations

import io
from functools import partial
from typing import Any, NamedTuple

from windrow.storage.errors import StorageError, explained
from windrow.storage.retries import tried
from windrow.storage.stores import open_store
from windrow.storage.urls import StorageUrl
from windrow.storage.versions import check_same, get_options, version_of

_NO_HEAD = ("405 Method Not Allowed", "501 Not Implemented")


class Found(NamedTuple):
    """An object: its name relative to the prefix, its size in bytes, and its version, by which the store marks its
    content.

    Not the planner's `Found`, which is a place in a text.
    """

    name: str
    size: int
    version: str


def stat_object(url: StorageUrl) -> Found | None:
    """Return the object at an address, None if there is none. Raises StorageError."""
    return tried(partial(_stat, url)) if url.key else None


def _stat(url: StorageUrl) -> Found | None:
    try:
        meta = meta_of(url)
    except FileNotFoundError as error:
        if "NoSuchBucket" in str(error):
            raise explained(error, "cannot be read", str(url)) from error
        return None
    except StorageError:
        raise
    except Exception as error:
        raise explained(error, "cannot be read", str(url)) from error
    return Found(url.key.rpartition("/")[2], meta["size"], version_of(meta))


def meta_of(url: StorageUrl) -> Any:
    """Return what the store knows about an object without its content, in the library's form. Raises what the library
    raises.
    """
    store = open_store(url.root)
    try:
        return store.head(url.path)
    except FileNotFoundError as error:
        if url.is_web and any(status in str(error) for status in _NO_HEAD):
            # It answers no HEAD; the head of a GET says the same.
            return store.get(url.path).meta
        raise


def read_part(url: StorageUrl, size: int, version: str, begin: int, end: int) -> bytes:
    """Bytes of an object with known size and version. Raises StorageError.

    A file of a web server without range requests is copied to this machine, for the life of this process.
    """
    if begin >= end:
        return b""
    if not url.is_web:
        return tried(partial(_read, url, size, version, begin, end))
    # Most tables are in folders and buckets.
    from windrow.storage.copies import copied_part

    return copied_part(url, size, version, begin, end, partial(_read, url, size, version, begin, end))


def _read(url: StorageUrl, size: int, version: str, begin: int, end: int) -> bytes:
    try:
        result = open_store(url.root).get(url.path, options=get_options(url, version, begin, end))
        check_same(url, result.meta, size, version)
        return bytes(result.bytes())
    except StorageError:
        raise
    except Exception as error:
        raise explained(error, "cannot be read", str(url)) from error


class ObjectFile(io.RawIOBase):
    """An object as a file that is open for reading. Its errors are StorageError."""

    def __init__(self, url: StorageUrl, size: int, version: str) -> None:
        super().__init__()
        self._url = url
        self._size = size
        self._version = version
        self._at = 0

    def readable(self) -> bool:
        """Always True."""
        return True

    def seekable(self) -> bool:
        """Always True."""
        return True

    def tell(self) -> int:
        """Return the position of the next byte."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to another position."""
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Read as much as fits, or less."""
        data = read_part(self._url, self._size, self._version, self._at, min(self._size, self._at + len(buffer)))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)
