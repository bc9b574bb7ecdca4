"""A store in a folder, for tests to which its lock and reserve do not matter."""

from __future__ import annotations

from pathlib import Path

from windrow_master.files.state_files import StateFiles
from windrow_master.store.sqlite.store import SqliteStore


def open_store(folder: Path) -> SqliteStore:
    """The next incarnation of the store of a state folder, which is made where it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    return SqliteStore.open(StateFiles(folder).database)
