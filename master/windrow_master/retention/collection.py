"""Collects what no job needs any more, by reference: what a stored job or a registered asset names stays.

What arrived or was asked for lately stays too (GRACE_S): a client uploads before it submits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from windrow.rpc.v1 import asset_service_pb2 as pb

from windrow_master.assets import ARCHIVED
from windrow_master.core.records import LEDGER_DAYS_KEPT
from windrow_master.files.artifacts import DIGEST, ArtifactFolder
from windrow_master.files.state_files import StateFiles
from windrow_master.retention.job_uses import JobUse
from windrow_master.retention.removal import remove_in_pieces
from windrow_master.store.protocol import Store, StoreReader
from windrow_master.store.records import AssetRow

GRACE_S = 86_400.0
EVENTS_KEPT_S = 90 * 86_400.0
"""How long events of no job are kept, such as those of nodes."""
_PAGE = 200
_NEW = 10
_ROWS_AT_ONCE = 2_000


class Needed(NamedTuple):
    """What stays."""

    jobs: frozenset[str]
    archives: frozenset[str]
    uploads: frozenset[str]


class Collection:
    """Collects from one state folder. Methods block on the disk; one thread at a time."""

    def __init__(
        self,
        store: Store,
        files: StateFiles,
        artifacts: ArtifactFolder,
        uploads: Path | None,
        forget_reuse: Callable[[Callable[[str], bool]], Iterator[None]],
    ) -> None:
        """`uploads`: the folder of clients' data in the default datastore. `forget_reuse`: drops notes of what jobs
        made that are not there, a note for each `next`.
        """
        self._store = store
        self._reader = store.reader()
        self._files = files
        self._artifacts = artifacts
        self._uploads = uploads
        self._forget_reuse = forget_reuse

    def pieces(self, jobs: Sequence[JobUse], now: float) -> Iterator[None]:
        """Collect: a piece of work for each `next`. `jobs`: all that are stored. Raises OSError, StateError."""
        needed = self._needed(jobs)
        before = now - GRACE_S
        yield
        for digest in self._artifacts.unused_since(before):
            if digest not in needed.archives:
                self._artifacts.drop_unused(digest)
                yield
        self._artifacts.drop_old_partials(now)
        yield from self._unneeded_uploads(needed, before)
        yield from self._forget_reuse(self._is_stored)
        yield from self._folders_of_nobody(needed, before)
        ledger_before = int(now // 86_400) - LEDGER_DAYS_KEPT
        while self._store.delete_old(now - EVENTS_KEPT_S, ledger_before, _ROWS_AT_ONCE):
            yield

    def _needed(self, jobs: Sequence[JobUse]) -> Needed:
        archives = {digest for job in jobs for digest in job.archives}
        uploads = {digest for job in jobs for digest in job.uploads}
        for row in all_assets(self._reader):
            if row.kind in ARCHIVED:
                archives.add(row.path)
            elif self._uploads is not None and row.path.startswith(f"{self._uploads}/"):
                uploads.add(row.path.removeprefix(f"{self._uploads}/").partition("/")[0])
        return Needed(frozenset(job.job_id for job in jobs), frozenset(archives), frozenset(uploads))

    def _is_new(self, digest: str) -> bool:
        """Whether a job names it that was not stored when the collection began."""
        return any(digest.encode() in row.document for row in self._reader.jobs_newest_first(_NEW))

    def _is_stored(self, job_id: str) -> bool:
        return self._reader.job_by_id(job_id) is not None

    def _unneeded_uploads(self, needed: Needed, before: float) -> Iterator[None]:
        """Remove data of clients. Only what this master has unpacked: others may share the datastore."""
        lists = self._files.uploads
        if self._uploads is None or not lists.is_dir():
            return
        for digest in sorted(path.name for path in lists.iterdir() if DIGEST.fullmatch(path.name)):
            folder = self._uploads / digest
            if digest in needed.uploads or self._is_new(digest) or not _older(folder, before):
                continue
            # Renamed first: a folder of this name is always whole.
            leaving = self._uploads / f".{digest}.partial-removed"
            with contextlib.suppress(FileNotFoundError):
                folder.rename(leaving)
            (lists / digest).unlink(missing_ok=True)
            yield from remove_in_pieces(leaving)

    def _folders_of_nobody(self, needed: Needed, before: float) -> Iterator[None]:
        """Remove folders of jobs that were never stored: their submission broke off."""
        if not self._files.jobs.is_dir():
            return
        for folder in sorted(self._files.jobs.iterdir()):
            if folder.name not in needed.jobs and _older(folder, before) and not self._is_stored(folder.name):
                yield from remove_in_pieces(folder)


def all_assets(reader: StoreReader) -> Iterator[AssetRow]:
    """All versions of all assets. Raises StateError."""
    for kind in pb.AssetKind.values():
        for row in _pages(reader, kind, ""):
            yield from _pages(reader, kind, row.name)


def _pages(reader: StoreReader, kind: int, name: str) -> Iterator[AssetRow]:
    before: int | None = None
    while page := reader.assets(kind, name, _PAGE, before):
        yield from (row for _, row in page)
        before = page[-1][0]


def _older(path: Path, before: float) -> bool:
    try:
        return path.lstat().st_mtime < before
    except FileNotFoundError:
        return True
