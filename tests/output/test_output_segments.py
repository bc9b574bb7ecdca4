"""SegmentWriter and staging: what is returned can be read back, whatever fails or loses power in between."""

from __future__ import annotations

import errno
import os
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from volatile_files import FailingFiles, VolatileFiles
from windrow_master.core.ids import LeaseId, StepId
from windrow_master.core.records import RowBlock
from windrow_master.output.segments import SegmentError, SegmentFull, SegmentWriter
from windrow_master.output.staging import StagedSegment, remove_orphans, staged_fits
from windrow_master.store.records import RowRange, SegmentRow, SegmentState

STEP = StepId(1)
LEASE = LeaseId(77)


def block(rows: bytes, step_id: int = 1) -> RowBlock:
    return RowBlock("job", StepId(step_id), rows, "", len(rows), zlib.crc32(rows))


def staged(name: str, rows: bytes) -> RowBlock:
    return RowBlock("job", STEP, b"", name, len(rows), zlib.crc32(rows))


def read(folder: Path, segments: Sequence[SegmentRow], place: RowRange) -> bytes:
    """The rows of a range, by way of the segments that were returned."""
    [segment] = {row.name for row in segments if row.segment_id == place.segment_id}
    content = (folder / segment).read_bytes()[place.offset : place.offset + place.length]
    assert zlib.crc32(content) == place.crc32
    return content


def writer(folder: Path, **options: object) -> SegmentWriter:
    return SegmentWriter(3, lambda *_: folder, **options)  # type: ignore[arg-type]


def test_rows_are_where_they_are_said_to_be(tmp_path: Path) -> None:
    made, segments, expected = writer(tmp_path), [], []
    for group in range(4):
        rows = [b"%d-%d\n" % (group, number) * number for number in range(1, 40)]
        places = made.append([block(row) for row in rows])
        segments += made.sync()
        expected += zip(rows, places, strict=True)
    assert [path.name for path in tmp_path.iterdir()] == ["3-1.rows"]
    assert all(read(tmp_path, segments, place) == row for row, place in expected)
    assert segments[-1] == SegmentRow(3 << 32 | 1, STEP, "3-1.rows", 3, 1, (tmp_path / "3-1.rows").stat().st_size)
    made.close()


def test_rows_of_an_earlier_jobs_segment_are_named_here_and_outlive_it(tmp_path: Path) -> None:
    (tmp_path / "before").mkdir()
    source = tmp_path / "before" / "1-1.rows"
    source.write_bytes(b"first second ")
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "3-1.rows").touch()  # as a backup that was brought back may have left it
    made, segments = writer(folder), []
    over = [
        RowBlock("job", STEP, b"", "", 6, zlib.crc32(text), str(source), at)
        for text, at in ((b"first ", 0), (b"second", 6))
    ]
    for group in ([over[0], block(b"own")], [over[1]], over):
        places = made.append(group)
        segments = made.sync()
        # Every group names it: which of them is committed first is not known.
        assert any(row.length == 13 for row in segments)
    source.unlink()
    assert [read(folder, segments, place) for place in places] == [b"first ", b"second"]
    source.write_bytes(b"")
    made.close()


def test_a_segment_that_cannot_be_linked_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(source: Path, target: Path) -> None:
        raise OSError(errno.EXDEV, "another file system")

    monkeypatch.setattr(os, "link", link)
    source = tmp_path / "before.rows"
    source.write_bytes(b"rows")
    made = writer(tmp_path)
    (place,) = made.append([RowBlock("job", STEP, b"", "", 4, zlib.crc32(b"rows"), str(source))])
    assert read(tmp_path, made.sync(), place) == b"rows"
    source.unlink()
    with pytest.raises(SegmentError, match=r"gone\.rows"):
        made.append([RowBlock("job", STEP, b"", "", 4, 0, str(tmp_path / "gone.rows"))])


def test_each_step_has_a_segment_of_its_own(tmp_path: Path) -> None:
    for name in ("1", "2"):
        (tmp_path / name).mkdir()
    made = SegmentWriter(1, lambda job_id, step_id: tmp_path / str(step_id))
    places = made.append([block(b"a"), block(b"b", 2), block(b"c"), block(b"d", 2)])
    segments = {row.segment_id: row for row in made.sync()}
    assert [segments[place.segment_id].step_id for place in places] == [1, 2, 1, 2]
    assert (tmp_path / "1" / "1-1.rows").read_bytes() == b"ac"
    assert (tmp_path / "2" / "1-2.rows").read_bytes() == b"bd"
    made.close()


def test_more_blocks_than_one_call_can_take_and_short_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writev = os.writev

    def short(descriptor: int, buffers: Sequence[bytes]) -> int:
        assert len(buffers) <= 1024
        data = b"".join(buffers)
        return writev(descriptor, [data[: max(1, len(data) * 2 // 3)]])

    monkeypatch.setattr(os, "writev", short)
    made = writer(tmp_path)
    rows = [b"%d," % number for number in range(3000)]
    made.append([block(row) for row in rows])
    made.sync()
    assert (tmp_path / "3-1.rows").read_bytes() == b"".join(rows)
    made.close()


def test_a_full_segment_gives_way_to_the_next(tmp_path: Path) -> None:
    made = writer(tmp_path, segment_bytes_max=10)
    segments: list[SegmentRow] = []
    for _ in range(3):
        made.append([block(b"12345678")])
        segments += made.sync()
    assert {path.name: path.stat().st_size for path in tmp_path.iterdir()} == {"3-1.rows": 16, "3-2.rows": 8}
    assert [(row.name, row.state, row.length) for row in segments] == [
        ("3-1.rows", SegmentState.OPEN, 8),
        ("3-1.rows", SegmentState.OPEN, 16),
        ("3-2.rows", SegmentState.OPEN, 8),
        ("3-1.rows", SegmentState.SEALED, 16),
    ]
    made.close()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "3-1.rows").write_bytes(b"not ours")
    made = writer(tmp_path)
    [place] = made.append([block(b"x")])
    [segment] = made.sync()
    assert (segment.name, place.segment_id) == ("3-2.rows", 3 << 32 | 2)
    assert (tmp_path / "3-1.rows").read_bytes() == b"not ours"
    made.close()


def test_the_folder_is_synced_before_a_segment_is_named(tmp_path: Path) -> None:
    files = FailingFiles()
    made = writer(tmp_path, files=files)
    for _ in range(2):
        made.append([block(b"x")])
        made.sync()
    assert [operation for operation, _ in files.calls] == ["create", "write", "sync", "sync_folder", "write", "sync"]
    made.close()


@pytest.mark.parametrize(
    ("operation", "good_groups"),
    # A segment is made, and its folder synced, for the first group only.
    [("create", 0), ("write", 0), ("write", 1), ("sync", 0), ("sync", 1), ("sync_folder", 0)],
)
@pytest.mark.parametrize(
    ("number", "error"), [(errno.ENOSPC, SegmentFull), (errno.EDQUOT, SegmentFull), (errno.EIO, SegmentError)]
)
def test_after_an_error_the_group_goes_to_a_new_segment(
    tmp_path: Path, operation: str, number: int, error: type[SegmentError], good_groups: int
) -> None:
    files = FailingFiles(**{operation: [None] * good_groups + [number]})
    made, segments, expected = writer(tmp_path, files=files), [], []
    for _ in range(good_groups):
        [place] = made.append([block(b"good")])
        segments += made.sync()
        expected.append((b"good", place))
    with pytest.raises(error, match=r"could not be") as caught:
        made.append([block(b"lost" * 10)])
        made.sync()
    assert isinstance(caught.value, SegmentFull) == (error is SegmentFull)
    failed_at = len(files.calls)
    for _ in range(2):
        [place] = made.append([block(b"again")])
        segments += made.sync()
        expected.append((b"again", place))
    if operation != "create":
        # Never written to or synced again.
        assert not [call for call in files.calls[failed_at:] if call[1] == "3-1.rows" and call[0] != "unlink"]
    files.lose_power()
    assert [read(tmp_path, segments, place) for _, place in expected] == [rows for rows, _ in expected]
    made.close()


def test_staged_rows_are_adopted(tmp_path: Path) -> None:
    upload = StagedSegment(tmp_path, LEASE)
    upload.write(b"large ")
    upload.write(b"rows\n")
    upload.finish()
    upload.close()
    assert (upload.length, upload.crc32) == (11, zlib.crc32(b"large rows\n"))
    assert staged_fits(tmp_path, upload.name, LEASE, 11, upload.crc32)
    made = writer(tmp_path)
    places = made.append([block(b"a"), staged(upload.name, b"large rows\n"), block(b"b")])
    segments = made.sync()
    assert [read(tmp_path, segments, place) for place in places] == [b"a", b"large rows\n", b"b"]
    assert len({row.segment_id for row in segments}) == 2
    made.close()


def test_an_upload_repeated_gets_a_file_of_its_own(tmp_path: Path) -> None:
    uploads = [StagedSegment(tmp_path, LEASE) for _ in range(3)]
    for number, upload in enumerate(uploads):
        upload.write(b"%d" % number)
        upload.finish()
    later = StagedSegment(tmp_path, LEASE)
    later.write(b"later")
    later.finish()
    contents = [(tmp_path / upload.name).read_bytes() for upload in [*uploads, later]]
    assert contents == [b"0", b"1", b"2", b"later"]


def test_an_upload_that_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    with_error = FailingFiles(sync=[errno.EIO])
    for files in (VolatileFiles(), with_error):
        upload = StagedSegment(tmp_path, LEASE, files=files)
        upload.write(b"x")
        if files is with_error:
            with pytest.raises(OSError, match="Input/output error"):
                upload.finish()
        upload.close()
        upload.close()
    assert list(tmp_path.iterdir()) == []


CRC32 = zlib.crc32(b"123")
FINISHED = f"staged-77-0-{CRC32:08x}.rows"


@pytest.mark.parametrize(
    ("name", "lease_id", "length", "crc32"),
    [
        (FINISHED, 77, 4, CRC32),
        (FINISHED, 78, 3, CRC32),
        (FINISHED, 77, 3, CRC32 ^ 1),
        (FINISHED.replace("-0-", "-1-"), 77, 3, CRC32),
        ("../segments/" + FINISHED, 77, 3, CRC32),
        ("3-1.rows", 77, 3, CRC32),
        (FINISHED + "\x00", 77, 3, CRC32),
        ("staged-77-0.rows.partial", 77, 3, CRC32),
        ("", 77, 3, CRC32),
        (FINISHED.replace("-0-", "-9-"), 77, 3, CRC32),
    ],
)
def test_a_staged_name_from_a_peer_must_fit(tmp_path: Path, name: str, lease_id: int, length: int, crc32: int) -> None:
    for existing in (FINISHED, "3-1.rows", "staged-77-0.rows.partial"):
        (tmp_path / existing).write_bytes(b"123")
    (tmp_path / FINISHED.replace("-0-", "-9-")).symlink_to("3-1.rows")
    assert staged_fits(tmp_path, FINISHED, LEASE, 3, CRC32)
    assert not staged_fits(tmp_path, name, LeaseId(lease_id), length, crc32)


def test_staged_rows_that_are_not_there_stop_the_group(tmp_path: Path) -> None:
    made = writer(tmp_path)
    with pytest.raises(SegmentError, match="have no file, not the 3 bytes"):
        made.append([block(b"a"), staged("staged-1-0-00000000.rows", b"abc")])
    made.close()


def test_orphans_go_and_what_is_committed_stays(tmp_path: Path) -> None:
    stay = {"1-1.rows", "staged-5-0-00000000.rows", "3-1.rows", "notes.txt"}
    go = {"1-2.rows", "2-1.rows", "staged-5-1-00000000.rows", "staged-6-0.rows.partial"}
    for name in stay | go:
        (tmp_path / name).write_bytes(b"x")
    removed = remove_orphans(tmp_path, 3, {"1-1.rows", "staged-5-0-00000000.rows"})
    assert set(removed) == go
    assert {path.name for path in tmp_path.iterdir()} == stay
    assert remove_orphans(tmp_path / "none", 3, ()) == []


groups = st.lists(
    st.tuples(
        st.lists(st.binary(min_size=1, max_size=60), min_size=1, max_size=8),
        st.sampled_from([None, None, "write", "sync", "create"]),
        st.sampled_from([errno.ENOSPC, errno.EIO]),
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(groups=groups, seed=st.integers(0, 1 << 30))
def test_what_was_synced_survives_loss_of_power(groups: list[tuple[list[bytes], str | None, int]], seed: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, files = Path(name), FailingFiles(seed)
        made = writer(folder, files=files, segment_bytes_max=150)
        segments: list[SegmentRow] = []
        expected: list[tuple[bytes, RowRange]] = []
        for rows, operation, number in groups:
            if operation is not None:
                files.errors[operation] = [number]
            try:
                places = made.append([block(row) for row in rows])
                segments += made.sync()
            except SegmentError:
                continue
            expected += zip(rows, places, strict=True)
        if not any(files.errors.values()):
            made.append([block(b"unsynced")])
        files.lose_power()
        made.close()
        assert all(read(folder, segments, place) == rows for rows, place in expected)
