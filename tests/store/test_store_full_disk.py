"""Opening and using a store on a disk that is really full."""

from __future__ import annotations

from pathlib import Path

import pytest
from store_groups import RESERVE_BYTES, begun
from windrow_master.store.protocol import StoreFull
from windrow_master.store.sqlite import SqliteStore


def fill(folder: Path) -> Path:
    path = folder / "filling"
    with path.open("ab", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            return path


def test_a_store_is_opened_with_the_room_of_the_reserve(small_disk: Path) -> None:
    SqliteStore.open(small_disk / "state", RESERVE_BYTES).close()
    filling = fill(small_disk)
    store = SqliteStore.open(small_disk / "state", RESERVE_BYTES)
    assert store.incarnation == 2
    assert not store.reserve.held
    store.commit(begun(), [], [])
    store.close()

    fill(small_disk)
    with pytest.raises(StoreFull, match="Make room, then start the master again"):
        SqliteStore.open(small_disk / "state", RESERVE_BYTES)

    filling.unlink()
    store = SqliteStore.open(small_disk / "state", RESERVE_BYTES)
    assert store.reserve.held
    assert store.load().jobs
    store.close()
