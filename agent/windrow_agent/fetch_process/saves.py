"""Saves files that a script has written to a store, each atomically. Runs in the fetch process.

A script runs as the agent's user, and this process has credentials. A listed file may have become a link since, so no
link is followed, and only exactly the listed file is read, on the folder's own disk.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Sequence
from functools import partial

from windrow.common.beneath import Folder
from windrow.common.threads import in_thread
from windrow.storage.errors import StorageError, explained
from windrow.storage.stores import open_store
from windrow.storage.urls import parse_url

from windrow_agent.fetch_process.messages import Save
from windrow_agent.fetch_process.transfers import NODE_FAULTS, Failure, all_of, tried

PART_BYTES = 8 << 20
"""Larger files are uploaded in parts of at least this size: a store takes at most 10,000 parts."""
PARTS_MAX = 9_000
PARTS_AT_ONCE = 2
FILES_AT_ONCE = 8
"""Together with the parts, this bounds the memory of this process."""


class Changed(Exception):
    """A file has changed since it was listed; the text names it."""


def save_failure_of(error: BaseException) -> Failure:
    """The failure to report for an exception of a save."""
    if isinstance(error, Changed):
        return Failure("changed", str(error))
    if isinstance(error, OSError) and error.errno in NODE_FAULTS:
        return Failure("node_fault", f"The script's outputs could not be read on this node: {error}")
    if isinstance(error, StorageError):
        return Failure("output_failed", str(error))
    return Failure("output_failed", f"The script's outputs could not be saved to their store: {error!r}")


class Saves:
    """All saves of one process."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(FILES_AT_ONCE)

    async def save(self, folder: str, device: int, saves: Sequence[Save]) -> None:
        """Saves all files. Raises Changed, StorageError, OSError."""
        todo = iter(saves)

        async def work() -> None:
            for one in todo:
                await tried(partial(_save, folder, device, one), self._turns)

        await all_of([work() for _ in range(min(len(saves), FILES_AT_ONCE))])


async def _save(folder: str, device: int, save: Save) -> None:
    url = parse_url(save.address)
    descriptor = await in_thread(_open, folder, device, save, drop=os.close)
    try:
        store = open_store(url.root)
        if save.size <= PART_BYTES:
            data = await in_thread(_read, descriptor, save, 0, save.size)
            _check(descriptor, device, save)
            await store.put_async(url.key, data, use_multipart=False)
        else:
            part = max(PART_BYTES, save.size // PARTS_MAX + 1)
            parts = _parts(descriptor, device, save, part)
            await store.put_async(url.key, parts, chunk_size=part, max_concurrency=PARTS_AT_ONCE)
    except (Changed, StorageError, asyncio.CancelledError):
        raise
    except Exception as error:
        # Of what the parts raised, the library passes on only the text.
        _check(descriptor, device, save)
        raise explained(error, "cannot be written", save.address) from error
    finally:
        os.close(descriptor)


async def _parts(descriptor: int, device: int, save: Save, part: int) -> AsyncIterator[bytes]:
    for at in range(0, save.size, part):
        data = await in_thread(_read, descriptor, save, at, min(part, save.size - at))
        if at + part >= save.size:
            # Before the upload is completed: raising here leaves nothing in the store.
            _check(descriptor, device, save)
        yield data


def _open(folder: str, device: int, save: Save) -> int:
    try:
        with Folder.open(folder) as top:
            descriptor = top.read(save.name)
    except OSError as error:
        if error.errno in NODE_FAULTS or isinstance(error, PermissionError):
            raise
        raise Changed(f"{save.name} was there when run() returned, but is not a file now: {error.strerror}") from error
    try:
        _check(descriptor, device, save)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check(descriptor: int, device: int, save: Save) -> None:
    status = os.fstat(descriptor)
    seen = (status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns)
    if not stat.S_ISREG(status.st_mode) or seen != (device, save.inode, save.size, save.ctime_ns):
        raise Changed(f"{save.name} changed while it was being saved to its store")


def _read(descriptor: int, save: Save, at: int, length: int) -> bytes:
    pieces = []
    while length:
        piece = os.pread(descriptor, length, at)
        if not piece:
            raise Changed(f"{save.name} became shorter while it was being saved to its store")
        pieces.append(piece)
        at += len(piece)
        length -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
