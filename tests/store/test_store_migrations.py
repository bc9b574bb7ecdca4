"""Migrations: a copy of the database is kept, and a master that is killed in the middle of one loses nothing."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
from pathlib import Path

import pytest
from opened_store import open_store
from windrow_master import crash_points
from windrow_master.core.states import NodeState
from windrow_master.files.state_files import StateFiles
from windrow_master.store.errors import StoreFull
from windrow_master.store.sqlite import schemas

NODES = 50
SCHEMAS = range(1, schemas.SCHEMA)
POINTS = ("schema.copied", "schema.written", "schema.committed")


def make(folder: Path, schema: int) -> None:
    """A database that an earlier version has made, with some nodes."""
    folder.mkdir(parents=True)
    path = StateFiles(folder).database
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA auto_vacuum = INCREMENTAL")
        first, *others = schemas.migrations()[:schema]
        schemas.advance(database, path, first, 1)
        database.executemany(
            "INSERT INTO node (node_id, node_incarnation, state, message, resources, labels, register_time) "
            "VALUES (?, 'a', ?, 'why', x'7b7d', x'7b7d', 5.0)",
            [(f"node-{number:02d}", int(NodeState.READY)) for number in range(NODES)],
        )
        for number, script in enumerate(others, 2):
            schemas.advance(database, path, script, number)


def is_killed(folder: Path, point: str) -> bool:
    """Open the store in a process that is killed at a point; whether it came to that."""
    child = os.fork()
    if not child:
        crash_points.arm(point)
        try:
            open_store(folder).close()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def nodes_in(folder: Path) -> int:
    store = open_store(folder)
    try:
        return len(store.load().nodes)
    finally:
        store.close()


def schema_of(path: Path) -> int:
    with contextlib.closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert database.execute("SELECT count(*) FROM node").fetchone() == (NODES,)
        found: int = database.execute("PRAGMA user_version").fetchone()[0]
        return found


@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_master_that_is_killed_in_the_middle_of_a_migration_loses_nothing(tmp_path: Path, schema: int) -> None:
    for point in POINTS:
        for count in range(1, 2 if point == "schema.copied" else schemas.SCHEMA - schema + 1):
            folder = tmp_path / f"{point}-{count}"
            make(folder, schema)
            assert is_killed(folder, f"{point}:{count}")
            assert nodes_in(folder) == NODES
            assert schema_of(StateFiles(folder).database) == schemas.SCHEMA
            # Of the database as it was before the first of the migrations, whichever was interrupted.
            (copy,) = StateFiles(folder).before_migrations()
            assert copy == StateFiles(folder).before_migration(schema)
            assert schema_of(copy) == schema
            assert copy.stat().st_mode & 0o777 == 0o600


def test_a_copy_stays_until_the_next_migration(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    files = StateFiles(folder)
    make(folder, schemas.SCHEMA - 1)
    files.before_migration(1).write_text("of the migration before")
    for _ in range(2):
        assert nodes_in(folder) == NODES
        assert files.before_migrations() == [files.before_migration(schemas.SCHEMA - 1)]
    # A new database has nothing to keep.
    open_store(tmp_path / "new").close()
    assert StateFiles(tmp_path / "new").before_migrations() == []


def test_a_version_before_goes_on_with_the_copy(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    files = StateFiles(folder)
    make(folder, 1)
    assert nodes_in(folder) == NODES
    files.before_migration(1).replace(files.database)
    assert schema_of(files.database) == 1
    assert nodes_in(folder) == NODES


def test_without_room_for_the_copy_nothing_is_migrated(small_disk: Path) -> None:
    folder = small_disk / "state"
    make(folder, 1)
    with contextlib.closing(sqlite3.connect(StateFiles(folder).database)) as database, database:
        database.execute("UPDATE node SET message = hex(zeroblob(50000))")
    disk = os.statvfs(small_disk)
    (small_disk / "filler").write_bytes(bytes(max(0, disk.f_bavail * disk.f_frsize - (1 << 20))))
    with pytest.raises(StoreFull):
        nodes_in(folder)
    assert StateFiles(folder).before_migrations() == []
    (small_disk / "filler").unlink()
    assert nodes_in(folder) == NODES
