"""`python -m windrow_master.state_folder DIR`: reports whether a folder can be a state folder, as one JSON document.

For `windrow doctor`. If the folder does not exist, the nearest existing one above it is examined. Trials run in a
temporary folder inside it; an existing database is only read.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import shutil
import sys
import time
from pathlib import Path

from windrow_master.files.disk_use import kinds
from windrow_master.files.filesystem import NETWORK_TYPES, type_of
from windrow_master.files.lock import is_locked
from windrow_master.files.reserve import RESERVE_BYTES
from windrow_master.files.state_files import StateFiles
from windrow_master.files.temporary import temporary_folder
from windrow_master.store.protocol import Traces
from windrow_master.store.sqlite.examination import first_look

SYNCS = 20
SYNCS_S = 2.0


def look(folder: Path) -> dict[str, object]:
    """Examine a folder; return the document. `trials` null: nothing could be written, and `trouble` says why."""
    nearest = folder
    while not nearest.exists():
        nearest = nearest.parent
    kind = type_of(nearest)
    files = StateFiles(folder)
    locked = is_locked(files.lock)
    found: dict[str, object] = {
        "folder": str(folder),
        "is_there": folder.is_dir(),
        "looked_at": str(nearest),
        "kind": kind,
        "network": kind in NETWORK_TYPES,
        "free_bytes": shutil.disk_usage(nearest).free,
        "needed_bytes": 2 * RESERVE_BYTES,
        **first_look(files.database, Traces(beside=files.signs_of_use()), is_live=locked),
        "locked": locked,
        "disk_use": kinds(files) if folder.is_dir() else {},
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


def _flock(path: Path) -> bool:
    """Whether a lock excludes a second opening of the file."""
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
    """Whether one map of a file shows what another has written."""
    path.write_bytes(bytes(4096))
    try:
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 4096) as one, mmap.mmap(file.fileno(), 4096) as other:
            one[:7] = b"windrow"
            return other[:7] == b"windrow"
    except (OSError, ValueError):
        return False


def _sync_ms(path: Path) -> list[float]:
    """The times of several syncs of a page in milliseconds, shortest first. Raises OSError if a sync fails."""
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
