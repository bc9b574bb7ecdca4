"""The store over SQLite: WAL, synchronous=FULL, one connection that writes, group by group.

State machine of a write (`_write`):

    BEGIN IMMEDIATE -> owner asserted -> rows written -> COMMIT -> done
    any of them fails -> ROLLBACK -> postponed (StoreFull, StoreBusy) | OwnershipLost | StoreBroken

Invariants:
1. Nothing is written before `incarnation = mine` was read in the same transaction.
2. StoreFull and StoreBusy are raised only after a ROLLBACK that succeeded, and only for errors after which SQLite
   guarantees that nothing of the transaction stays (SQLITE_FULL, SQLITE_BUSY). All other errors are StoreBroken:
   after a failed sync, for one, nobody knows what is on the disk.
3. Rows are upserted, so that the same group can be committed again.
"""

from __future__ import annotations

import contextlib
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from windrow_master.core.ids import JobKey, StepId
from windrow_master.core.records import Dirty, Snapshot
from windrow_master.core.states import JobState, StepState
from windrow_master.crash_points import reach
from windrow_master.files.errors import StateError, StateUnusable
from windrow_master.store.errors import DatabaseDamaged, OwnershipLost, StoreBroken, StoreBusy, StoreFull
from windrow_master.store.protocol import NO_TRACES, Traces
from windrow_master.store.records import AssetLimits, AssetRow, OutputRow, ReopenedJob, RowRange, SegmentRow, TokenRow
from windrow_master.store.sqlite import statements as sql
from windrow_master.store.sqlite.assets import add_asset
from windrow_master.store.sqlite.check_values import CHECK, MASTER, checked, with_crc, wrong_row_count
from windrow_master.store.sqlite.connections import Database, FileDatabase, MemoryDatabase, unusable
from windrow_master.store.sqlite.deletion import delete_job, delete_old, delete_rows
from windrow_master.store.sqlite.groups import DocumentCache, Write, writes_of
from windrow_master.store.sqlite.integrity import damaged_database, is_damage, refuse_damaged_files
from windrow_master.store.sqlite.loading import counted_rows, load_snapshot
from windrow_master.store.sqlite.reader import SqliteReader
from windrow_master.store.sqlite.reopening import reopen

LEASE_PREFIX_BITS = 31


class SqliteStore:
    """Implements `store.protocol.Store`, which says what each method promises.

    `commit` is meant for one thread. The other writes may come from any thread: they take turns.
    """

    def __init__(self, database: Database, name: str) -> None:
        """Take the store over: from now on, earlier incarnations cannot write. Raises StateError.

        `name`: what messages call the store.
        """
        self._database = database
        self._name = name
        self._turn = threading.RLock()
        self._closed = False
        self._on_damage: Callable[[DatabaseDamaged], None] | None = None
        self._written = DocumentCache()
        self._connection = database.writer()
        try:
            self._incarnation, self._lease_prefix = self._take_over()
            self._counted = dict(counted_rows(self._connection))
        except sqlite3.Error as error:
            raise unusable(Path(name), error) from error

    @classmethod
    def open(cls, path: Path, traces: Traces = NO_TRACES) -> SqliteStore:
        """The store in a database file, which is made if it does not exist. Nobody else may open it until `close`; the
        lock of its folder sees to that.

        Raises SchemaTooNew, StateUnusable, DatabaseDamaged, StoreBusy, StoreFull.
        """
        try:
            refuse_damaged_files(path, traces)
        except OSError as error:
            raise StateUnusable(
                f"{path} cannot be read: {error.strerror}. Check this user's read permission and the disk."
            ) from error
        database = FileDatabase(path, traces)
        try:
            refuse_older(database.writer(), path, traces.incarnation)
            return cls(database, str(path))
        except BaseException:
            database.close()
            raise

    @classmethod
    def in_memory(cls, database: MemoryDatabase) -> SqliteStore:
        """A store over a database in memory, which outlives it: for simulations."""
        return cls(database, ":memory:")

    def on_damage(self, listener: Callable[[DatabaseDamaged], None]) -> None:
        self._on_damage = listener
        if isinstance(self._database, FileDatabase) and self._database.check is not None:
            self._database.check.tell(listener)

    @property
    def incarnation(self) -> int:
        return self._incarnation

    @property
    def lease_prefix(self) -> int:
        return self._lease_prefix

    def load(self, job_key: JobKey | None = None) -> Snapshot:
        with self._turn:
            try:
                return load_snapshot(self._connection, self._database.reader, job_key)
            except sqlite3.Error as error:
                raise self._classified(error) from error

    def commit(self, dirty: Dirty, ranges: Sequence[RowRange], segments: Sequence[SegmentRow]) -> None:
        with self._turn:
            writes = writes_of(dirty, ranges, segments, self._written)
            self._write_all([*writes, *self._count_up(dirty)])
            self._remember(dirty)

    def record_output(self, row: OutputRow) -> None:
        self._write_all([Write(sql.OUTPUTS, [with_crc(row)])])

    def reopen(self, job: ReopenedJob) -> Snapshot:
        with self._turn:
            self._write(lambda: reopen(self._connection, job))
            try:
                return load_snapshot(self._connection, self._database.reader, job.job_key)
            except sqlite3.Error as error:
                raise self._classified(error) from error

    def record_asset(self, row: AssetRow, most: AssetLimits | None = None) -> AssetRow:
        made: list[AssetRow] = []
        self._write(lambda: made.append(add_asset(self._connection, row, most)))
        return made[0]

    def record_token(self, row: TokenRow) -> None:
        self._write_all([Write(sql.TOKENS, [with_crc(row)])])

    def delete_job(self, job_key: JobKey) -> None:
        self._write(lambda: delete_job(self._connection, job_key))

    def delete_rows(self, job_key: JobKey, steps: Sequence[StepId], rows_max: int = 10_000) -> bool:
        return self._delete(lambda: delete_rows(self._connection, job_key, steps, rows_max), rows_max)

    def delete_old(self, events_before: float, ledger_before: int = 0, rows_max: int = 10_000) -> bool:
        return self._delete(lambda: delete_old(self._connection, events_before, ledger_before, rows_max), rows_max)

    def _delete(self, work: Callable[[], int], rows_max: int) -> bool:
        """Run a deletion, which returns the number of rows; return whether rows may be left."""
        deleted: list[int] = []
        self._write(lambda: deleted.append(work()))
        with self._turn, contextlib.suppress(sqlite3.Error):
            # Return unused pages to the file system. If that fails, they are used again later.
            self._connection.execute(f"PRAGMA incremental_vacuum({rows_max})").fetchall()
        return deleted[-1] >= rows_max

    def reader(self) -> SqliteReader:
        return SqliteReader(self._database, self._classified)

    def close(self) -> None:
        with self._turn:
            if self._closed:
                return
            self._closed = True
            self._database.close()

    def _take_over(self) -> tuple[int, int]:
        """Raise the incarnation by one and draw its lease prefix, in one transaction."""
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            masters = [
                checked("master", row)
                for row in connection.execute(f"SELECT {MASTER}, {CHECK} FROM master ORDER BY incarnation").fetchall()
            ]
            if masters and masters[-1][0] != len(masters):
                raise wrong_row_count("master", "all of it", masters[-1][0], len(masters))
            incarnation: int = len(masters) + 1
            taken = {prefix for _, prefix in masters}
            prefix = 0
            while not prefix or prefix in taken:
                prefix = secrets.randbits(LEASE_PREFIX_BITS)
            connection.execute(
                f"INSERT INTO master ({MASTER}, {CHECK}, start_time) VALUES (?, ?, ?, ?)",
                (*with_crc((incarnation, prefix)), time.time()),
            )
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return incarnation, prefix

    def _count_up(self, dirty: Dirty) -> list[Write]:
        """The writes of the highest numbers given so far, if the group raises them."""
        last = {
            "job_key": max((int(row.job_key) for row in dirty.jobs), default=0),
            "step_id": max((int(row.step_id) for row in dirty.steps), default=0),
        }
        raised = [with_crc((name, value)) for name, value in last.items() if value > self._counted[name]]
        return [Write(sql.COUNTED, raised)] if raised else []

    def _remember(self, dirty: Dirty) -> None:
        """Note the written values of the large columns, as long as they may come again."""
        for job in dirty.jobs:
            self._counted["job_key"] = max(self._counted["job_key"], job.job_key)
            if job.state >= JobState.COMPLETED:
                self._written.jobs.pop(job.job_key, None)
            else:
                self._written.jobs[job.job_key] = job.document
        for step in dirty.steps:
            self._counted["step_id"] = max(self._counted["step_id"], step.step_id)
            if step.state >= StepState.COMPLETED:
                self._written.steps.pop(step.step_id, None)
            else:
                self._written.steps[step.step_id] = (step.paths, step.reader, step.header)

    def _write_all(self, writes: Sequence[Write]) -> None:
        try:
            self._write(lambda: self._execute(writes))
        except (UnicodeEncodeError, OverflowError):
            cleaned = [write._replace(rows=sql.bindable(write.rows)) for write in writes]
            self._write(lambda: self._execute(cleaned))

    def _execute(self, writes: Sequence[Write]) -> None:
        for statement, rows, changes in writes:
            changed = statement.execute(self._connection, rows)
            if changes not in (-1, changed):
                raise StoreBroken(
                    f"{self._name}: {changes} mini-batches have an outcome, but only {changed} of them were ever "
                    f"planned. Nothing of the group was written. Please report this."
                )

    def _write(self, work: Callable[[], object]) -> None:
        """Run `work` in a transaction of this incarnation, durable on return. The module's docstring has the state
        machine."""
        connection = self._connection
        with self._turn:
            if self._closed:
                raise StoreBroken(f"{self._name} is closed")
            try:
                connection.execute("BEGIN IMMEDIATE")
                owner: int = connection.execute("SELECT max(incarnation) FROM master").fetchone()[0]
                if owner != self._incarnation:
                    raise OwnershipLost(
                        f"{self._name} now belongs to master incarnation {owner}; this is {self._incarnation}. "
                        "Nothing was written; this master must end."
                    )
                reach("store.begun")
                work()
                reach("store.written")
                connection.execute("COMMIT")
            except sqlite3.Error as error:
                self._roll_back(error)
                raise self._classified(error) from error
            except BaseException as error:
                self._roll_back(error)
                raise
            reach("store.committed")

    def _roll_back(self, cause: BaseException) -> None:
        """Roll back. Raise StoreBroken if that fails: then nothing is certain."""
        try:
            # After some errors, SQLite has already rolled back.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise StoreBroken(
                f"{self._name}: a write failed ({cause}), and could not be rolled back ({error})."
            ) from error

    def _classified(self, error: sqlite3.Error) -> StateError:
        """The error to raise for an error of SQLite's, in a write or a read."""
        if is_damage(error):
            found = damaged_database(self._name, error)
            if self._on_damage is not None:
                self._on_damage(found)
            return found
        code = getattr(error, "sqlite_errorcode", None)
        primary = code & 0xFF if code is not None else None
        if primary == sqlite3.SQLITE_FULL:
            return StoreFull(f"The disk of {self._name} is full. Free some space: work then resumes automatically.")
        if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return StoreBusy(
                f"{self._name} is locked by another program, such as a backup or an sqlite3 shell. End it: work "
                "then resumes automatically."
            )
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        return StoreBroken(f"{self._name}: {error} ({name})")


def refuse_older(connection: sqlite3.Connection, path: Path, incarnation_seen: int) -> None:
    """Raise DatabaseDamaged if masters have worked over the folder that its database does not know."""
    try:
        known: int = connection.execute("SELECT coalesce(max(incarnation), 0) FROM master").fetchone()[0]
    except sqlite3.Error as error:
        raise unusable(path, error) from error
    if known < incarnation_seen:
        raise DatabaseDamaged(
            str(path),
            f"it records {known} starts of a master, but its folder has seen {incarnation_seen}: it was "
            "replaced by an older copy, or its last commits are gone",
        )
