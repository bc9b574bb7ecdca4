"""Reads a database without leaving a trace beside it, whether or not a master has it open."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from urllib.parse import quote

from windrow_master.files.errors import StateError
from windrow_master.store.errors import StoreBroken
from windrow_master.store.protocol import StoreReader, Traces
from windrow_master.store.sqlite.integrity import damaged_database, is_damage, refuse_damaged_files
from windrow_master.store.sqlite.reader import SqliteReader


def untouched_reader(path: Path) -> StoreReader:
    """A reader that opens the database in each call, and closes it again. Its methods raise StateError."""
    return SqliteReader(_Untouched(path), lambda error: _classified(path, error))


def need_sound_files(path: Path, traces: Traces, *, is_live: bool) -> None:
    """Raise DatabaseDamaged if the files of the database cannot be what was written, StoreBroken if they cannot be
    read.

    `is_live`: a master has the database open.
    """
    try:
        refuse_damaged_files(path, traces, is_live=is_live)
    except OSError as error:
        raise StoreBroken(str(error)) from error


def _classified(path: Path, error: sqlite3.Error) -> StateError:
    return damaged_database(path, error) if is_damage(error) else StoreBroken(str(error))


class _Untouched:
    """Connections that only read.

    If no process has the database open, and all of it is in the one file, SQLite is opened as if nothing changes it.
    Otherwise SQLite would make its other two files beside it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def writer(self) -> sqlite3.Connection:
        """Not supported: nothing is written here."""
        raise AssertionError("nothing is written")

    def reader(self) -> AbstractContextManager[sqlite3.Connection]:
        """Open a connection for one use."""
        return self._open()

    def close(self) -> None:
        """Do nothing: no connection stays open."""

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        log, shared = (self._path.with_name(self._path.name + ending) for ending in ("-wal", "-shm"))
        pending = log.exists() and log.stat().st_size > 0
        if pending and not shared.exists():
            raise StoreBroken("it was not closed cleanly; only a run can reopen it")
        # Both files exist while a process has the database open.
        mode = "mode=ro" if log.exists() and shared.exists() else "mode=ro&immutable=1"
        connection = sqlite3.connect(f"file:{quote(str(self._path))}?{mode}", uri=True, isolation_level=None)
        try:
            yield connection
        finally:
            connection.close()
