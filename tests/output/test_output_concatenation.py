"""The output is the committed rows in output order, or it is left as it was."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import random
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from output_step import STEP, CommittedStep
from volatile_files import FailingFiles
from windrow.common.beneath import Folder
from windrow_master.files.errors import StateDamaged
from windrow_master.output import concatenation, extents
from windrow_master.output.concatenation import (
    ConcatenationStopped,
    OutputFull,
    OutputUnwritable,
    RowsLost,
    RowsUnreadable,
    TargetForeign,
    concatenate,
)
from windrow_master.output.extents import strides
from windrow_master.output.file_operations import FileOperations
from windrow_master.output.staging import StagedSegment
from windrow_master.store.records import CommittedRange

COUNT = 200
ROWS = {number: b"".join(b"%d,%d\n" % (number, row) for row in range(number % 7)) for number in range(COUNT)}
EXPECTED = b"".join(ROWS.values())
BAD_BYTE = 325


@pytest.fixture
def step(tmp_path: Path) -> Iterator[CommittedStep]:
    """Rows committed in an order of their own, in groups, in several segments; some mini-batches have none."""
    made = CommittedStep(tmp_path, segment_bytes_max=900)
    made.plan(COUNT)
    order = [number for number in ROWS if ROWS[number]]
    random.Random(5).shuffle(order)
    for at in range(0, len(order), 30):
        made.commit({number: ROWS[number] for number in order[at : at + 30]})
    yield made
    made.close()


def hidden(step: CommittedStep) -> list[str]:
    """Names left beside the target."""
    return sorted(path.name for path in step.target.parent.iterdir() if path.name != step.target.name)


def test_rows_stand_in_output_order(step: CommittedStep) -> None:
    assert len(step.store.reader().segments_of(STEP)) > 2
    written = step.concatenate()
    assert step.target.read_bytes() == EXPECTED
    assert (written.length, written.rows) == (len(EXPECTED), EXPECTED.count(b"\n"))
    assert written.digest == hashlib.sha256(EXPECTED).hexdigest()
    assert written.mtime_ns == step.target.stat().st_mtime_ns
    assert step.store.reader().outputs_at(str(step.target)) == [written]
    assert hidden(step) == []


def test_the_header_stands_once_on_top(step: CommittedStep) -> None:
    step.concatenate(header=b"a,b\n")
    assert step.target.read_bytes() == b"a,b\n" + EXPECTED


@pytest.mark.parametrize("more", [-1, 1])
def test_other_rows_than_were_counted_make_no_output(step: CommittedStep, more: int) -> None:
    """A record of a mini-batch that is sound, but older than the last commit, would hide its rows."""
    counted = EXPECTED.count(b"\n")
    wanted = step.wanted(rows=counted + more)
    with pytest.raises(StateDamaged, match=f"{counted + more:,} rows were committed, and {counted:,} are found"):
        concatenate(wanted, step.store.reader(), step.store.record_output)
    assert not step.target.exists() and hidden(step) == []
    concatenate(step.wanted(rows=counted), step.store.reader(), step.store.record_output)
    assert step.target.read_bytes() == EXPECTED


def test_no_rows_give_an_empty_file(tmp_path: Path) -> None:
    step = CommittedStep(tmp_path)
    step.plan(3)
    assert step.concatenate().rows == 0
    assert step.target.read_bytes() == b""
    step.close()


@pytest.mark.parametrize("copy", [None, errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, 0])
def test_large_rows_are_copied_whatever_the_kernel_can_do(
    step: CommittedStep, monkeypatch: pytest.MonkeyPatch, copy: int | None
) -> None:
    copied: list[int] = []
    real = os.copy_file_range

    def copy_file_range(source: int, target: int, count: int, offset: int) -> int:
        if copy:
            raise OSError(copy, os.strerror(copy))
        done = 0 if copy == 0 else real(source, target, min(count, 5), offset)
        copied.append(done)
        return done

    monkeypatch.setattr(os, "copy_file_range", copy_file_range)
    monkeypatch.setattr(extents, "LARGE_BYTES", 25)
    monkeypatch.setattr(extents, "STRIDE_BYTES", 60)
    written = step.concatenate()
    assert step.target.read_bytes() == EXPECTED
    assert written.digest == hashlib.sha256(EXPECTED).hexdigest()
    assert bool(copied) == (copy in (None, 0))


def test_staged_rows_are_in_their_place(tmp_path: Path) -> None:
    step = CommittedStep(tmp_path)
    step.plan(3)
    upload = StagedSegment(step.segments_folder, 5)  # type: ignore[arg-type]
    large = os.urandom(3 << 20)
    upload.write(large)
    upload.finish()
    step.commit({2: b"c\n", 1: large, 0: b"a\n"}, {1: upload.name})
    step.concatenate()
    assert step.target.read_bytes() == b"a\n" + large + b"c\n"
    step.close()


def damage_flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def damage_cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize("damage", [damage_flip, damage_cut, Path.unlink], ids=["flipped", "cut", "removed"])
@pytest.mark.parametrize("large", [1 << 20, 0])
def test_all_lost_rows_are_named_and_can_be_had_again(
    step: CommittedStep, monkeypatch: pytest.MonkeyPatch, damage: object, large: int
) -> None:
    monkeypatch.setattr(extents, "LARGE_BYTES", large)
    step.target.write_bytes(b"")
    segments = step.store.reader().segments_of(STEP)
    for segment in (segments[0], segments[-1]):
        damage(step.segments_folder / segment.name)  # type: ignore[operator]
    sound = {}
    for page in step.store.reader().ranges_of(STEP):
        for row in page:
            [name] = {segment.name for segment in segments if segment.segment_id == row.segment_id}
            path = step.segments_folder / name
            content = path.read_bytes() if path.exists() else b""
            sound[row.mini_batch] = content[row.offset : row.offset + row.length] == ROWS[row.mini_batch]
    with pytest.raises(RowsLost, match="these mini-batches run again") as caught:
        step.concatenate()
    assert [row.mini_batch for row in caught.value.lost] == [number for number, good in sound.items() if not good]
    assert any(sound.values())
    assert step.target.read_bytes() == b""
    assert hidden(step) == []
    again = [row.mini_batch for row in caught.value.lost]
    step.requeue(again)
    step.commit({number: ROWS[number] for number in again})
    step.concatenate()
    assert step.target.read_bytes() == EXPECTED


def test_rows_cut_between_their_verification_and_their_copy_are_lost(
    step: CommittedStep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extents, "LARGE_BYTES", 0)
    step.target.write_bytes(b"")

    class CutWhileCopied(FileOperations):
        def copy(self, source: int, offset: int, length: int, target: int) -> None:
            segment = Path(f"/proc/self/fd/{source}").readlink()
            os.truncate(segment, offset)
            super().copy(source, offset, length, target)

    with pytest.raises(RowsLost):
        step.concatenate(files=CutWhileCopied())
    assert step.target.read_bytes() == b""
    assert hidden(step) == []


def test_the_list_of_lost_rows_is_bounded(step: CommittedStep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concatenation, "LOST_MAX", 7)
    for path in step.segments_folder.iterdir():
        path.unlink()
    with pytest.raises(RowsLost) as caught:
        step.concatenate()
    assert len(caught.value.lost) == 7


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EACCES, errno.ENOMEM])
def test_what_may_pass_loses_no_rows(step: CommittedStep, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def pread(descriptor: int, length: int, offset: int) -> bytes:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "pread", pread)
    with pytest.raises(RowsUnreadable, match="nothing needs to run again"):
        step.concatenate()


def test_one_bad_block_of_a_disk_costs_its_rows_only(step: CommittedStep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extents, "BLOCK_BYTES", 16)
    real = os.pread

    def pread(descriptor: int, length: int, offset: int) -> bytes:
        if offset <= BAD_BYTE < offset + length:
            raise OSError(errno.EIO, "Input/output error")
        return real(descriptor, length, offset)

    monkeypatch.setattr(os, "pread", pread)
    near = {
        row.mini_batch
        for page in step.store.reader().ranges_of(STEP)
        for row in page
        if row.offset - 16 <= BAD_BYTE < row.offset + row.length + 16
    }
    with pytest.raises(RowsLost) as caught:
        step.concatenate()
    assert {row.mini_batch for row in caught.value.lost} <= near
    # One in each segment, each a block of at most a few short rows.
    assert len(caught.value.lost) < COUNT // 4


def test_a_retry_replaces_what_is_ours(step: CommittedStep) -> None:
    step.concatenate()
    step.requeue([3])
    step.commit({3: b"other\n"})
    step.concatenate(generation=2)
    assert step.target.read_bytes() == EXPECTED.replace(ROWS[3], b"other\n")
    # A copy or a touch changes the time, not the content: still ours.
    os.utime(step.target, ns=(1, 1))
    step.concatenate(generation=3)
    assert step.target.stat().st_mtime_ns != 1


@pytest.mark.parametrize("known", [False, True])
def test_what_is_not_ours_is_left_alone(step: CommittedStep, known: bool) -> None:
    if known:
        step.concatenate()
    content = EXPECTED[:-1] + b"!" if known else b"precious"
    step.target.write_bytes(content)
    reason = "was changed since Windrow wrote it" if known else "was not written by Windrow"
    with pytest.raises(TargetForeign, match=f"{reason}.*does not touch it"):
        step.concatenate(generation=2)
    assert step.target.read_bytes() == content
    assert hidden(step) == []


def test_what_becomes_somebody_elses_meanwhile_is_left_alone(step: CommittedStep) -> None:
    def record(_: object) -> None:
        step.target.write_bytes(b"precious")

    with pytest.raises(TargetForeign):
        concatenate(step.wanted(), step.store.reader(), record)
    assert step.target.read_bytes() == b"precious"


def test_a_folder_in_the_way(step: CommittedStep) -> None:
    step.target.mkdir()
    with pytest.raises(TargetForeign, match="not a plain file"):
        step.concatenate()


@pytest.mark.parametrize("operation", ["create", "write", "sync", "rename"])
@pytest.mark.parametrize(("number", "error"), [(errno.ENOSPC, OutputFull), (errno.EIO, OutputUnwritable)])
def test_a_failing_disk_leaves_the_target_as_it_was(
    step: CommittedStep, operation: str, number: int, error: type[Exception]
) -> None:
    step.concatenate()
    before = step.target.read_bytes()
    step.requeue([3])
    step.commit({3: b"other\n"})
    with pytest.raises(error, match=r"retried automatically|retry the job"):
        step.concatenate(generation=2, files=FailingFiles(**{operation: [number]}))
    assert step.target.read_bytes() == before
    assert hidden(step) == []
    step.concatenate(generation=2)
    assert step.target.read_bytes() != before


def test_a_share_that_is_full_says_so_again_when_it_is_closed(step: CommittedStep) -> None:
    with pytest.raises(OutputFull, match="retried automatically"):
        step.concatenate(files=FailingFiles(write=[errno.EDQUOT], close=[errno.EDQUOT]))
    assert hidden(step) == []


def test_the_folder_of_the_target_is_gone(step: CommittedStep) -> None:
    step.target.parent.rmdir()
    with pytest.raises(OutputUnwritable, match="No such file"):
        step.concatenate()


def test_it_can_be_stopped(step: CommittedStep) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(ConcatenationStopped):
        concatenate(step.wanted(), step.store.reader(), step.store.record_output, stop=stop)
    assert hidden(step) == []


def test_what_was_stopped_while_it_was_brought_to_the_disk_is_not_put_in_place(step: CommittedStep) -> None:
    stop = threading.Event()

    class SlowDisk(FileOperations):
        def sync(self, descriptor: int) -> None:
            stop.set()

    with pytest.raises(ConcatenationStopped):
        concatenate(step.wanted(), step.store.reader(), step.store.record_output, stop=stop, files=SlowDisk())
    assert hidden(step) == [] and not step.target.exists()


def test_temporaries_of_dead_incarnations_go(step: CommittedStep) -> None:
    others = [".rows.csv.job-2.1.g1.i1.windrow-partial", ".rows.csv.job-1.2.g1.i1.windrow-partial", "notes.txt"]
    stale = [".rows.csv.job-1.1.g1.i1.windrow-partial", ".rows.csv.job-1.1.g9.i77.windrow-partial"]
    for name in others + stale:
        (step.target.parent / name).write_bytes(b"x")
    step.concatenate()
    assert hidden(step) == sorted(others)


@pytest.mark.parametrize("name", ["r" * 255, "\udcff\udc80.csv", "two\nlines 'and' \"more\".csv", "\N{SNOWMAN}" * 80])
def test_any_file_name_will_do(step: CommittedStep, name: str) -> None:
    target = step.target.with_name(name)
    for generation in (1, 2):
        step.concatenate(generation=generation, target=target)
    assert target.read_bytes() == EXPECTED
    assert [path.name for path in step.target.parent.iterdir()] == [name]


def test_others_may_read_the_output(step: CommittedStep) -> None:
    before = os.umask(0o022)
    try:
        step.concatenate()
    finally:
        os.umask(before)
    assert step.target.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([], []),
        ([10], [[10]]),
        ([4, 4, 4, 4], [[4, 4], [4, 4]]),
        ([1, 50, 1], [[1], [50], [1]]),
        ([50, 50], [[50], [50]]),
        ([10, 1], [[10], [1]]),
    ],
)
def test_strides(monkeypatch: pytest.MonkeyPatch, lengths: list[int], expected: list[list[int]]) -> None:
    monkeypatch.setattr(extents, "STRIDE_BYTES", 10)
    monkeypatch.setattr(extents, "LARGE_BYTES", 10)
    page = [CommittedRange(number, 0, 0, 0, 0, 0, 0, length, 0) for number, length in enumerate(lengths)]  # type: ignore[arg-type]
    found = list(strides(page))
    assert [[row.length for row in stride.ranges] for stride in found] == expected
    assert all(stride.large == (stride.ranges[0].length > 10) for stride in found)


def test_rows_never_land_where_a_link_leads_that_takes_the_place_of_their_folder(
    step: CommittedStep, tmp_path: Path
) -> None:
    """However often it does, while they are written."""
    place, aside, secret = step.target.parent, tmp_path / "aside", tmp_path / "secret"
    secret.mkdir()
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            place.rename(aside)
            place.symlink_to(secret)
            place.unlink()
            aside.rename(place)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for generation in range(200):
            with contextlib.suppress(OSError, OutputUnwritable), Folder.open(place) as folder:
                wanted = replace(step.wanted(generation=generation), folder=folder)
                folder.remove(step.target.name)
                concatenate(wanted, step.store.reader(), step.store.record_output)
            assert not list(secret.iterdir())
    finally:
        stop.set()
        swapping.join()
