"""Fetches objects into files, in parts, several at a time, with retries where they may help. Runs in the fetch process.

A request may be cancelled at any time. A file is reported only when it is complete.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import stat
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from windrow.common.threads import in_thread
from windrow.common.trees import entries_below, make_folders
from windrow.storage.errors import StorageError, Trouble, explained
from windrow.storage.objects import meta_of
from windrow.storage.retries import FIRST_PAUSE_S, TRIES
from windrow.storage.stores import open_store
from windrow.storage.urls import StorageUrl, is_remote, parse_url
from windrow.storage.versions import check_same, get_options

from windrow_agent.fetch_process.cache_folder import write_at
from windrow_agent.fetch_process.data_cache import FULL, Arrival, CacheUse, DataCache, key_of
from windrow_agent.fetch_process.messages import Part, Piece

PART_BYTES = 4 << 20
"""Most bytes that one request reads."""
REQUESTS_MAX = 24
"""Requests in flight; together with the size of the parts, this bounds the memory of this process."""
_FILES_AHEAD = 64
_WHOLE_ONLY_MAX = 10_000
NODE_FAULTS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE)


class Failure(NamedTuple):
    """Why something could not be fetched: a cause of docs/contracts.md, section 4, and a message for people.

    Not the `Failure` of `windrow.rpc`, which is a failed call.
    """

    cause: str
    message: str


def failure_of(error: BaseException) -> Failure:
    """The failure to report for an exception of a fetch."""
    if isinstance(error, StorageError):
        gone = error.trouble in (Trouble.CHANGED, Trouble.MISSING)
        return Failure("input_changed" if gone else "load_failed", str(error))
    if isinstance(error, OSError):
        what = f"The data of a mini-batch could not be written on this node: {error}"
        return Failure("node_fault" if error.errno in NODE_FAULTS else "load_failed", what)
    return Failure("load_failed", f"The data of a mini-batch could not be fetched: {error!r}")


class Reached(NamedTuple):
    """Where local files have to be that are copied (`windrow_agent.steps.reach`)."""

    places: list[str]
    within: list[str] | None
    closed: list[str]

    def refusal(self, real: str) -> str:
        """Why a file, whose path has no links, is not copied, in words; "" if it is."""
        if _is_in(real, self.places):
            return ""
        if self.within == []:
            return (
                "which is in no input of the step, so it is not copied: a confined script gets nothing by links that "
                "lead out of its inputs. Put the data there, or remove the link."
            )
        if self.within is not None and not _is_in(real, self.within):
            return (
                f"outside the datastores of the master ({', '.join(self.within)}), so it is not copied. Put the data "
                "there, or remove the link."
            )
        return "which is Windrow's own, so it is not copied. Remove the link." if _is_in(real, self.closed) else ""


def _is_in(real: str, roots: Sequence[str]) -> bool:
    return any(real == root or real.startswith(f"{root.rstrip('/')}/") for root in roots)


class _Request(NamedTuple):
    """What the parts of one request have in common (`Transfers.fetch`)."""

    writable: bool
    user: int | None
    within: Reached | None
    use: CacheUse

    @property
    def mode(self) -> int:
        """Fetched files are read-only, unless the input's mode asks for writable copies."""
        return 0o644 if self.writable else 0o444

    @property
    def may_share(self) -> bool:
        """Whether its files may be those of the cache: the user of the job cannot change them. Where scripts run as
        this process's user, one could.
        """
        return self.user is not None and not self.writable


class Transfers:
    """All transfers of one process. `cache`: of what was fetched; None: there is none."""

    def __init__(self, cache: DataCache | None = None) -> None:
        self.cache = cache
        self._requests = asyncio.Semaphore(REQUESTS_MAX)
        self._whole_only: set[str] = set()
        """URLs on web servers that do not answer range requests."""

    async def fetch(
        self,
        folder: Path,
        parts: Sequence[Part],
        *,
        writable: bool,
        user: int | None = None,
        within: Reached | None = None,
        use: CacheUse | None = None,
    ) -> None:
        """Makes all parts in a new folder. `user`: of the job, None if its scripts run as this process's; what is
        writable becomes his when all is there. `within`: where local files have to be; None: anywhere. `use`: counts
        what came from the cache. Raises StorageError, OSError; the folder is then useless.
        """
        owner = user if writable else None
        # Until all of it is its user's, that user does not get in, and puts no link in the place of a file.
        await asyncio.to_thread(_make, folder, 0o777 if owner is None else 0o700)
        todo = iter(parts)
        request = _Request(writable, user, within, use or CacheUse())

        async def work() -> None:
            for part in todo:
                await self._part(folder / part.place, part, request)

        size = sum(part.wanted for part in parts)
        cache = self.cache if self.cache is not None and await self.cache.open() else None
        try:
            if cache is not None:
                await cache.reserve(size)
            await all_of([work() for _ in range(min(len(parts), _FILES_AHEAD))])
        finally:
            if cache is not None:
                cache.release(size)
        if owner is not None:
            await asyncio.to_thread(_give, folder, owner)

    async def _part(self, target: Path, part: Part, request: _Request) -> None:
        make_folders(target.parent)
        try:
            await self._make(target, part, request)
        except OSError as error:
            if error.errno not in FULL or self.cache is None or not await self.cache.clear():
                raise
            # The cache gives way, and the mini-batch goes on.
            await asyncio.to_thread(target.unlink, missing_ok=True)
            await self._make(target, part, request)

    async def _make(self, target: Path, part: Part, request: _Request) -> None:
        if not is_remote(part.url):
            descriptor = _new_file(target, request.mode)
            try:
                # A file of its own: a source that does not answer is not waited for when the fetch is given up.
                await asyncio.to_thread(_copy, part.url, os.fdopen(os.dup(descriptor), "wb"), request.within)
            finally:
                os.close(descriptor)
            return
        url = parse_url(part.url)
        pieces = list(_pieces(part))
        cache = self.cache if self.cache is not None and not self.cache.trouble else None
        key = key_of(url, part) if cache is not None else None
        if cache is None or key is None:
            await self._fetch(target, url, part, pieces, request.mode)
            return
        if await cache.give(key, pieces, part, target, request.mode, link=request.may_share):
            request.use.hits += 1
            request.use.bytes_saved += part.wanted
            return
        request.use.misses += 1
        arrival = await cache.begin(key, pieces, link=request.may_share and not part.keep_offsets)
        try:
            await self._fetch(target, url, part, pieces, request.mode, arrival)
            if arrival is not None:
                await cache.take_in(arrival, target)
        finally:
            if arrival is not None:
                cache.settle(arrival)

    async def _fetch(
        self,
        target: Path,
        url: StorageUrl,
        part: Part,
        pieces: Sequence[Piece],
        mode: int,
        arrival: Arrival | None = None,
    ) -> None:
        descriptor = _new_file(target, mode)
        try:
            if part.keep_offsets:
                os.ftruncate(descriptor, part.size)
            sink = _Sink(descriptor, arrival)
            if not pieces:
                await tried(partial(self._look, url, part), self._requests)
            elif url.is_web:
                await self._from_web(url, part, sink, pieces)
            else:
                await self._pieces(url, part, sink, pieces)
        finally:
            os.close(descriptor)

    async def _pieces(self, url: StorageUrl, part: Part, sink: _Sink, pieces: Sequence[Piece]) -> None:
        await all_of(
            [
                tried(partial(self._piece, url, part, number, piece, sink), self._requests)
                for number, piece in enumerate(pieces)
            ]
        )

    async def _from_web(self, url: StorageUrl, part: Part, sink: _Sink, pieces: Sequence[Piece]) -> None:
        """Uses ranges if the web server answers them; otherwise reads the file from its start, and drops what is not
        wanted.
        """
        if part.ranges is not None and part.url not in self._whole_only:
            try:
                await self._pieces(url, part, sink, pieces)
                return
            except StorageError as error:
                if error.trouble is not Trouble.UNSUPPORTED:
                    raise
            if len(self._whole_only) >= _WHOLE_ONLY_MAX:
                self._whole_only.clear()
            self._whole_only.add(part.url)
        await tried(partial(self._stream, url, part, pieces, sink), self._requests)

    async def _piece(self, url: StorageUrl, part: Part, number: int, piece: Piece, sink: _Sink) -> None:
        begin, end, _ = piece
        with _explaining(url):
            options = get_options(url, part.version, begin, end)
            result = await open_store(url.root).get_async(url.path, options=options)
            check_same(url, result.meta, part.size, part.version)
            data = await result.bytes_async()
            if len(data) != end - begin:
                raise StorageError(f"{url} returned {len(data)} bytes instead of {end - begin}")
        await in_thread(sink.write, number, piece, 0, memoryview(data))

    async def _stream(self, url: StorageUrl, part: Part, pieces: Sequence[Piece], sink: _Sink) -> None:
        at, behind = 0, pieces[-1].end
        with _explaining(url):
            result = await open_store(url.root).get_async(url.path)
            check_same(url, result.meta, part.size, part.version)
            async for chunk in result.stream(min_chunk_size=PART_BYTES):
                await in_thread(_write_wanted, sink, memoryview(chunk), at, pieces)
                at += len(chunk)
                if at >= behind:
                    break
            if at < behind:
                raise StorageError(f"{url} returned {at} bytes instead of {part.size}")

    async def _look(self, url: StorageUrl, part: Part) -> None:
        with _explaining(url):
            # Not every web server answers HEAD, which the asynchronous half of the library sends.
            check_same(url, await asyncio.to_thread(meta_of, url), part.size, part.version)


@contextmanager
def _explaining(url: StorageUrl) -> Iterator[None]:
    try:
        yield
    except (StorageError, asyncio.CancelledError):
        raise
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise explained(error, "was there when the input was listed, but cannot be read now", str(url)) from error
        raise
    except Exception as error:
        raise explained(error, "cannot be read", str(url)) from error


async def tried(attempt: Callable[[], Awaitable[None]], turns: asyncio.Semaphore) -> None:
    """Makes up to TRIES attempts with growing pauses, each when it has a turn. Raises what the last one raised."""
    pause = FIRST_PAUSE_S
    for left in reversed(range(TRIES)):
        try:
            async with turns:
                await attempt()
            return
        except StorageError as error:
            if error.trouble is not Trouble.FAILED or not left:
                raise
        await asyncio.sleep(pause)
        pause *= 2


async def all_of(attempts: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Waits for all; the first failure ends the others."""
    tasks = [asyncio.ensure_future(attempt) for attempt in attempts]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _pieces(part: Part) -> Iterator[Piece]:
    """The requests for the wanted bytes, in ascending order."""
    at = 0
    for first, last in part.ranges if part.ranges is not None else [(0, part.size)]:
        for begin in range(first, last, PART_BYTES):
            end = min(last, begin + PART_BYTES)
            yield Piece(begin, end, begin if part.keep_offsets else at)
            at += end - begin


def _make(folder: Path, mode: int) -> None:
    make_folders(folder.parent)
    folder.mkdir(mode)


def _give(folder: Path, user: int) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for entry in entries_below(descriptor):
            os.chown(entry.name, user, user, dir_fd=entry.holder, follow_symlinks=False)
        os.chown(descriptor, user, user)
    finally:
        os.close(descriptor)


def _new_file(target: Path, mode: int) -> int:
    return os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)


class _Sink(NamedTuple):
    """Where fetched bytes go: the file of the mini-batch and, if they are kept, the cache."""

    descriptor: int
    arrival: Arrival | None

    def write(self, number: int, piece: Piece, within: int, data: memoryview) -> None:
        """Writes bytes of piece `number`, from `within` on. Raises OSError."""
        write_at(self.descriptor, data, piece.at + within)
        if self.arrival is not None:
            self.arrival.feed(number, within, data)


def _write_wanted(sink: _Sink, chunk: memoryview, offset: int, pieces: Sequence[Piece]) -> None:
    """Writes the wanted bytes of a chunk that begins at `offset` in the object."""
    for number, piece in enumerate(pieces):
        first, last = max(piece.begin, offset), min(piece.end, offset + len(chunk))
        if first < last:
            sink.write(number, piece, first - piece.begin, chunk[first - offset : last - offset])


def _copy(source: str, target: BinaryIO, within: Reached | None) -> None:
    with target, _opened(source, within) as file:
        shutil.copyfileobj(file, target, PART_BYTES)


def _opened(source: str, within: Reached | None) -> BinaryIO:
    """Open a local file. `within`: as of `fetch`.

    A script may have laid a link in the place of a file, or a pipe: what is open counts.
    """
    readable = os.fsencode(source).decode("utf-8", "backslashreplace")
    try:
        descriptor = os.open(os.fsencode(source), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        raise StorageError(
            f"{readable} was there when the input was listed, but cannot be copied on this node: {error.strerror}. "
            "It may have been removed, its folder may not be mounted here, or the agent's user may lack read "
            "permission."
        ) from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise StorageError(f"{readable} is not a plain file any more, so it is not copied.", Trouble.CHANGED)
        real = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115  text
        if within is not None and (why := within.refusal(real)):
            raise StorageError(f"{readable} leads to {real}, {why}")
    except BaseException:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")
