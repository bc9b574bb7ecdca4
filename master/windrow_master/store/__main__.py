"""`python -m windrow_master.store DIR`: whether a folder can be a master's state folder, as one JSON document.

For `windrow doctor`. The folder need not be there: then the nearest one above it is looked at. What is tried is tried
in a folder of its own in there, which goes again; a database that is there is only read.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import shutil
import sqlite3
import sys
import time
from pathlib import Path

from windrow_master.store.connections import SQLITE_MIN, migrations
from windrow_master.store.errors import DatabaseDamaged
from windrow_master.store.filesystem import NETWORK_TYPES, type_of
from windrow_master.store.integrity import refuse_damaged_files
from windrow_master.store.lock import LOCK_FILE, is_locked
from windrow_master.store.reserve import RESERVE_BYTES
from windrow_master.store.sqlite import DATABASE_FILE
from windrow_master.temporary import temporary_folder

SYNCS = 20
SYNCS_S = 2.0
_SCHEMA_AT = 60
"""Where a database file keeps its schema's number, as four bytes, most significant first (SQLite's file format)."""


def look(folder: Path) -> dict[str, object]:
    """The whole document. `trials` null: nothing could be written; `trouble` says why."""
    nearest = folder
    while not nearest.exists():
        nearest = nearest.parent
    kind = type_of(nearest)
    found: dict[str, object] = {
        "folder": str(folder),
        "is_there": folder.is_dir(),
        "looked_at": str(nearest),
        "kind": kind,
        "network": kind in NETWORK_TYPES,
        "free_bytes": shutil.disk_usage(nearest).free,
        "needed_bytes": 2 * RESERVE_BYTES,
        "sqlite": sqlite3.sqlite_version,
        "sqlite_ok": sqlite3.sqlite_version_info >= SQLITE_MIN,
        "damage": _damage(folder),
        "schema": _schema(folder / DATABASE_FILE),
        "schema_known": len(migrations()),
        "locked": is_locked(folder / LOCK_FILE),
        "trials": None,
        "trouble": "",
    }
    try:
        with temporary_folder(".windrow-doctor-", nearest) as place:
            found["trials"] = {
                "flock": _flock(place / "lock"),
                "shared_map": _shared_map(place / "map"),
                "sync_ms": _sync_ms(place / "sync"),
            }
    except OSError as error:
        found["trouble"] = f"{error.filename or nearest}: {error.strerror}"
    return found


def _damage(folder: Path) -> str:
    """How damage of the database shows at a first look; "" where none does."""
    live = is_locked(folder / LOCK_FILE)
    try:
        if folder.is_dir():
            refuse_damaged_files(folder / DATABASE_FILE, is_live=live)
    except DatabaseDamaged as damage:
        return str(damage)
    except OSError as error:
        return f"{folder / DATABASE_FILE} cannot be read: {error.strerror}"
    return ""


def _schema(database: Path) -> int | None:
    with contextlib.suppress(OSError):
        with database.open("rb") as file:
            head = file.read(100)
        if head.startswith(b"SQLite format 3\0"):
            return int.from_bytes(head[_SCHEMA_AT : _SCHEMA_AT + 4], "big")
    return None


def _flock(path: Path) -> bool:
    """Whether a lock keeps another open file out."""
    with path.open("wb") as first, path.open("wb") as second:
        try:
            fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        try:
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
    return False


def _shared_map(path: Path) -> bool:
    """Whether what one map of a file writes is seen by another."""
    path.write_bytes(bytes(4096))
    try:
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 4096) as one, mmap.mmap(file.fileno(), 4096) as other:
            one[:7] = b"windrow"
            return other[:7] == b"windrow"
    except (OSError, ValueError):
        return False


def _sync_ms(path: Path) -> list[float]:
    """How long syncs of a page took, in milliseconds, the shortest first. Raises OSError where they fail."""
    taken: list[float] = []
    deadline = time.monotonic() + SYNCS_S
    with path.open("wb", buffering=0) as file:
        while len(taken) < SYNCS and (not taken or time.monotonic() < deadline):
            file.write(bytes(4096))
            begin = time.monotonic()
            os.fdatasync(file.fileno())
            taken.append(1000 * (time.monotonic() - begin))
    return sorted(taken)


if __name__ == "__main__":
    print(json.dumps(look(Path(sys.argv[1]).absolute())))
