"""Keeps code archives by digest, and unpacks a fresh copy of the code for each step."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple
from weakref import WeakValueDictionary

from windrow.common.removal import discard_tree

_KEPT = 32
"""How many archives are kept: those used last."""

Download = Callable[[str, Path], Awaitable[None]]
"""Appends the missing rest of the archive with this digest to a file, which may hold its beginning."""


class CodeUnavailable(Exception):
    """The step's code cannot be provided; the message says why."""


class CodeSums(NamedTuple):
    """The file with the checksums of unpacked code (docs/contracts.md, section 4), and the crc32 of that file."""

    path: Path
    crc32: int


class CodeCache:
    """Keeps verified archives in `folder`. Several steps that ask at the same time cause one download."""

    def __init__(self, folder: Path, download: Download) -> None:
        self._folder = folder
        self._download = download
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def unpack(self, digest: str, target: Path) -> CodeSums:
        """Makes `target` a fresh copy of the code, with a file of its checksums beside it.

        Raises CodeUnavailable, OSError (disk full).
        """
        if len(digest) != 64 or not all(c in "0123456789abcdef" for c in digest):
            raise CodeUnavailable(f"The master names {digest!r} as the digest of the code, which is not a sha256")
        archive = self._folder / f"{digest}.tar"
        for _ in range(2):
            async with self._locks.setdefault(digest, asyncio.Lock()):
                # Checked each time: when the machine went down, the disk may have lost what was never synced.
                if not await asyncio.to_thread(self._is_whole, digest, archive):
                    await self._fetch(digest, archive)
            try:
                unpacked: CodeSums | CodeUnavailable = await asyncio.to_thread(self._unpack, archive, target)
            except CodeUnavailable as error:
                unpacked = error
            # Checked again: it may have been damaged after it was verified and before it was read.
            if await asyncio.to_thread(self._is_whole, digest, archive):
                if isinstance(unpacked, CodeUnavailable):
                    raise unpacked
                return unpacked
        raise CodeUnavailable(
            f"The code archive {digest} was damaged twice on this node's disk, in {self._folder}, while it was "
            "unpacked. Check the disk"
        )

    def _is_whole(self, digest: str, archive: Path) -> bool:
        """Whether an archive is cached and undamaged. Marks it as just used, so that it is not pruned before use."""
        try:
            os.utime(archive)
            return _sha256(archive) == digest
        except FileNotFoundError:
            return False

    async def _fetch(self, digest: str, archive: Path) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        partial = self._folder / f"{digest}.partial"
        for _ in range(2):
            await self._download(digest, partial)
            found = await asyncio.to_thread(_sha256, partial)
            if found == digest:
                partial.replace(archive)
                return
            partial.unlink(missing_ok=True)
        raise CodeUnavailable(
            f"The code archive {digest} arrived damaged twice (its sha256 was {found}). Submit the job again"
        )

    def _unpack(self, archive: Path, target: Path) -> CodeSums:
        from windrow.common import archives

        discard_tree(target)
        target.mkdir(parents=True)
        try:
            sums = json.dumps(archives.unpack_code(archive, target)).encode()
        except OSError:
            raise
        except Exception as error:
            raise CodeUnavailable(f"The code archive {archive.stem} cannot be unpacked: {error}") from error
        self._prune()
        path = sums_of(target)
        path.write_bytes(sums)
        return CodeSums(path, zlib.crc32(sums))

    def _prune(self) -> None:
        archives = sorted(self._folder.glob("*.tar"), key=_used_at, reverse=True)
        for path in archives[_KEPT:]:
            path.unlink(missing_ok=True)


def sums_of(code: Path) -> Path:
    """The checksum file of a folder of code. Beside it, `.changed` names a file that was found changed."""
    return code.with_name(code.name + ".sums")


def _used_at(archive: Path) -> float:
    """When an archive was last used; 0 if another step has just pruned it."""
    try:
        return archive.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
