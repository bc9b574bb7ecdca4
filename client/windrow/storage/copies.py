"""Local copies of files from web servers without range requests.

Planning reads a table in many places; without a copy, each read would fetch the whole file.
"""

from __future__ import annotations

import errno
import os
import tempfile
import threading
from collections.abc import Callable
from functools import partial

from windrow.storage.errors import StorageError, Trouble, explained
from windrow.storage.retries import tried
from windrow.storage.stores import open_store
from windrow.storage.urls import StorageUrl
from windrow.storage.versions import check_same

_CHUNK_BYTES = 1 << 20
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_lock = threading.Lock()
_copies: dict[tuple[StorageUrl, int, str], int] = {}
"""Descriptors of unnamed files, open as long as this process lives."""


def copied_part(url: StorageUrl, size: int, version: str, begin: int, end: int, read: Callable[[], bytes]) -> bytes:
    """The bytes from `begin` to `end`: what `read` returns, or part of a copy if the server has no range requests.

    Raises StorageError.
    """
    if (url, size, version) not in _copies:
        try:
            return tried(read)
        except StorageError as error:
            if error.trouble is not Trouble.UNSUPPORTED:
                raise
    with _lock:
        if (url, size, version) not in _copies:
            _copies[url, size, version] = tried(partial(_copy, url, size, version))
    parts = []
    while begin < end and (part := os.pread(_copies[url, size, version], end - begin, begin)):
        parts.append(part)
        begin += len(part)
    return b"".join(parts)


def copied() -> list[StorageUrl]:
    """The files that had to be copied so far."""
    return [url for url, _, _ in _copies]


def _copy(url: StorageUrl, size: int, version: str) -> int:
    with tempfile.TemporaryFile(prefix="windrow-") as file:
        try:
            result = open_store(url.root).get(url.path)
            check_same(url, result.meta, size, version)
            for chunk in result.stream(min_chunk_size=_CHUNK_BYTES):
                file.write(chunk)
            file.flush()
        except StorageError:
            raise
        except Exception as error:
            what = (
                f"cannot be copied to {tempfile.gettempdir()}, which is needed because its server has no range requests"
            )
            if isinstance(error, OSError) and error.errno in _FULL:
                advice = f"{error.strerror}. Free some space there, or set TMPDIR to a folder with more"
                raise StorageError(f"{url} {what}: {advice}.", Trouble.UNSUPPORTED) from error
            raise explained(error, what, str(url)) from error
        if file.tell() != size:
            raise StorageError(f"{url} returned {file.tell()} bytes instead of {size}")
        return os.dup(file.fileno())
