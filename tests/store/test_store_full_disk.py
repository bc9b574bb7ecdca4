"""Opening and using a store on a disk that is really full."""

from __future__ import annotations

from pathlib import Path

import pytest
from store_groups import RESERVE_BYTES, begun
from windrow_master.state_folder.opening import StateFolder
from windrow_master.store.errors import StoreFull


def fill(folder: Path) -> Path:
    path = folder / "filling"
    with path.open("ab", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            return path


def test_a_store_is_opened_with_the_room_of_the_reserve(small_disk: Path) -> None:
    StateFolder.open(small_disk / "state", RESERVE_BYTES).close()
    filling = fill(small_disk)
    folder = StateFolder.open(small_disk / "state", RESERVE_BYTES)
    assert folder.store.incarnation == 2
    assert not folder.reserve.held
    folder.store.commit(begun(), [], [])
    folder.close()

    fill(small_disk)
    with pytest.raises(StoreFull, match="Free some space, then restart the master"):
        StateFolder.open(small_disk / "state", RESERVE_BYTES)

    filling.unlink()
    folder = StateFolder.open(small_disk / "state", RESERVE_BYTES)
    assert folder.reserve.held
    assert folder.store.load().jobs
    folder.close()
