"""Deletes jobs for calls and by the clock, and collects afterwards, at a bounded rate.

One thing at a time. What takes long goes in pieces, in a thread; after each, the keeper rests several times as long as
the piece took, so commits and other work have the disk most of the time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from windrow.common.journal import say
from windrow.rpc.v1 import asset_service_pb2 as pb

from windrow_master.core.ids import JobKey
from windrow_master.core.refused import Refused
from windrow_master.files.backup_lock import BackupRuns, deleting
from windrow_master.files.disk_use import bytes_below
from windrow_master.files.errors import StateError
from windrow_master.files.state_files import StateFiles
from windrow_master.retention.choosing import Rule, chosen
from windrow_master.retention.collection import Collection, all_assets
from windrow_master.retention.job_uses import JobUse, JobUses
from windrow_master.retention.promises import Consequences, consequences
from windrow_master.retention.removal import Removal, Removals
from windrow_master.store.errors import JobNotEnded, StorePostponed
from windrow_master.store.protocol import StoreReader
from windrow_master.threads import in_thread

REST = 4.0
"""How many times as long as a piece of work took the keeper rests after it."""
REST_MIN_S, REST_MAX_S = 0.005, 5.0
BACKUP_REST_S = 1.0
"""Between looks whether a backup has ended."""
FIRST_S = 60.0
"""A new master has other things to do first."""
EVERY_S = 3600.0


class Master(NamedTuple):
    """What the keeper asks of the rest of the master."""

    forget: Callable[[JobKey], Awaitable[Refused | None]]
    """Takes an ended job out of the core's memory."""
    settled: Callable[[JobKey], Awaitable[None]]
    """Waits for the reports of an ended job."""
    is_reopening: Callable[[JobKey], bool]
    """Whether a retry of the job is on its way."""


class Fate(NamedTuple):
    """What became of a job, or would. `refusal`: why it stays; None: it is deleted."""

    job: JobUse
    size: int
    """In bytes, of its files in the state folder."""
    consequences: Consequences
    refusal: Refused | None


class Keeper:
    """Keeps one state folder from growing without end. Call its methods on the event loop's thread."""

    def __init__(
        self,
        reader: StoreReader,
        files: StateFiles,
        removals: Removals,
        collection: Collection,
        master: Master,
        *,
        keeps_outputs: bool,
        in_haste: bool,
        clock: Callable[[], float],
    ) -> None:
        """`keeps_outputs`: outputs without a place of their own are in the state folder. `in_haste`: no rests, and
        calls return when all is gone, because the process may end with the call. `clock`: seconds since 1970.
        """
        self._reader = reader
        self._files = files
        self._removals = removals
        self._collection = collection
        self._master = master
        self._keeps_outputs = keeps_outputs
        self._in_haste = in_haste
        self._clock = clock
        self._uses = JobUses(reader)
        self._turn = asyncio.Lock()
        self._leaving: set[JobKey] = set()
        self._clearing: asyncio.Task[None] | None = None

    def is_leaving(self, job_key: JobKey) -> bool:
        """Whether a job is being deleted right now: it cannot be retried."""
        return job_key in self._leaving

    async def delete(self, job_id: str, *, forced: bool, dry: bool, project: str = "") -> Fate | None:
        """Delete a job; None if there is none, or none in the project. `forced`: in spite of what may be overridden.
        `dry`: only say what would happen. Raises OSError, StateError.
        """
        async with self._turn:
            jobs = await in_thread(self._uses.all)
            job = next((one for one in jobs if one.job_id == job_id and project in ("", one.project)), None)
            if job is None:
                return None
            fate = await self._decide(job, jobs, forced=forced, dry=dry)
        await self._after(fate.refusal is None and not dry)
        return fate

    async def prune(self, rule: Rule, *, forced: bool = False, dry: bool = False) -> AsyncIterator[Fate]:
        """Delete the jobs that a rule chooses, and yield what became of each. Raises OSError, StateError."""
        deleted = False
        async for fate in self._pruned(rule, forced=forced, dry=dry):
            deleted = deleted or fate.refusal is None
            yield fate
        await self._after(deleted and not dry)

    async def keep(self, rule: Rule, *, first_s: float = FIRST_S, every_s: float = EVERY_S) -> None:
        """Go on deleting what a rule chooses, if it chooses anything, and collecting, until cancelled."""
        await asyncio.sleep(first_s)
        while True:
            try:
                await self.tidy(rule)
            except (OSError, StateError) as error:
                say(logging.WARNING, "old jobs and files were not removed; this is tried again", reason=str(error))
            await asyncio.sleep(every_s)

    async def tidy(self, rule: Rule, *, rests: bool = True) -> None:
        """Delete what a rule chooses, if it chooses anything, and collect, once. Raises OSError, StateError."""
        if rule.chooses:
            async for fate in self._pruned(rule, forced=False, dry=False):
                if fate.refusal is not None:
                    say(logging.INFO, "an old job is kept", job=fate.job.job_id, reason=fate.refusal.message)
        await self.clear(rests=rests)

    async def clear(self, *, rests: bool = True) -> None:
        """Remove what is left of deleted jobs, and collect. Raises OSError, StateError."""
        async with self._turn:
            await self._work_off(self._removals.pieces(), rests=rests)
            jobs = await in_thread(self._uses.all)
            await self._work_off(self._collection.pieces(jobs, self._clock()), rests=rests)

    def clear_beside(self) -> None:
        """The same beside other work, until `close`."""
        if self._clearing is None or self._clearing.done():
            self._clearing = asyncio.create_task(self._clear_beside())

    async def close(self) -> None:
        """Stop. What is left is removed by the next master."""
        if self._clearing is not None:
            self._clearing.cancel()
            await asyncio.gather(self._clearing, return_exceptions=True)

    async def _pruned(self, rule: Rule, *, forced: bool, dry: bool) -> AsyncIterator[Fate]:
        async with self._turn:
            jobs = await in_thread(self._uses.all)
            going = list(chosen(jobs, rule, self._clock()))
        for job in going:
            async with self._turn:
                fate = await self._decide(job, jobs, forced=forced, dry=dry)
            if fate.refusal is None:
                jobs = [one for one in jobs if one.job_key != job.job_key]
            yield fate

    async def _decide(self, job: JobUse, jobs: list[JobUse], *, forced: bool, dry: bool) -> Fate:
        others = [one for one in jobs if one.job_key != job.job_key]
        kept_below = self._files.outputs / job.job_id if self._keeps_outputs else None
        assets = [] if kept_below is None else await in_thread(self._assets_below, kept_below)
        known = consequences(job, others, kept_below=kept_below, assets=assets)
        folders = [self._files.job(job.job_id)] + ([] if kept_below is None else [kept_below])
        size = await in_thread(lambda: sum(map(bytes_below, folders)))
        hindrance = known.hindrance(forced=forced)
        if hindrance is not None:
            return Fate(job, size, known, Refused(hindrance.reason, hindrance.message))
        return Fate(job, size, known, None if dry else await self._remove(job))

    async def _remove(self, job: JobUse) -> Refused | None:
        if (refused := await self._master.forget(job.job_key)) is not None:
            return refused
        await self._master.settled(job.job_key)
        if self._master.is_reopening(job.job_key):
            return Refused("JOB_NOT_ENDED", f"Job {job.job_id} is being retried. Wait for its end, or cancel it.")
        self._leaving.add(job.job_key)
        try:
            await in_thread(self._removals.begin, Removal(job.job_key, job.job_id, job.steps))
        except BackupRuns as error:
            return Refused("BACKUP_RUNS", str(error))
        except JobNotEnded as error:
            return Refused("JOB_NOT_ENDED", str(error))
        except StorePostponed as error:
            return Refused("STORAGE_FULL", str(error))
        finally:
            self._leaving.discard(job.job_key)
        say(logging.INFO, "job deleted", job=job.job_id)
        return None

    async def _after(self, deleted: bool) -> None:
        """Remove the rest of deleted jobs: at once where nobody else works, else beside that work."""
        if not deleted:
            return
        if self._in_haste:
            await self.clear(rests=False)
        else:
            self.clear_beside()

    async def _clear_beside(self) -> None:
        try:
            await self.clear()
        except (OSError, StateError) as error:
            say(logging.WARNING, "what is left of deleted jobs was not removed; this is tried again", reason=str(error))

    async def _work_off(self, pieces: Iterator[None], *, rests: bool) -> None:
        while True:
            begun_s = time.monotonic()
            try:
                if await in_thread(self._next, pieces) is StopIteration:
                    return
            except BackupRuns:
                await asyncio.sleep(BACKUP_REST_S)
                continue
            if rests:
                took_s = time.monotonic() - begun_s
                await asyncio.sleep(min(max(REST * took_s, REST_MIN_S), REST_MAX_S))

    def _next(self, pieces: Iterator[None]) -> object:
        with deleting(self._files):
            return next(pieces, StopIteration)

    def _assets_below(self, folder: Path) -> list[str]:
        return [
            f"{row.name}:{row.version}"
            for row in all_assets(self._reader)
            if row.kind in (pb.ASSET_KIND_DATA, pb.ASSET_KIND_MODEL) and row.path.startswith(f"{folder}/")
        ]
