"""The schemas of the database: all tables at once for a new one, migrations for one that an older version made.

`schema/NNNN_*.sql` leads from schema NNNN - 1 to NNNN. `schema/whole_NNNN.sql` holds all tables of schema NNNN, the
newest. Both ways lead to the same tables, in the same places of the file; a test compares them.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import zlib
from functools import cache
from pathlib import Path

from windrow.common.durable import put_in_place

from windrow_master.core.ids import MINI_BATCH_SHIFT
from windrow_master.core.states import MiniBatchState
from windrow_master.crash_points import reach
from windrow_master.files.state_files import StateFiles
from windrow_master.store.errors import SchemaTooNew
from windrow_master.store.sqlite.check_values import ASSET, CHECK, TALLIES, WHOLE_ROWS, row_crc, text_crc, texts_crc

APPLICATION_ID = 0x57524F57
SCHEMA = 13
"""The number of the newest schema."""
_FOLDER = Path(__file__).parent / "schema"
MIGRATING = ".migrating"
CHECKS_SCHEMA = 7
UNUSED_COLUMNS_SCHEMA = 8
IDENTITY_SCHEMA = 10
QUEUES_SCHEMA = 11
ASSET_PROJECTS_SCHEMA = 12

_JOB_OF_SCHEMA_7 = (
    "job_key, job_id, request_id, state, generation, seq, queue, priority, weight, parent_key, run_digest, message, "
    "warnings, create_time, end_time"
)
_JOB_OF_SCHEMA_8 = _JOB_OF_SCHEMA_7.replace("parent_key, ", "")
_JOB_OF_SCHEMA_10 = f"{_JOB_OF_SCHEMA_8}, submitter"
_ASSET_OF_SCHEMA_11 = ASSET.removesuffix(", project")
_NODE_OF_SCHEMA_9 = "node_id, node_incarnation, state, message, resources, labels, register_time, cordoned"
_LATER_TABLES = ("token", "queue", "ledger", "fleet", "allocation")
_TABLES_OF_SCHEMA_7 = {
    **{table: columns for table, columns in WHOLE_ROWS.items() if table not in _LATER_TABLES},
    "job": _JOB_OF_SCHEMA_7,
    "node": _NODE_OF_SCHEMA_9,
    "asset": _ASSET_OF_SCHEMA_11,
}
_COMMENT = re.compile(r"--[^\n]*")
_PUNCTUATION = re.compile(r"\s*([(),])\s*")


def migrations() -> list[str]:
    """The migrations, in order and without gaps: the first leads to schema 1."""
    names = sorted(file.name for file in _FOLDER.iterdir() if file.name[:4].isdecimal())
    for number, name in enumerate(names, 1):
        if int(name[:4]) != number:
            raise AssertionError(f"migration {name} should have number {number}")
    return [(_FOLDER / name).read_text(encoding="utf-8") for name in names]


def whole() -> str:
    """All tables of the newest schema."""
    return (_FOLDER / f"whole_{SCHEMA:04}.sql").read_text(encoding="utf-8")


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Give a new database its tables, or bring an older one forward, each migration in a transaction of its own.

    Raises SchemaTooNew, sqlite3.Error.
    """
    present: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if present > SCHEMA:
        raise SchemaTooNew(
            f"{path} has schema {present}; this Windrow knows schemas up to {SCHEMA}. A newer version wrote it, "
            "unless that number is damaged. Use that version or a newer one, or choose another state folder: "
            "--state DIR."
        )
    if not present:
        _run(connection, path, whole(), SCHEMA, fill=False)
    elif present < SCHEMA:
        scripts = migrations()
        for number in range(present + 1, SCHEMA + 1):
            advance(connection, path, scripts[number - 1], number)


def bring_forward(connection: sqlite3.Connection, path: Path) -> None:
    """As `migrate`; a database that has an older schema is copied before, durably, and the copy stays beside it until
    the next time (`StateFiles.before_migration`).

    A copy has the suffix MIGRATING until all migrations are done. So one that breaks off and goes on keeps the database
    from before the first of them. Raises SchemaTooNew, sqlite3.Error, OSError.
    """
    files = StateFiles(path.parent)
    present: int = connection.execute("PRAGMA user_version").fetchone()[0]
    migrating = [copy for copy in files.before_migrations() if copy.suffix == MIGRATING]
    if 0 < present < SCHEMA and not migrating:
        kept = files.before_migration(present)
        migrating = [kept.with_name(f"{kept.name}{MIGRATING}")]
        partial = kept.with_name(f"{kept.name}.partial")
        partial.unlink(missing_ok=True)
        try:
            connection.execute("VACUUM INTO ?", (str(partial),))
            partial.chmod(0o600)
            put_in_place(partial, migrating[0])
        finally:
            partial.unlink(missing_ok=True)
        reach("schema.copied")
    migrate(connection, path)
    for copy in migrating:
        copy.replace(copy.with_suffix(""))
        for other in files.before_migrations():
            if other != copy.with_suffix(""):
                other.unlink(missing_ok=True)


def advance(connection: sqlite3.Connection, path: Path, script: str, number: int) -> None:
    """Run one migration: from schema `number` - 1 to `number`."""
    _run(connection, path, script, number, fill=True)


def _run(connection: sqlite3.Connection, path: Path, script: str, number: int, *, fill: bool) -> None:
    try:
        connection.executescript(f"BEGIN IMMEDIATE;\n{script}")
        if fill and number == CHECKS_SCHEMA:
            _fill_checks(connection, StateFiles(path.parent))
        elif fill and number == UNUSED_COLUMNS_SCHEMA:
            _check_anew(connection, "job", _JOB_OF_SCHEMA_7, _JOB_OF_SCHEMA_8)
        elif fill and number == IDENTITY_SCHEMA:
            _check_anew(connection, "job", _JOB_OF_SCHEMA_8, _JOB_OF_SCHEMA_10)
            _check_anew(connection, "node", _NODE_OF_SCHEMA_9, f"{_NODE_OF_SCHEMA_9}, secret_digest")
        elif fill and number == QUEUES_SCHEMA:
            _check_anew(connection, "job", _JOB_OF_SCHEMA_10, f"{_JOB_OF_SCHEMA_10}, deadline")
        elif fill and number == ASSET_PROJECTS_SCHEMA:
            _check_anew(connection, "asset", _ASSET_OF_SCHEMA_11, ASSET)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {number}")
        reach("schema.written")
        connection.execute("COMMIT")
        reach("schema.committed")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def tables_in(connection: sqlite3.Connection) -> frozenset[tuple[str, ...]]:
    """The tables and indexes of a database, each with its statement, without comments and layout."""
    rows = connection.execute("SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_schema").fetchall()
    return frozenset((kind, name, table, _statement(sql)) for kind, name, table, sql in rows)


@cache
def tables_of(version: int) -> frozenset[tuple[str, ...]]:
    """The tables and indexes of a schema, in the same form."""
    scripts = [whole()] if version == SCHEMA else migrations()[:version]
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for script in scripts:
            connection.executescript(script)
        return tables_in(connection)


def _statement(sql: str) -> str:
    return _PUNCTUATION.sub(r"\1", " ".join(_COMMENT.sub("", sql).split()))


def _fill_checks(connection: sqlite3.Connection, files: StateFiles) -> None:
    """Give all rows their check values, in the transaction of the migration to schema 7. Raises sqlite3.Error, OSError.

    The current content of the rows is taken as what was written.
    """
    _fill_recipes(connection, files)
    connection.create_function("windrow_text_crc", 1, text_crc, deterministic=True)
    connection.create_function("windrow_texts_crc", 3, texts_crc, deterministic=True)
    connection.execute(
        "UPDATE attempt SET message_crc32 = windrow_text_crc(message), "
        "texts_crc32 = windrow_texts_crc(node_id, node_incarnation, detail)"
    )
    connection.execute("UPDATE item_outcome SET message_crc32 = windrow_text_crc(message)")
    for tally in TALLIES:
        own = tally.sum_of({name: name for name in tally.columns})
        connection.execute(f"UPDATE {tally.table} SET {CHECK} = {own}")
    for table, columns in _TABLES_OF_SCHEMA_7.items():
        rows = connection.execute(f"SELECT {columns}, rowid FROM {table}").fetchall()
        connection.executemany(
            f"UPDATE {table} SET {CHECK} = ? WHERE rowid = ?", [(row_crc(row[:-1]), row[-1]) for row in rows]
        )


def _check_anew(connection: sqlite3.Connection, table: str, before: str, after: str) -> None:
    """Give the rows of a table the check values over other columns, in the transaction of a migration.

    `before`: the columns that they are over; one that is gone counts as NULL. A row that was damaged before keeps its
    old value, so that its damage still shows.
    """
    old, new = before.split(", "), after.split(", ")
    rows = connection.execute(f"SELECT rowid, {CHECK}, {after} FROM {table}").fetchall()
    for rowid, check, *values in rows:
        row = dict(zip(new, values, strict=True))
        if row_crc([row.get(name) for name in old]) == check:
            connection.execute(
                f"UPDATE {table} SET {CHECK} = ? WHERE rowid = ?", (row_crc([row[name] for name in new]), rowid)
            )


def _fill_recipes(connection: sqlite3.Connection, files: StateFiles) -> None:
    """Store the crc32 of the recipes of mini-batches that may still run."""
    steps = connection.execute("SELECT step_id, job_id FROM step JOIN job USING (job_key) ORDER BY step_id").fetchall()
    for step_id, job_id in steps:
        rows = connection.execute(
            "SELECT key, recipe_offset, recipe_length FROM mini_batch WHERE key >= ? AND key < ? AND recipe_length > 0 "
            f"AND state <> {int(MiniBatchState.CANCELLED)}",
            (step_id << MINI_BATCH_SHIFT, (step_id + 1) << MINI_BATCH_SHIFT),
        ).fetchall()
        if not rows:
            continue
        try:
            recipes = os.open(files.step(job_id, step_id).recipes, os.O_RDONLY)
        except FileNotFoundError:
            continue
        try:
            crcs = [(zlib.crc32(os.pread(recipes, length, offset)), key) for key, offset, length in rows]
        finally:
            os.close(recipes)
        connection.executemany("UPDATE mini_batch SET recipe_crc32 = ? WHERE key = ?", crcs)
