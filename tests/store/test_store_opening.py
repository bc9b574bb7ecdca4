"""Opening a state folder: its lock, its file system, its schema, its reserve."""

from __future__ import annotations

import contextlib
import signal
import sqlite3
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from store_groups import RESERVE_BYTES, begun
from windrow_master.core.ids import StepId
from windrow_master.core.records import Dirty, NodeRow
from windrow_master.core.states import JobState, NodeState, StepState
from windrow_master.files.errors import NetworkFileSystem, StateDamaged, StateFolderInUse, StateUnusable
from windrow_master.files.filesystem import refuse_network, type_of
from windrow_master.files.reserve import Reserve
from windrow_master.state_folder.opening import StateFolder
from windrow_master.store.errors import DatabaseDamaged, SchemaTooNew, StoreBusy, StoreFull
from windrow_master.store.protocol import Store
from windrow_master.store.sqlite import connections, integrity, schemas
from windrow_master.store.sqlite.check_values import CHECK, TALLIES, row_crc, text_crc, texts_crc, with_crc
from windrow_master.store.sqlite.store import SqliteStore

HOLD = """
import sys
from pathlib import Path
from windrow_master.state_folder.opening import StateFolder
folder = StateFolder.open(Path(sys.argv[1]), 4096)
print("open", flush=True)
sys.stdin.read()
"""

MOUNTS = rb"""
21 1 254:0 / / rw - ext4 /dev/vda rw
30 21 0:40 / /home rw,nosuid shared:5 - nfs4 server:/home rw
31 30 254:1 / /home/me/local\040disk rw - xfs /dev/vdb rw
32 21 0:41 / /mnt/far rw - fuse.sshfs me@far:/ rw
33 21 0:42 / /mnt/c rw - 9p C: rw
34 21 0:43 / /over rw - tmpfs tmpfs rw
35 21 0:44 / /over rw - cifs //server/share rw
"""


def test_a_second_master_is_told_whose_folder_it_is(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        with pytest.raises(StateFolderInUse, match=rf"pid {holder.pid} on .* --state DIR") as caught:
            StateFolder.open(tmp_path, RESERVE_BYTES)
        assert caught.value.pid == holder.pid
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    # The kernel let go of it with the process: nothing to clean up.
    with store_of(tmp_path) as store:
        assert store.incarnation == 2


@contextlib.contextmanager
def store_of(folder: Path) -> Iterator[Store]:
    """The store of a state folder, which is closed at the end of a with."""
    with contextlib.closing(StateFolder.open(folder, RESERVE_BYTES)) as opened:
        yield opened.store


def test_the_lock_is_not_inherited(tmp_path: Path) -> None:
    opened = StateFolder.open(tmp_path, RESERVE_BYTES)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, close_fds=False) as child:
        opened.close()
        StateFolder.open(tmp_path, RESERVE_BYTES).close()
        assert child.poll() is None
        assert child.stdin is not None
        child.stdin.close()


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    with pytest.raises(StateUnusable, match="Choose a folder that this user can write to"):
        StateFolder.open(tmp_path, RESERVE_BYTES)


@pytest.mark.parametrize(
    ("folder", "kind", "refused"),
    [
        ("/srv/state", "ext4", False),
        ("/home/me/state", "nfs4", True),
        ("/home/me/local disk/state", "xfs", False),
        ("/home/me/local disks", "nfs4", True),
        ("/mnt/far", "fuse.sshfs", True),
        ("/mnt/c/state", "9p", True),
        ("/over/x", "cifs", True),
    ],
)
def test_network_file_systems_are_refused(tmp_path: Path, folder: str, kind: str, refused: bool) -> None:
    table = tmp_path / "mountinfo"
    table.write_bytes(MOUNTS)
    assert type_of(Path(folder), table) == kind
    if refused:
        with pytest.raises(NetworkFileSystem, match=rf"\({kind}\).*--state DIR"):
            refuse_network(Path(folder), table)
    else:
        refuse_network(Path(folder), table)


def test_an_unknown_mount_table_refuses_nothing(tmp_path: Path) -> None:
    refuse_network(tmp_path, tmp_path / "none")
    assert type_of(tmp_path) != ""


def test_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    StateFolder.open(tmp_path, RESERVE_BYTES).close()
    path = tmp_path / "windrow.db"
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 1000")
    database.close()
    with pytest.raises(SchemaTooNew, match=r"schema 1000; this Windrow knows schemas up to \d+"):
        StateFolder.open(tmp_path, RESERVE_BYTES)
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT count(*) FROM master").fetchone() == (1,)
    database.close()


def test_migrations_run_forward_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with store_of(tmp_path) as store:
        store.commit(begun(), [], [])
    script = "ALTER TABLE job ADD COLUMN colour TEXT NOT NULL DEFAULT 'red';"
    add_schema(monkeypatch, script)
    for _ in range(2):
        with store_of(tmp_path) as store:
            assert len(store.load().jobs) == 1
    with sqlite3.connect(tmp_path / "windrow.db") as database:
        assert database.execute("SELECT colour FROM job").fetchall() == [("red",)]
        assert database.execute("PRAGMA user_version").fetchone() == (schemas.SCHEMA,)
    database.close()


def add_schema(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """There is one more schema than there is."""
    scripts, whole = [*schemas.migrations(), script], schemas.whole() + script
    monkeypatch.setattr(schemas, "migrations", lambda: scripts)
    monkeypatch.setattr(schemas, "whole", lambda: whole)
    for module in (schemas, integrity):
        monkeypatch.setattr(module, "SCHEMA", len(scripts))


def database_of(folder: Path, schema: int) -> sqlite3.Connection:
    """A database that an earlier version has made."""
    path = folder / "windrow.db"
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA auto_vacuum = INCREMENTAL")
    for number, script in enumerate(schemas.migrations()[:schema], 1):
        schemas.advance(database, path, script, number)
    return database


def content_of(database: sqlite3.Connection) -> tuple[list[object], dict[str, list[object]]]:
    """Its tables with their places in the file, and all rows of each."""
    places = database.execute("SELECT name, rootpage FROM sqlite_schema ORDER BY name").fetchall()
    tables = database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    return places, {name: database.execute(f"SELECT * FROM {name}").fetchall() for (name,) in tables}


def test_a_new_database_is_what_the_migrations_lead_to(tmp_path: Path) -> None:
    """Statements, rows, and places in the file: with a new first page an older database is read, too."""
    assert len(schemas.migrations()) == schemas.SCHEMA
    new = sqlite3.connect(tmp_path / "new.db", isolation_level=None)
    new.execute("PRAGMA auto_vacuum = INCREMENTAL")
    schemas.migrate(new, tmp_path / "new.db")
    with contextlib.closing(new), contextlib.closing(database_of(tmp_path, schemas.SCHEMA)) as forward:
        assert schemas.tables_in(new) == schemas.tables_in(forward)
        assert content_of(new) == content_of(forward)
        for pragma in ("user_version", "application_id"):
            assert new.execute(f"PRAGMA {pragma}").fetchone() == forward.execute(f"PRAGMA {pragma}").fetchone()


def test_a_database_of_the_first_schema_goes_forward_and_keeps_its_nodes(tmp_path: Path) -> None:
    """Rows of nodes that are lost were kept then; only a cordon keeps one now."""
    states = {"here": NodeState.READY, "leaving": NodeState.DRAINING, "lost": NodeState.LOST}
    with contextlib.closing(database_of(tmp_path, 1)) as database:
        database.executemany(
            "INSERT INTO node (node_id, node_incarnation, state, message, resources, labels, register_time) "
            "VALUES (?, 'a', ?, 'why', x'7b7d', x'7b7d', 5.0)",
            [(name, int(state)) for name, state in states.items()],
        )
        assert database.execute("PRAGMA user_version").fetchone() == (1,)
    with store_of(tmp_path) as store:
        assert store.load().nodes == [
            NodeRow("here", "a", NodeState.READY, "why", b"{}", b"{}", 5.0, cordoned=0),
            NodeRow("leaving", "a", NodeState.DRAINING, "why", b"{}", b"{}", 5.0, cordoned=0),
        ]


def test_assets_of_a_schema_without_projects_are_those_of_their_jobs(tmp_path: Path) -> None:
    """As far as these are there. Their check values hold afterwards."""
    with contextlib.closing(database_of(tmp_path, 6)) as database:
        database.executescript(
            """
            INSERT INTO job VALUES (1, 'job-1', 'r', 3, 1, 1, 'vision', 0, 1, NULL, 'd', '', x'5b5d', 1.5, 2.5);
            INSERT INTO job_document VALUES (1, x'7b7d');
            UPDATE counted SET value = 1;
            INSERT INTO asset (kind, name, version, type, path, is_file, description, tags, create_time, job_id)
              VALUES (1, 'of-job', '1', 'uri_file', '/a', 1, '', x'7b7d', 1.0, 'job-1'),
                     (1, 'of-deleted', '1', 'uri_file', '/b', 1, '', x'7b7d', 1.0, 'job-0'),
                     (1, 'of-client', '1', 'uri_file', '/c', 1, '', x'7b7d', 1.0, '');
            """
        )
    with store_of(tmp_path) as store:
        reader = store.reader()
        found = {name: reader.asset(1, name, "1") for name in ("of-job", "of-deleted", "of-client")}
        assert {name: row and row.project for name, row in found.items()} == {
            "of-job": "vision",
            "of-deleted": "",
            "of-client": "",
        }


def test_rows_of_a_schema_without_check_values_get_them(tmp_path: Path) -> None:
    """Those of recipes, too: what they hold now is taken to be what was planned."""
    names = b"one\0two\0three\0"
    recipes = tmp_path / "jobs" / "job-1" / "steps" / "1" / "recipes"
    recipes.parent.mkdir(parents=True)
    recipes.write_bytes(names)
    with contextlib.closing(database_of(tmp_path, 6)) as database:
        database.executescript(
            """
            INSERT INTO job VALUES (1, 'job-1', 'r', 1, 1, 1, 'default', 0, 1, NULL, 'd', '', x'5b5d', 1.5, NULL);
            INSERT INTO job_document VALUES (1, x'7b7d');
            INSERT INTO step (step_id, job_key, ordinal, name, state, message, counters)
              VALUES (1, 1, 0, 's', 1, '', CAST('{"planned":2}' AS BLOB));
            INSERT INTO step_document VALUES (1, x'7b7d', NULL, NULL);
            INSERT INTO mini_batch (key, item_first, item_count, recipe_offset, recipe_length, generation)
              VALUES (4294967296, 0, 2, 0, 7, 1), (4294967297, 2, 1, 8, 5, 1);
            INSERT INTO attempt (lease_id, step_id, mini_batch, generation, node_id, node_incarnation, process_number,
                state, cause, start_unix_us, elapsed_us, run_us, cpu_us, item_count, result_count, peak_rss_kib,
                message, detail)
              VALUES (77, 1, 1, 1, 'n', 'i', 0, 3, 1, 5, 5, 5, 5, 1, 0, 9, 'it raised', 'Traceback');
            UPDATE counted SET value = 1;
            """
        )
    with store_of(tmp_path) as store:
        (step,) = store.load().steps
        assert list(step.recipe_crcs) == [zlib.crc32(b"one\0two"), zlib.crc32(b"three")]
        assert [attempt[:2] for attempt in step.attempts] == [(1, 77)]
        assert [row.message for page in store.reader().attempts_of(StepId(1)) for row in page] == ["it raised"]


def rows_of_schema_7(folder: Path) -> None:
    """A job that has not ended, as the version before wrote it."""
    with contextlib.closing(database_of(folder, 7)) as database:
        database.execute("INSERT INTO master VALUES (1, 77, 'host:1', 0, 1.5, ?)", (row_crc((1, 77)),))
        job = (1, "job-1", "r", int(JobState.RUNNING), 2, 9, "default", 3, 1, None, "d", "", b"[]", 1.5, None)
        database.execute(f"INSERT INTO job VALUES ({','.join('?' * 16)})", with_crc(job))
        database.execute("INSERT INTO job_document VALUES (?, ?, ?)", with_crc((1, b"{}")))
        step = (1, 1, 0, "s", int(StepState.RUNNING), "", b'{"done":true}', b'{"planned":2}', 1.5, None, "")
        database.execute(f"INSERT INTO step VALUES ({','.join('?' * 12)})", with_crc(step))
        database.execute("INSERT INTO step_document VALUES (?, ?, ?, ?, ?)", with_crc((1, b"{}", b"{}", None)))
        for index in range(2):
            database.execute(
                "INSERT INTO mini_batch (key, item_first, item_count, recipe_offset, recipe_length, generation) "
                "VALUES (?, ?, 1, 0, 7, 1)",
                (1 << 32 | index, index),
            )
        database.execute(
            "INSERT INTO attempt (lease_id, step_id, mini_batch, generation, node_id, node_incarnation, "
            "process_number, state, cause, start_unix_us, elapsed_us, run_us, cpu_us, item_count, result_count, "
            "peak_rss_kib, message, detail, message_crc32, texts_crc32) "
            "VALUES (?, 1, 1, 1, 'n', 'i', 0, 3, 1, 5, 5, 5, 5, 1, 0, 9, 'it raised', '', ?, ?)",
            (77 << 32 | 1, text_crc("it raised"), texts_crc("n", "i", "")),
        )
        for tally in TALLIES:
            own = tally.sum_of({name: name for name in tally.columns})
            database.execute(f"UPDATE {tally.table} SET {CHECK} = {own}")
        database.executemany(
            "UPDATE counted SET value = 1, check_value = ? WHERE name = ?",
            [(row_crc((name, 1)), name) for name in ("job_key", "step_id")],
        )


def test_an_unfinished_job_of_the_schema_with_unused_columns_goes_on(tmp_path: Path) -> None:
    rows_of_schema_7(tmp_path)
    with store_of(tmp_path) as store:
        snapshot = store.load()
        (job,), (step,) = snapshot.jobs, snapshot.steps
        assert (job.job_id, job.state, job.generation, job.seq, job.priority) == ("job-1", JobState.RUNNING, 2, 9, 3)
        assert len(step.states) == 2 and [attempt.mini_batch for attempt in step.attempts] == [1]
        assert snapshot.lease_prefixes == {77, store.lease_prefix} and store.incarnation == 2
        store.commit(Dirty(jobs=[job._replace(seq=10)]), [], [])
        assert store.load().jobs[0].seq == 10


def test_a_job_that_was_damaged_before_the_unused_columns_went_is_still_found_out(tmp_path: Path) -> None:
    rows_of_schema_7(tmp_path)
    with sqlite3.connect(tmp_path / "windrow.db") as database:
        database.execute("UPDATE job SET priority = 4")
    database.close()
    with store_of(tmp_path) as store, pytest.raises(StateDamaged, match="table job, job_key 1"):
        store.load()


def rows_of_schema_9(folder: Path) -> None:
    """A job that has not ended, and a node, as the version before wrote them."""
    rows_of_schema_7(folder)
    with contextlib.closing(sqlite3.connect(folder / "windrow.db", isolation_level=None)) as database:
        for number, script in enumerate(schemas.migrations()[7:9], 8):
            schemas.advance(database, folder / "windrow.db", script, number)
        node = ("here", "a", int(NodeState.READY), "", b"{}", b"{}", 5.0, 1)
        database.execute("INSERT INTO node VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", with_crc(node))
        assert database.execute("PRAGMA user_version").fetchone() == (9,)


def test_an_unfinished_job_of_the_schema_without_identities_goes_on(tmp_path: Path) -> None:
    rows_of_schema_9(tmp_path)
    with store_of(tmp_path) as store:
        snapshot = store.load()
        (job,), (node,) = snapshot.jobs, snapshot.nodes
        assert (job.state, job.seq, job.queue, job.submitter) == (JobState.RUNNING, 9, "default", "")
        assert node == NodeRow("here", "a", NodeState.READY, "", b"{}", b"{}", 5.0, 1, "")
        store.commit(Dirty(jobs=[job._replace(seq=10)], nodes=[node._replace(secret_digest="d")]), [], [])
        assert store.load().nodes[0].secret_digest == "d" and store.reader().tokens() == []


@pytest.mark.parametrize(("table", "column"), [("job", "priority"), ("node", "cordoned")])
def test_rows_that_were_damaged_before_identities_came_are_still_found_out(
    tmp_path: Path, table: str, column: str
) -> None:
    rows_of_schema_9(tmp_path)
    with sqlite3.connect(tmp_path / "windrow.db") as database:
        database.execute(f"UPDATE {table} SET {column} = {column} + 1")
    database.close()
    with store_of(tmp_path) as store, pytest.raises(StateDamaged, match=f"table {table}"):
        store.load()


def test_a_migration_that_fails_leaves_the_schema_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    StateFolder.open(tmp_path, RESERVE_BYTES).close()
    known = schemas.migrations()
    monkeypatch.setattr(schemas, "migrations", lambda: [*known, "CREATE TABLE more (x); DROP TABLE absent;"])
    monkeypatch.setattr(schemas, "SCHEMA", len(known) + 1)
    with pytest.raises(StateUnusable, match="absent"):
        StateFolder.open(tmp_path, RESERVE_BYTES)
    monkeypatch.undo()
    with store_of(tmp_path) as store:
        assert store.incarnation == 2


def test_somebody_elses_database_is_left_alone(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "windrow.db") as database:
        database.execute("CREATE TABLE theirs (x)")
    database.close()
    with pytest.raises(StateUnusable, match="not one of Windrow's"):
        StateFolder.open(tmp_path, RESERVE_BYTES)


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "windrow.db").write_bytes(b"no database at all " * 100)
    with pytest.raises(DatabaseDamaged, match="does not begin like a SQLite database"):
        StateFolder.open(tmp_path, RESERVE_BYTES)


def test_a_database_that_is_locked_when_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    StateFolder.open(tmp_path, RESERVE_BYTES).close()
    monkeypatch.setattr(connections, "WRITER_WAIT_S", 0.01)
    other = sqlite3.connect(tmp_path / "windrow.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusy, match="locked by another program"):
        StateFolder.open(tmp_path, RESERVE_BYTES)
    other.close()
    StateFolder.open(tmp_path, RESERVE_BYTES).close()


def test_durability_is_switched_on(tmp_path: Path) -> None:
    database = connections.FileDatabase(tmp_path / "windrow.db")
    writer = database.writer()
    assert writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert writer.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
    with database.reader() as reader, pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader.execute("DELETE FROM job")
    database.close()


def test_the_reserve_is_real_and_can_be_given_back(tmp_path: Path) -> None:
    reserve = Reserve(tmp_path / "reserve", 1 << 20)
    assert not reserve.release()
    assert reserve.restore()
    assert reserve.held
    status = (tmp_path / "reserve").stat()
    assert status.st_size == 1 << 20
    assert status.st_blocks * 512 >= 1 << 20
    assert reserve.release()
    assert not reserve.held
    assert not (tmp_path / "reserve").exists()


def test_the_reserve_waits_for_twice_its_size(tmp_path: Path) -> None:
    reserve = Reserve(tmp_path / "reserve", 1 << 60)
    assert not reserve.restore()
    assert not (tmp_path / "reserve").exists()


@pytest.mark.parametrize("with_reserve", [True, False])
def test_a_full_disk_when_opened_gives_up_the_reserve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_reserve: bool
) -> None:
    StateFolder.open(tmp_path, RESERVE_BYTES).close()
    reserve = tmp_path / "reserve"
    if not with_reserve:
        reserve.unlink()
    real = SqliteStore._take_over

    def take_over(store: SqliteStore) -> tuple[int, int]:
        if reserve.exists() or not with_reserve:
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error
        return real(store)

    monkeypatch.setattr(SqliteStore, "_take_over", take_over)
    if with_reserve:
        with store_of(tmp_path) as store:
            assert store.incarnation == 2
    else:
        with pytest.raises(StoreFull, match="Free some space, then restart the master"):
            StateFolder.open(tmp_path, RESERVE_BYTES)
        monkeypatch.undo()
        StateFolder.open(tmp_path, RESERVE_BYTES).close()


def test_others_may_not_read_the_state(tmp_path: Path) -> None:
    with store_of(tmp_path) as store:
        store.commit(begun(), [], [])
        modes = {path.name: path.stat().st_mode & 0o077 for path in tmp_path.iterdir()}
    assert modes.keys() >= {"windrow.db", "windrow.db-wal"}
    assert set(modes.values()) == {0}
