"""Rows that are taken from a file on the same machine: the same segment as if they had been sent."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import pytest
from windrow_master.core.ids import LeaseId
from windrow_master.output.staging import RowsFileUnreadable, StagedSegment, staged_fits

ROWS = os.urandom(3_000_001)


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    segments, scratch = tmp_path / "segments", tmp_path / "scratch"
    segments.mkdir()
    scratch.mkdir()
    return segments, scratch


def test_a_taken_file_is_the_same_segment_as_sent_chunks(folders: tuple[Path, Path]) -> None:
    segments, scratch = folders
    (scratch / "rows").write_bytes(ROWS)
    taken = StagedSegment(segments, LeaseId(7))
    taken.take(scratch / "rows")
    taken.finish()
    sent = StagedSegment(segments, LeaseId(8))
    for at in range(0, len(ROWS), 1 << 20):
        sent.write(ROWS[at : at + (1 << 20)])
    sent.finish()
    assert (taken.length, taken.crc32) == (sent.length, sent.crc32) == (len(ROWS), zlib.crc32(ROWS))
    assert (segments / taken.name).read_bytes() == ROWS
    assert staged_fits(segments, taken.name, LeaseId(7), len(ROWS), zlib.crc32(ROWS))


def test_what_happens_to_the_file_afterwards_does_not_reach_the_segment(folders: tuple[Path, Path]) -> None:
    segments, scratch = folders
    (scratch / "rows").write_bytes(ROWS)
    staged = StagedSegment(segments, LeaseId(7))
    staged.take(scratch / "rows")
    (scratch / "rows").write_bytes(b"written by a script that kept the file open")
    staged.finish()
    assert (segments / staged.name).read_bytes() == ROWS


@pytest.mark.parametrize("what", ["link", "folder", "nothing"])
def test_only_plain_files_are_taken_and_nothing_is_left_behind(folders: tuple[Path, Path], what: str) -> None:
    segments, scratch = folders
    secret = scratch / "secret"
    secret.write_bytes(b"secret")
    rows = scratch / "rows"
    if what == "link":
        rows.symlink_to(secret)
    elif what == "folder":
        rows.mkdir()
    staged = StagedSegment(segments, LeaseId(7))
    with pytest.raises(RowsFileUnreadable, match="rows: "):
        staged.take(rows)
    staged.close()
    assert list(segments.iterdir()) == []
