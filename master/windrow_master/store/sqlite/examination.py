"""Examines a database without opening a store over it, for `windrow doctor` and `windrow state check`."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from windrow_master.store.errors import DatabaseDamaged
from windrow_master.store.protocol import NO_TRACES, Traces
from windrow_master.store.sqlite.connections import SQLITE_MIN
from windrow_master.store.sqlite.integrity import check, is_damage, refuse_damaged_files, refuse_wrong_schema
from windrow_master.store.sqlite.schemas import SCHEMA, tables_in
from windrow_master.store.sqlite.store import refuse_older

_SCHEMA_AT = 60
"""The offset in a database file of its schema number: four bytes, most significant first (SQLite's file format)."""


def first_look(database: Path, traces: Traces, *, is_live: bool) -> dict[str, Any]:
    """The findings of a first look: SQLite's version and whether it will do, how the database is damaged (empty if no
    damage shows), its schema, and the newest known schema."""
    return {
        "sqlite": sqlite3.sqlite_version,
        "sqlite_ok": sqlite3.sqlite_version_info >= SQLITE_MIN,
        "damage": _damage(database, traces, is_live),
        "schema": _schema(database),
        "schema_known": SCHEMA,
    }


def all_damage(database: Path, traces: Traces) -> Iterator[tuple[str, str]]:
    """All damage, as (where, what): what the database files show, what the database says it is, and everything that
    SQLite finds. A schema that is newer than ours is none, unless its number is damaged: nobody can tell here."""
    try:
        refuse_damaged_files(database, traces)
        if not database.exists():
            return
        uri = f"{database.absolute().as_uri()}?mode=ro"
        with contextlib.closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
            refuse_wrong_schema(connection, database, traces)
            refuse_older(connection, database, traces.incarnation)
            schema = connection.execute("PRAGMA user_version").fetchone()[0]
        if schema > SCHEMA:
            yield (
                str(database),
                (
                    f"it has schema {schema}, and this Windrow knows schemas up to {SCHEMA}: no master of this version "
                    "starts with it. A newer version wrote it, unless that number is damaged. Check it with that one"
                ),
            )
        for text in check(database, whole=True):
            yield str(database), " ".join(text.split())
    except DatabaseDamaged as damage:
        yield damage.where, damage.what
    except OSError as error:
        yield str(database), f"it cannot be read: {error.strerror}"
    except sqlite3.Error as error:
        what = "SQLite says" if is_damage(error) else "it cannot be examined"
        yield str(database), f"{what}: {error}"


def has_tables(database: Path) -> bool:
    """Whether a database has any; also if it is too damaged to tell. Raises OSError if it cannot be opened at all.

    A damaged one is not opened: SQLite would then write the index of its log anew (`-shm`), the only place that tells
    how long the log was. The database would be taken for a sound one from then on, without its last commits.
    """
    if not database.stat().st_size and not database.with_name(f"{database.name}-wal").exists():
        return False
    uri = f"{database.absolute().as_uri()}?mode=ro"
    try:
        refuse_damaged_files(database, NO_TRACES)
        with contextlib.closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
            return bool(tables_in(connection))
    except (DatabaseDamaged, sqlite3.Error):
        return True


def _damage(database: Path, traces: Traces, is_live: bool) -> str:
    try:
        if database.parent.is_dir():
            refuse_damaged_files(database, traces, is_live=is_live)
    except DatabaseDamaged as damage:
        return str(damage)
    except OSError as error:
        return f"{database} cannot be read: {error.strerror}"
    return ""


def _schema(database: Path) -> int | None:
    with contextlib.suppress(OSError):
        with database.open("rb") as file:
            head = file.read(100)
        if head.startswith(b"SQLite format 3\0"):
            return int.from_bytes(head[_SCHEMA_AT : _SCHEMA_AT + 4], "big")
    return None
