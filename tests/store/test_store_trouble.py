"""Disk full, database busy or damaged: what is certainly rolled back can be committed again, all else ends."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from opened_store import open_store
from store_groups import begun, completed, lease
from windrow_master.core.ids import StepId
from windrow_master.files.errors import StateDamaged, StateError
from windrow_master.store.errors import StoreBusy, StoreFull
from windrow_master.store.sqlite import connections
from windrow_master.store.sqlite.store import SqliteStore

COUNT = 3000


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqliteStore]:
    monkeypatch.setattr(connections, "WRITER_WAIT_S", 0.01)
    made = open_store(tmp_path)
    made.commit(begun(COUNT), [], [])
    yield made
    made.close()


def limit_pages(store: SqliteStore, more: int) -> None:
    """Let SQLite answer SQLITE_FULL after so many more pages: the same way as when the disk is full."""
    connection = store._connection
    pages: int = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages + more}")


@pytest.mark.parametrize("more", [0, 1, 3, 10])
def test_a_full_disk_rolls_back_and_the_same_group_goes_on(store: SqliteStore, more: int) -> None:
    dirty, ranges = completed(store, range(COUNT))
    limit_pages(store, more)
    for _ in range(3):
        with pytest.raises(StoreFull, match=r"disk of .*windrow\.db is full\. Free some space"):
            store.commit(dirty, ranges, [])
        # Reads go on meanwhile, and see nothing of the group.
        assert store.reader().attempt(lease(store, 1)) is None
        assert bytes(store.load().steps[0].states) == bytes(COUNT)
    limit_pages(store, 1 << 20)
    store.commit(dirty, ranges, [])
    assert bytes(store.load().steps[0].states) == bytes([2]) * COUNT


def test_a_busy_database_rolls_back_and_the_same_group_goes_on(store: SqliteStore, tmp_path: Path) -> None:
    dirty, ranges = completed(store, range(10))
    other = sqlite3.connect(tmp_path / "windrow.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusy, match="locked by another program"):
        store.commit(dirty, ranges, [])
    assert store.reader().attempt(lease(store, 1)) is None
    other.execute("ROLLBACK")
    other.close()
    store.commit(dirty, ranges, [])
    assert store.reader().attempt(lease(store, 1)) is not None


def test_a_damaged_database_ends_the_master(store: SqliteStore, tmp_path: Path) -> None:
    store.close()
    path = tmp_path / "windrow.db"
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (size - 4096))
    with pytest.raises(StateError, match=r"malformed|CORRUPT"):
        open_store(tmp_path).load()


def test_a_gap_in_the_mini_batches_is_noticed(store: SqliteStore, tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "windrow.db")
    with other:
        other.execute("DELETE FROM mini_batch WHERE key = ?", (1 << 32 | 7,))
    other.close()
    with pytest.raises(StateDamaged, match="3,000 rows were written there, and 2,999 are found"):
        store.load()


def test_readers_and_outputs_beside_commits(store: SqliteStore) -> None:
    """Readers in threads never wait for, and never break, the writer; each page is consistent."""
    stop, failures = threading.Event(), []

    def read() -> None:
        reader = store.reader()
        try:
            while not stop.is_set():
                seen = sum(len(page) for page in reader.ranges_of(StepId(1), 500))
                # Groups of 100: a page shows whole groups only.
                assert seen % 100 == 0, seen
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for first in range(0, COUNT, 100):
        store.commit(*completed(store, range(first, first + 100)), [])
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == []
    assert sum(len(page) for page in store.reader().ranges_of(StepId(1))) == COUNT
