"""SQLite connections of one database: one that writes, and any number that read. On disk, or in memory for
simulations."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from windrow_master.files.errors import StateUnusable
from windrow_master.store.errors import DatabaseDamaged, StoreBusy, StoreFull, StorePostponed
from windrow_master.store.protocol import NO_TRACES, Traces
from windrow_master.store.sqlite.integrity import Check, damaged_database, refuse_wrong_schema, says_damage
from windrow_master.store.sqlite.schemas import APPLICATION_ID, bring_forward, migrate

SQLITE_MIN = (3, 37, 0)
"""The first version with STRICT tables; it has UPDATE ... FROM as well."""

WRITER_WAIT_S = 2.0
"""How long a write waits for another process (a backup, a shell) before it is StoreBusy."""
READER_WAIT_S = 5.0

WRITER_CACHE_KIB = 16 << 10
READER_CACHE_KIB = 4 << 10
WAL_PAGES = 4000
"""The number of pages (16 MB) after which the WAL is copied into the database: more than SQLite's 1,000, because the
committer waits for it."""
WAL_BYTES_KEPT = 64 << 20
ROOM_TO_OPEN = 256 << 10
"""A disk with less room counts as full: opening a database takes some 100 KiB."""


class Database(Protocol):
    """Opens connections to one database."""

    def writer(self) -> sqlite3.Connection:
        """The connection that writes."""

    def reader(self) -> AbstractContextManager[sqlite3.Connection]:
        """Borrow a connection that reads."""

    def close(self) -> None:
        """Close the connections that were opened."""


class FileDatabase:
    """A database file with its WAL. Readers and the writer never wait for each other."""

    def __init__(self, path: Path, traces: Traces = NO_TRACES) -> None:
        self._path = path
        self._traces = traces
        self._writer: sqlite3.Connection | None = None
        self._lock = threading.Lock()
        self._idle: list[sqlite3.Connection] = []
        self._closed = False
        self.check: Check | None = None
        """The check of the database in the background; None if the database was new when it was opened."""

    def writer(self) -> sqlite3.Connection:
        """The connection that writes, opened and migrated at the first call. Raises StateUnusable, StoreBusy."""
        if self._writer is None:
            if sqlite3.sqlite_version_info < SQLITE_MIN:
                raise StateUnusable(
                    f"This Python has SQLite {sqlite3.sqlite_version}; Windrow needs "
                    f"{'.'.join(map(str, SQLITE_MIN))} or newer. Use a newer Python."
                )
            with contextlib.suppress(OSError):
                # Others must not read job files. SQLite gives WAL and shared memory the same mode.
                os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            try:
                connection = self._connect(WRITER_WAIT_S, WRITER_CACHE_KIB)
            except sqlite3.Error as error:
                raise unusable(self._path, error) from error
            try:
                refuse_wrong_schema(connection, self._path, self._traces)
                check_identity(connection, self._path)
                self._check_beside(connection)
                connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
                mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
                if mode != "wal":
                    raise StateUnusable(f"{self._path}: its file system does not allow a WAL (journal mode {mode}).")
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("PRAGMA fullfsync = ON")
                connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")
                connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_KEPT}")
                bring_forward(connection, self._path)
            except sqlite3.Error as error:
                connection.close()
                raise unusable(self._path, error) from error
            except BaseException:
                connection.close()
                raise
            self._writer = connection
        return self._writer

    def _check_beside(self, connection: sqlite3.Connection) -> None:
        """Start SQLite's check of a database that is not empty, and wait a moment for its findings."""
        if connection.execute("PRAGMA user_version").fetchone()[0]:
            self.check = Check(self._path)
            self.check.wait()

    @contextmanager
    def reader(self) -> Iterator[sqlite3.Connection]:
        """Borrow a connection that reads, from any thread."""
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            connection = self._connect(READER_WAIT_S, READER_CACHE_KIB)
            connection.execute("PRAGMA query_only = ON")
        try:
            yield connection
        finally:
            with self._lock:
                keep = not self._closed
                if keep:
                    self._idle.append(connection)
            if not keep:
                connection.close()

    def close(self) -> None:
        """Close all connections. A borrowed one is closed when it is returned."""
        if self.check is not None:
            self.check.stop()
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _connect(self, wait_s: float, cache_kib: int) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=wait_s, isolation_level=None, check_same_thread=False)
        try:
            # The first statement: it opens the files.
            connection.execute(f"PRAGMA cache_size = -{cache_kib}")
        except BaseException:
            connection.close()
            raise
        return connection


class MemoryDatabase:
    """A database in memory that outlives the stores over it, so that a simulation can restart its master.

    One connection serves all; only one thread may use it at a time. `close`, which a store calls, leaves it open;
    `drop` ends it.
    """

    def __init__(self) -> None:
        self._connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._lock = threading.RLock()
        migrate(self._connection, Path(":memory:"))

    def writer(self) -> sqlite3.Connection:
        """The connection."""
        return self._connection

    @contextmanager
    def reader(self) -> Iterator[sqlite3.Connection]:
        """The connection."""
        with self._lock:
            yield self._connection

    def close(self) -> None:
        """Do nothing: the next incarnation needs the content."""

    def drop(self) -> None:
        """Close the connection: the content is gone."""
        self._connection.close()


def check_identity(connection: sqlite3.Connection, path: Path) -> None:
    """Raise StateUnusable if the file is a database of another program."""
    owner = connection.execute("PRAGMA application_id").fetchone()[0]
    if owner != APPLICATION_ID and connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
        raise StateUnusable(
            f"{path} is a database, but not one of Windrow's; Windrow does not touch it. Choose another state "
            "folder: --state DIR."
        )


def unusable(path: Path, error: sqlite3.Error) -> StateUnusable | StorePostponed | DatabaseDamaged:
    """The error for a database that cannot be opened."""
    if says_damage(error):
        return damaged_database(path, error)
    primary = error.sqlite_errorcode & 0xFF
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreBusy(f"{path} is locked by another program. End it (a backup, an sqlite3 shell), then try again.")
    # If there is no room for the shared memory or the WAL, SQLite reports another error.
    if primary == sqlite3.SQLITE_FULL or (primary in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN) and _full(path)):
        return StoreFull(f"The disk of {path} is full. Free some space, then restart the master.")
    return StateUnusable(
        f"{path} cannot be opened: {error} ({error.sqlite_errorname}). Check this user's write permission and "
        "the disk, or choose another state folder: --state DIR."
    )


def _full(path: Path) -> bool:
    """Whether the disk that holds a file is as good as full."""
    try:
        usage = os.statvfs(path.parent)
    except OSError:
        return False
    return usage.f_bavail * usage.f_frsize < ROOM_TO_OPEN
