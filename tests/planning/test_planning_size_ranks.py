"""Mini-batches of files with far more bytes than others are ranked to run first."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from planner_process import Plan, plan
from windrow_master.planning.listing.stamps import stamped
from windrow_master.planning.size_ranks import ALIKE_AFTER, RANKED_FILES_MAX, SizeRanks

MIB = 1 << 20


def sparse(folder: Path, **sizes: int) -> None:
    """Files that say that they are so long, and take no room."""
    folder.mkdir(exist_ok=True)
    for name, size in sizes.items():
        (folder / name).touch()
        os.truncate(folder / name, size)


def test_large_files_run_first_and_the_rest_in_order(tmp_path: Path) -> None:
    sparse(tmp_path / "data", a=5, b=300 * MIB, c=MIB - 1, d=2 * MIB, e=3 * MIB, f=0)
    found = plan(tmp_path / "step", tmp_path / "data", size=1)
    ranks = [one.rank or 0 for one in found.mini_batches]
    assert ranks[1] > ranks[3] == ranks[4] > ranks[0] == ranks[2] == ranks[5] == 0


def test_files_of_a_mini_batch_count_together(tmp_path: Path) -> None:
    sparse(tmp_path / "data", a=MIB // 2, b=MIB // 2, c=MIB // 2, d=MIB // 4, e=1)
    found = plan(tmp_path / "step", tmp_path / "data", size=2)
    assert [one.rank for one in found.mini_batches] == [1, 0, 0]


def test_the_sizes_of_many_small_files_are_not_looked_up(tmp_path: Path) -> None:
    sparse(tmp_path / "data", **{f"f{number}": MIB * 50 for number in range(3)})
    found = plan(tmp_path / "step", tmp_path / "data", size=RANKED_FILES_MAX + 1)
    assert [one.rank for one in found.mini_batches] == [None]


def test_a_list_of_small_files_is_looked_at_only_so_far(tmp_path: Path) -> None:
    sparse(tmp_path, small=10, large=50 * MIB)
    alike, mixed = (SizeRanks(1, os.fsencode(tmp_path), remote=False) for _ in range(2))
    assert mixed.take() == 0
    mixed.count([b"large"])
    assert mixed.take() == 3
    for ranks, last in ((alike, 0), (mixed, 3)):
        for _ in range(ALIKE_AFTER):
            ranks.count([b"small"])
            assert ranks.take() == 0
        ranks.count([b"large"])
        assert ranks.take() == last


def test_a_file_that_is_gone_counts_nothing(tmp_path: Path) -> None:
    ranks = SizeRanks(1, os.fsencode(tmp_path), remote=False)
    ranks.count([b"gone"])
    assert ranks.take() == 0


def test_sizes_in_a_store_are_those_of_the_stamps() -> None:
    ranks = SizeRanks(1, b"", remote=True)
    ranks.count([stamped(b"s3://bucket/film.mp4", 40 * MIB, "etag")])
    assert ranks.take() == 3


@given(st.integers(0, 2**50), st.integers(0, 2**50))
def test_more_bytes_never_rank_lower_and_four_times_as_many_rank_higher(one: int, other: int) -> None:
    def rank(size: int) -> int:
        ranks = SizeRanks(1, b"", remote=True)
        ranks.count([stamped(b"x", size, "")])
        return ranks.take() or 0

    low, high = sorted((one, other))
    assert rank(low) <= rank(high)
    if high >= MIB and high >= 4 * low:
        assert rank(low) < rank(high)


@pytest.mark.parametrize("size", [1, RANKED_FILES_MAX + 1])
def test_either_all_mini_batches_have_ranks_or_none(size: int) -> None:
    ranks = SizeRanks(size, b"", remote=True)
    assert (ranks.lowest is None) == (ranks.take() is None)


def recipes_by_rank(found: Plan) -> dict[bytes, int | None]:
    return dict(zip(found.recipes, [one.rank for one in found.mini_batches], strict=True))


@pytest.mark.parametrize("size", [2, RANKED_FILES_MAX + 1])
def test_what_was_slow_before_begins_first_whatever_its_size(tmp_path: Path, size: int) -> None:
    names = [f"f{number:03d}" for number in range(2 * size)]
    sparse(tmp_path / "data", **dict.fromkeys(names, 0))
    first = plan(tmp_path / "first", tmp_path / "data", size=size)
    slow = [[len(first.recipes[1]), zlib.crc32(first.recipes[1]), 1 << 40]]
    again = plan(tmp_path / "again", tmp_path / "data", size=size, slow=slow)
    assert [one.rank for one in again.mini_batches] == [0, 1 << 40]
    assert again.recipes == first.recipes, "the order of the output stays"
    other = plan(tmp_path / "other", tmp_path / "data", size=size, slow=[[3, 4, 1 << 40]])
    assert {one.rank for one in other.mini_batches} == {0}


def test_a_planner_that_goes_on_ranks_all_if_the_first_one_did(tmp_path: Path) -> None:
    size = RANKED_FILES_MAX + 1
    sparse(tmp_path / "data", **{f"f{number:05d}": 0 for number in range(60 * size)})
    whole = plan(tmp_path / "whole", tmp_path / "data", size=size, slow=[[3, 4, 1 << 40]])
    assert {one.rank for one in whole.mini_batches} == {0}
    rest = plan(tmp_path / "whole", tmp_path / "data", size=size, checkpoint=whole.checkpoints[0])
    assert 0 < len(rest.mini_batches) < 60 and {one.rank for one in rest.mini_batches} == {0}
    unranked = plan(tmp_path / "plain", tmp_path / "data", size=size)
    assert {one.rank for one in unranked.mini_batches} == {None}
