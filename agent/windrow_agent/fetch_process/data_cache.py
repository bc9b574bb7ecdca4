"""What was fetched, kept on this node's disk for the next mini-batch that reads it. Runs in the fetch process.

States of an entry::

    ARRIVING ──complete──► KEPT ──room is needed, or it is damaged──► (gone)
        └──the fetch failed, or the disk is full──► (gone)

Invariants:

1. KEPT and ARRIVING entries together stay within the bound, also while they arrive.
2. An entry is used only for the same bytes of the same object with the same etag, of the same store, read with the same
   credentials (`key_of`). Whether a step may read an object is decided before, by the master.
3. What is handed out is what the store has sent: digests are of the bytes as they came, and a file is compared with its
   own before it is used, each time it is copied, or once before it is linked.
4. No file is shared with a script that could change it: only users of jobs get links, and own neither file nor folder.
5. The cache never fails a fetch: what it cannot keep is fetched as if there were none, and when the disk is full, it
   gives way.
6. What is used least recently goes first; never what is being handed out, nor what a mini-batch uses by a link.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import os
import shutil
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

from windrow.common.threads import in_thread
from windrow.storage.identity import store_identity
from windrow.storage.urls import StorageUrl

from windrow_agent.fetch_process.cache_folder import CacheFolder, Damaged, digest_of, occupied, write_at
from windrow_agent.fetch_process.messages import Part, Piece

ENTRIES_MAX = 200_000
"""Each costs this process some 400 bytes of memory."""
FREE_BYTES_MIN = 512 << 20
"""Disk space that the cache leaves to others."""
FULL = (errno.ENOSPC, errno.EDQUOT)
_FORM = 1
"""Changes when keys, or what a digest is of, change."""


@dataclass(slots=True)
class CacheUse:
    """What one request had of the cache. A hit is an object, or a part of one, that was not fetched again."""

    hits: int = 0
    misses: int = 0
    bytes_saved: int = 0


@dataclass(slots=True)
class _Kept:
    """`users`: how often it is being handed out now. `is_sound`: it was compared with its digest, or came just now."""

    digest: str
    size: int
    users: int = 0
    is_sound: bool = False


def key_of(url: StorageUrl, part: Part) -> str | None:
    """What the wanted bytes of an object are known by; None if they cannot be: only a strong etag says that content is
    the same, byte for byte.
    """
    if not part.version.startswith('"') or not part.wanted:
        return None
    ranges = None if part.ranges is None else [list(one) for one in part.ranges]
    document = [_FORM, store_identity(url.root), url.path, part.size, part.version, ranges]
    return hashlib.sha256(json.dumps(document).encode()).hexdigest()


class DataCache:
    """`bytes_max`: what it may take of the disk. `keep`: no script can write in `folder`, so that entries of an earlier
    process are used.
    """

    def __init__(self, folder: Path, bytes_max: int, *, keep: bool) -> None:
        self._folder = CacheFolder(folder)
        self._bytes_max = bytes_max
        self._keep = keep
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._arriving: dict[str, asyncio.Event] = {}
        self._occupied = 0
        """By entries and by what arrives."""
        self._has_links = False
        """Whether users of jobs have links to entries."""
        self._making_room = asyncio.Lock()
        self._owed = 0
        """Bytes that requests in progress may still write."""
        self._opening: asyncio.Task[None] | None = None
        self.trouble = ""
        """Why there is no cache, in words; "" if there is one."""
        self.evictions = 0
        """Entries that were removed to make room, since the start of this process."""

    async def open(self) -> bool:
        """Reads what is there, at the first call; returns whether the cache can be used."""
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._open())
        await asyncio.shield(self._opening)
        return not self.trouble

    async def _open(self) -> None:
        try:
            found = await in_thread(partial(self._folder.open, keep=self._keep))
        except OSError as error:
            self.trouble = f"The data cache in {self._folder.folder} cannot be used: {error}"
            return
        doubled = []
        for entry in found:
            if (older := self._kept.pop(entry.key, None)) is not None:
                doubled.append((entry.key, older.digest))
                self._occupied -= occupied(older.size)
            self._kept[entry.key] = _Kept(entry.digest, entry.size)
            self._occupied += occupied(entry.size)
        await in_thread(self._folder.remove, doubled)
        await self._keep_within_bounds()

    def held(self) -> dict[str, Any]:
        """What the cache holds, for an answer to the agent."""
        return {
            "held_bytes": self._occupied,
            "held_files": len(self._kept),
            "evictions": self.evictions,
            "trouble": self.trouble,
        }

    # Handing out.

    async def give(self, key: str, pieces: Sequence[Piece], part: Part, target: Path, mode: int, *, link: bool) -> bool:
        """Makes the file `target`, if the cache has its content; waits for that if it is arriving. Raises OSError, if
        `target` cannot be written; it may be there in part then.
        """
        kept = self._kept.get(key)
        if kept is None and (arriving := self._arriving.get(key)) is not None:
            await arriving.wait()
            kept = self._kept.get(key)
        if kept is None:
            return False
        self._kept.move_to_end(key)
        kept.users += 1
        try:
            await in_thread(self._hand_out, key, kept, pieces, part, target, mode, link)
        except Damaged:
            if self._kept.get(key) is kept:
                self._drop(key)
                await in_thread(self._folder.remove, [(key, kept.digest)])
            return False
        finally:
            kept.users -= 1
        return True

    def _hand_out(
        self, key: str, kept: _Kept, pieces: Sequence[Piece], part: Part, target: Path, mode: int, link: bool
    ) -> None:
        if link and not part.keep_offsets:
            self._has_links = True
            if not kept.is_sound:
                self._folder.read_out(key, kept.digest, pieces, None)
                kept.is_sound = True
            try:
                self._folder.note_use(key, kept.digest)
                if self._folder.link_out(key, kept.digest, target):
                    return
            except FileNotFoundError as error:
                raise Damaged(f"{key} is gone") from error
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            if part.keep_offsets:
                os.ftruncate(descriptor, part.size)
            self._folder.read_out(key, kept.digest, pieces, descriptor)
            self._folder.note_use(key, kept.digest)
        except FileNotFoundError as error:
            target.unlink(missing_ok=True)
            raise Damaged(f"{key} is gone") from error
        except Damaged:
            target.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)

    # Taking in.

    async def begin(self, key: str, pieces: Sequence[Piece], *, link: bool) -> Arrival | None:
        """Content that is going to arrive; None if there is no room for it, or it is arriving already. `link`: the file
        that is fetched becomes the entry; otherwise the entry is a second file.
        """
        if key in self._arriving:
            return None
        size = sum(piece.end - piece.begin for piece in pieces)
        needed = occupied(size)
        if needed > self._bytes_max:
            return None
        self._arriving[key] = asyncio.Event()
        self._has_links = self._has_links or link
        self._occupied += needed
        try:
            has_room = await self._keep_within_bounds()
            if has_room and not link:
                has_room = await self.leave_free(FREE_BYTES_MIN + needed)
            if has_room:
                return Arrival(key, pieces, *((None, None) if link else self._folder.new_partial()))
        except OSError:
            # The disk is full, or worse. Whether that is so for what is fetched, too, will show.
            pass
        except BaseException:
            self._give_up(key, size)
            raise
        self._give_up(key, size)
        return None

    def _give_up(self, key: str, size: int) -> None:
        self._occupied -= occupied(size)
        self._arriving.pop(key).set()

    async def take_in(self, arrival: Arrival, target: Path) -> None:
        """Keeps what has arrived, if all of it has."""
        key, digest = arrival.key, arrival.digest()
        older = self._kept.get(key)
        if digest is None:
            return
        try:
            source, link = (target, True) if arrival.partial is None else (arrival.partial, False)
            await in_thread(partial(self._folder.take_in, source, key, digest, link=link))
        except OSError:
            return
        except asyncio.CancelledError:
            self._folder.remove([(key, digest)])
            raise
        if older is not None and self._kept.get(key) is older:
            self._drop(key)
            if older.digest != digest:
                await in_thread(self._folder.remove, [(key, older.digest)])
        self._kept[key] = _Kept(digest, arrival.size, is_sound=True)
        arrival.is_kept = True

    def settle(self, arrival: Arrival) -> None:
        """An arrival has ended, in one way or the other; those who waited for it go on."""
        arrival.close()
        if not arrival.is_kept:
            self._occupied -= occupied(arrival.size)
        self._arriving.pop(arrival.key).set()

    # Making room.

    async def reserve(self, size: int) -> None:
        """A request begins that may write so many bytes: the cache gives way where they would not fit."""
        self._owed += size
        await self.leave_free(self._owed)

    def release(self, size: int) -> None:
        """A request has ended."""
        self._owed -= size

    async def leave_free(self, needed: int) -> bool:
        """Removes what it takes to leave so many bytes of the disk free; returns whether they are."""
        async with self._making_room:
            while (missing := needed - await in_thread(self._free)) > 0:
                chosen = []
                for key, kept in self._evictable():
                    chosen.append((key, kept.digest))
                    missing -= kept.size
                    if missing <= 0:
                        break
                if not chosen:
                    return False
                await self._evict(chosen)
            return True

    async def clear(self) -> bool:
        """Removes all that is not in use; returns whether there was anything."""
        async with self._making_room:
            chosen = [(key, kept.digest) for key, kept in self._evictable()]
            await self._evict(chosen)
            return bool(chosen)

    def _free(self) -> int:
        try:
            return shutil.disk_usage(self._folder.folder).free
        except OSError:
            return 0

    async def _keep_within_bounds(self) -> bool:
        """Removes what is beyond the bounds; returns whether nothing is any more."""
        async with self._making_room:
            while (over := self._occupied - self._bytes_max) > 0 or len(self._kept) > ENTRIES_MAX:
                chosen, too_many = [], len(self._kept) - ENTRIES_MAX
                for key, kept in self._evictable():
                    if over <= 0 and too_many <= 0:
                        break
                    chosen.append((key, kept.digest))
                    over -= occupied(kept.size)
                    too_many -= 1
                if not chosen:
                    return False
                await self._evict(chosen)
            return True

    def _evictable(self) -> Iterator[tuple[str, _Kept]]:
        """Those that were used least recently come first."""
        for key, kept in self._kept.items():
            if not kept.users and not (self._has_links and self._folder.is_linked(key, kept.digest)):
                yield key, kept

    async def _evict(self, chosen: Sequence[tuple[str, str]]) -> None:
        sizes = [self._kept.pop(key).size for key, _ in chosen]
        self.evictions += len(chosen)
        await in_thread(self._folder.remove, chosen)
        self._occupied -= sum(map(occupied, sizes))

    def _drop(self, key: str) -> None:
        self._occupied -= occupied(self._kept.pop(key).size)


class Arrival:
    """Content that arrives piece by piece, in any order, from several threads: `partial` is its file (None: the file
    that is fetched becomes the entry). Errors of that file end the arrival, not the fetch.
    """

    def __init__(self, key: str, pieces: Sequence[Piece], partial: Path | None, descriptor: int | None) -> None:
        self.key = key
        self.partial = partial
        self.is_kept = False
        self._descriptor = descriptor
        self._lengths = [piece.end - piece.begin for piece in pieces]
        self._begins = [0, *accumulate(self._lengths)]
        self._sums = [hashlib.sha256() for _ in pieces]
        self._fed = [0] * len(pieces)
        self._is_broken = False

    @property
    def size(self) -> int:
        """In bytes."""
        return sum(self._lengths)

    def feed(self, number: int, within: int, data: memoryview) -> None:
        """Takes the bytes of piece `number` from `within` on. A piece that is tried again begins again at 0. Blocks."""
        if within == 0:
            self._sums[number], self._fed[number] = hashlib.sha256(), 0
        if within != self._fed[number] or self._is_broken:
            self._is_broken = True
            return
        self._sums[number].update(data)
        self._fed[number] += len(data)
        if self._descriptor is not None:
            try:
                write_at(self._descriptor, data, self._begins[number] + within)
            except OSError:
                self._is_broken = True

    def digest(self) -> str | None:
        """The digest of the content; None if not all of it has arrived."""
        if self._is_broken or self._fed != self._lengths:
            return None
        return digest_of(one.digest() for one in self._sums)

    def close(self) -> None:
        """Closes its file, and removes it if it has not become an entry."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        if self.partial is not None:
            self.partial.unlink(missing_ok=True)
            self.partial = None
