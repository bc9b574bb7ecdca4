"""SQLite: in a file, as masters use it, and in memory, as simulations do."""

from __future__ import annotations

from pathlib import Path

from opened_store import open_store
from store_harness import StoreHarness
from windrow_master.files.state_files import StateFiles
from windrow_master.store.sqlite.connections import FileDatabase, MemoryDatabase
from windrow_master.store.sqlite.store import SqliteStore


def on_disk(folder: Path) -> StoreHarness:
    """In a state folder. Beside: what a lost lock would lead to."""
    path = StateFiles(folder).database
    return StoreHarness(lambda: open_store(folder), lambda: SqliteStore(FileDatabase(path), str(path)))


def in_memory(folder: Path) -> StoreHarness:
    """In memory."""
    database = MemoryDatabase()
    return StoreHarness(lambda: SqliteStore.in_memory(database), lambda: SqliteStore.in_memory(database))


HARNESSES = {"disk": on_disk, "memory": in_memory}
