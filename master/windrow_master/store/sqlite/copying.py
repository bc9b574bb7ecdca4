"""Copies a database as it is at one moment, while a master writes to it, and checks the copy."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path
from typing import NamedTuple

from windrow.common.durable import sync_folder

from windrow_master.core.states import JobState
from windrow_master.files.state_files import StateFiles
from windrow_master.store.errors import DatabaseDamaged, StoreBroken
from windrow_master.store.sqlite.integrity import check, is_damage

_PAGES = 256
"""Copied at a time. Between two times, other processes get their turn."""
_WAIT_S = 10.0


class Copied(NamedTuple):
    """What was copied. `generations`: of all jobs, by number."""

    schema: int
    incarnation: int
    generations: dict[int, int]


def copy_database(source: Path, target: Path) -> Copied:
    """Copy a database, and sync the copy. Writers do not wait; what they commit meanwhile is not in it.

    Raises DatabaseDamaged, StoreBroken, OSError.
    """
    try:
        with (
            contextlib.closing(_reading(source)) as connection,
            contextlib.closing(sqlite3.connect(target, isolation_level=None)) as copy,
        ):
            os.chmod(target, 0o600)  # noqa: PTH101
            # An open transaction keeps the moment: otherwise each commit would begin the copy anew.
            connection.execute("BEGIN")
            copied = _described(connection)
            connection.backup(copy, pages=_PAGES, sleep=0)
            connection.execute("COMMIT")
            # One file alone; a master that opens it makes a log again.
            copy.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.Error as error:
        raise _classified(source, error) from error
    with target.open("rb") as file:
        os.fsync(file.fileno())
    sync_folder(target.parent)
    return copied


def generations(database: Path) -> dict[int, int]:
    """The generations of all jobs, by number. Raises DatabaseDamaged, StoreBroken."""
    try:
        with contextlib.closing(_reading(database)) as connection:
            return _generations(connection)
    except sqlite3.Error as error:
        raise _classified(database, error) from error


def troubles(files: StateFiles) -> str:
    """What is wrong with a copy of a state folder, in words; "" if nothing is: SQLite's quick check, and whether the
    files of rows that it names are there, as long as they have to be.
    """
    try:
        found = check(files.database, whole=False, limit=1)
        if found:
            return f"SQLite finds: {' '.join(found[0].split())}"
        with contextlib.closing(_reading(files.database)) as connection:
            rows = connection.execute(
                "SELECT job_id, step_id, segment.name, length, job.state FROM segment JOIN step USING (step_id) "
                "JOIN job USING (job_key)"
            ).fetchall()
    except sqlite3.Error as error:
        return f"SQLite says: {error}"
    for job_id, step_id, name, length, state in rows:
        path = files.step(job_id, step_id).segments / name
        if state >= JobState.COMPLETED and not path.parent.is_dir():
            continue  # somebody has removed the rows of an ended job, which are in its output
        try:
            here = path.stat().st_size
        except OSError:
            return f"{path} is missing"
        if here < length:
            return f"{path} has {here:,} of {length:,} bytes"
    return ""


def _described(connection: sqlite3.Connection) -> Copied:
    schema: int = connection.execute("PRAGMA user_version").fetchone()[0]
    incarnation: int = connection.execute("SELECT coalesce(max(incarnation), 0) FROM master").fetchone()[0]
    return Copied(schema, incarnation, _generations(connection))


def _generations(connection: sqlite3.Connection) -> dict[int, int]:
    return dict(connection.execute("SELECT job_key, generation FROM job").fetchall())


def _reading(path: Path) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode=ro"
    return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=_WAIT_S)


def _classified(path: Path, error: sqlite3.Error) -> DatabaseDamaged | StoreBroken:
    if is_damage(error):
        return DatabaseDamaged(str(path), f"SQLite says: {error}")
    return StoreBroken(f"{path} cannot be copied: {error}. Check the disks, and try again.")
