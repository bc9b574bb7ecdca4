"""What a state folder holds already, read without leaving a trace in it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from windrow.spec.effective import EffectiveJob, EffectiveStep
from windrow.spec.effective_json import DocumentError
from windrow.state_mark import STATE_MARK

from windrow_master.core.counters import Counters
from windrow_master.core.records import JobRow
from windrow_master.core.state import ENDED_JOBS
from windrow_master.core.states import JobState
from windrow_master.shell.earlier import EarlierJobs, EarlierStep, NothingToResume
from windrow_master.store.errors import StateDamaged, StoreBroken, StoreError
from windrow_master.store.integrity import damaged_database, is_damage, refuse_damaged_files
from windrow_master.store.lock import LOCK_FILE, is_locked
from windrow_master.store.reading import SqliteReader
from windrow_master.store.rows import OutputRow

JOBS_LOOKED_AT = 1000
T = TypeVar("T")


class Unreadable(Exception):
    """What the state folder holds cannot be told without changing it; the text says why."""


class Standing:
    """A state folder, there or not."""

    def __init__(self, state: Path) -> None:
        self._path = state / STATE_MARK
        self._reader = SqliteReader(_Untouched(self._path), self._broken)
        self.is_there = self._path.is_file()

    def outputs_at(self, path: str) -> Sequence[OutputRow]:
        """What Windrow has written at a path. Raises Unreadable."""
        return self._ask(lambda: self._reader.outputs_at(path), [])

    def free_name(self, wanted: str, length_max: int = 64) -> str:
        """The name that a job gets that wants this one: with a number behind it, where an earlier one has it. Raises
        Unreadable."""
        name, number = wanted, 1
        while self._ask(partial(self._reader.job_by_id, name), None) is not None:
            number += 1
            suffix = f"-{number}"
            name = f"{wanted[: length_max - len(suffix)]}{suffix}"
        return name

    def unfinished(self, job: EffectiveJob) -> tuple[str, str, bool] | None:
        """The unfinished run of a job file: its name, its state, and whether it is equal to the job. Raises
        Unreadable."""
        rows: list[JobRow] = self._ask(lambda: self._reader.jobs_newest_first(JOBS_LOOKED_AT), [])
        found = None
        for row in rows:
            if row.state in ENDED_JOBS or row.state == JobState.CANCELLING or not _is_of(row, job.job_file):
                continue
            equal = row.run_digest == job.run_digest
            if found is None or equal:
                found = (row.job_id, JobState(row.state).name.lower(), equal)
            if equal:
                break
        return found

    def last_of(self, job_file: str) -> str | None:
        """What `--since last` means: the newest job of a job file that has ended and has a result to take over. Raises
        Unreadable."""
        rows: list[JobRow] = self._ask(lambda: self._reader.jobs_newest_first(JOBS_LOOKED_AT), [])
        for row in rows:
            if row.state in ENDED_JOBS and _is_of(row, job_file) and self._ask(partial(self._has_results, row), False):
                return row.job_id
        return None

    def earlier(self, step: EffectiveStep) -> tuple[EarlierJobs, EarlierStep] | None:
        """What a step takes over, and where from; None: nothing. Raises NothingToResume, Unreadable."""
        if step.resume_from is None:
            return None
        if not self.is_there:
            raise NothingToResume(
                f"There is no job named {step.resume_from!r}, whose results are to be taken over: {self._path.parent} "
                "holds no runs. Name its state folder with --state."
            )
        jobs = EarlierJobs(self._reader, self._path.parent)
        found = self._ask(lambda: jobs.find(step), None)
        return None if found is None else (jobs, found)

    def _has_results(self, job: JobRow) -> bool:
        commands = {step.name for step in EffectiveJob.from_json(job.document).steps if step.command is not None}
        steps = (step for step in self._reader.steps_of(job.job_key) if step.name not in commands)
        return any(Counters.from_json(step.counters).succeeded for step in steps)

    def _broken(self, error: sqlite3.Error) -> StoreError:
        return damaged_database(self._path, error) if is_damage(error) else StoreBroken(str(error))

    def _ask(self, question: Callable[[], T], nothing: T) -> T:
        try:
            refuse_damaged_files(self._path, is_live=is_locked(self._path.with_name(LOCK_FILE)))
            return question() if self.is_there else nothing
        except StateDamaged as damage:
            raise Unreadable(str(damage)) from damage
        except (OSError, StoreError, sqlite3.Error) as error:
            raise Unreadable(f"{self._path} cannot be read without changing it: {error}") from error


class _Untouched:
    """Connections that only read. Where no process has the database open, and all of it is in the one file, SQLite is
    told that nothing changes it: else it would make its other two files beside it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def writer(self) -> sqlite3.Connection:
        """Never."""
        raise AssertionError("nothing is written")

    def reader(self) -> AbstractContextManager[sqlite3.Connection]:
        """A connection of its own."""
        return self._open()

    def close(self) -> None:
        """Nothing stays open."""

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        log, shared = (self._path.with_name(self._path.name + ending) for ending in ("-wal", "-shm"))
        pending = log.exists() and log.stat().st_size > 0
        if pending and not shared.exists():
            raise StoreBroken("it was not closed in order, and only a run can take it up again")
        # Both are there while a process has it open.
        mode = "mode=ro" if log.exists() and shared.exists() else "mode=ro&immutable=1"
        connection = sqlite3.connect(f"file:{quote(str(self._path))}?{mode}", uri=True, isolation_level=None)
        try:
            yield connection
        finally:
            connection.close()


def _is_of(row: JobRow, job_file: str) -> bool:
    try:
        return EffectiveJob.from_json(row.document).job_file == job_file
    except DocumentError:
        return False  # of another version
