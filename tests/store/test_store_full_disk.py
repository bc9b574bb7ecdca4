"""Opening and using a store on a disk that is really full."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from store_groups import RESERVE_BYTES, begun
from windrow_master.store.protocol import StoreFull
from windrow_master.store.sqlite import SqliteStore


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MB; its mount needs root."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0 or subprocess.call(["mount", "-t", "tmpfs", "-o", "size=8m", "none", folder]) != 0:
        pytest.skip("needs root and mount")
    yield folder
    subprocess.run(["umount", folder], check=True)


def fill(folder: Path) -> Path:
    path = folder / "filling"
    with path.open("ab", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            return path


def test_a_store_is_opened_with_the_room_of_the_reserve(disk: Path) -> None:
    SqliteStore.open(disk / "state", RESERVE_BYTES).close()
    filling = fill(disk)
    store = SqliteStore.open(disk / "state", RESERVE_BYTES)
    assert store.incarnation == 2
    assert not store.reserve.held
    store.commit(begun(), [], [])
    store.close()

    fill(disk)
    with pytest.raises(StoreFull, match="Make room, then start the master again"):
        SqliteStore.open(disk / "state", RESERVE_BYTES)

    filling.unlink()
    store = SqliteStore.open(disk / "state", RESERVE_BYTES)
    assert store.reserve.held
    assert store.load().jobs
    store.close()
