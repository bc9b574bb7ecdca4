"""The columns of mini-batches that a store loads in pages: the numbers that were written, whatever they are."""

from __future__ import annotations

import random
import sqlite3
import struct
from pathlib import Path

import pytest
from opened_store import open_store
from store_groups import begun, outcome_row
from windrow_master.core.ids import StepId
from windrow_master.core.records import Dirty, PlannedRows, StepSnapshot
from windrow_master.core.states import MiniBatchState
from windrow_master.files.errors import StateDamaged
from windrow_master.files.state_files import StateFiles
from windrow_master.store.sqlite import mini_batch_columns

COUNT = 1_000
EDGES = (0, 1, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xD800, 0xDBFF, 0xDC00, 0xDFFF, 0xE000, 0xFFFE, 0xFFFF)
"""Digits that the texts between SQLite and Python might not carry as they are."""


def number(random_: random.Random, digits: int) -> int:
    """A number of so many digits of 16 bits, most of them awkward."""
    value = sum(
        random_.choice((*EDGES, random_.getrandbits(16))) << (16 * at) for at in range(random_.randint(1, digits))
    )
    return value & ((1 << 63) - 1)


@pytest.mark.parametrize("page_rows", [1 << 16, 300, 7], ids=["one_page", "few_pages", "many_pages"])
@pytest.mark.parametrize("ranked", [False, True])
def test_every_column_is_read_as_it_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page_rows: int, ranked: bool
) -> None:
    monkeypatch.setattr(mini_batch_columns, "PAGE_ROWS", page_rows)
    random_ = random.Random(page_rows)
    rows = [tuple(number(random_, digits) for digits in (4, 2, 4, 2, 2)) for _ in range(COUNT)]
    ranks = [number(random_, 4) for _ in range(COUNT)] if ranked else []
    leases = {at: number(random_, 4) | 1 for at in random_.sample(range(COUNT), COUNT // 3)}
    store = open_store(tmp_path)
    group = begun(0)
    records = b"".join(struct.pack("<QIQII", *row) for row in rows)
    group.planned = [PlannedRows(StepId(1), 0, 1, records, struct.pack(f"<{len(ranks)}Q", *ranks))]
    store.commit(group, [], [])
    store.commit(Dirty(outcomes=[outcome_row(at, lease) for at, lease in leases.items()]), [], [])
    (step,) = store.load().steps
    store.close()
    columns = (step.item_firsts, step.item_counts, step.recipe_offsets, step.recipe_lengths, step.recipe_crcs)
    assert list(zip(*columns, strict=True)) == rows
    assert list(step.lease_ids) == [leases.get(at, 0) for at in range(COUNT)]
    states = [MiniBatchState.SUCCEEDED if at in leases else MiniBatchState.QUEUED for at in range(COUNT)]
    assert list(step.states) == states
    assert list(step.ranks) == ranks


def test_of_damaged_rows_in_any_page_the_first_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mini_batch_columns, "PAGE_ROWS", 7)
    store = open_store(tmp_path)
    store.commit(begun(COUNT), [], [])
    with sqlite3.connect(StateFiles(tmp_path).database) as other:
        other.execute("UPDATE mini_batch SET item_count = item_count + 1 WHERE (key & 4294967295) % 100 = 55")
    other.close()
    with pytest.raises(StateDamaged, match="mini-batch 55") as damage:
        store.load()
    assert "mini-batch 155" not in str(damage.value)
    store.close()


def test_a_step_without_mini_batches_has_empty_columns(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.commit(begun(0), [], [])
    (step,) = store.load().steps
    store.close()
    assert step == StepSnapshot(step.step)
