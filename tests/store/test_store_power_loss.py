"""SQLite's files after a loss of power: a commit that had not returned is there whole or not at all."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from opened_store import open_store
from store_groups import begun, completed

COUNT = 400
FILES = ("windrow.db", "windrow.db-wal")


def copy(source: Path, target: Path) -> None:
    target.mkdir()
    for name in FILES:
        shutil.copy(source / name, target / name)


@pytest.mark.parametrize("seed", range(6))
def test_a_torn_commit_is_not_there(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    live = tmp_path / "live"
    store = open_store(live)
    store.commit(begun(COUNT), [], [])
    store.commit(*completed(store, range(100)), [])
    before = (live / FILES[1]).read_bytes()
    store.commit(*completed(store, range(100, 200)), [])
    after = (live / FILES[1]).read_bytes()
    assert len(after) > len(before)
    for number in range(4):
        torn = tmp_path / f"torn-{number}"
        copy(live, torn)
        new = bytearray(after[len(before) :])
        if number % 2:
            # Cut short.
            del new[chance.randrange(len(new)) :]
        else:
            # Whole pages that never arrived.
            first = chance.randrange(len(new))
            new[first : first + 4096] = bytes(len(new[first : first + 4096]))
        (torn / FILES[1]).write_bytes(before + new)
        recovered = open_store(torn)
        assert bytes(recovered.load().steps[0].states) == bytes([2] * 100 + [0] * 300)
        recovered.commit(*completed(recovered, range(100, 150)), [])
        recovered.close()
    whole = tmp_path / "whole"
    copy(live, whole)
    recovered = open_store(whole)
    assert bytes(recovered.load().steps[0].states) == bytes([2] * 200 + [0] * 200)
    recovered.close()
    store.close()
