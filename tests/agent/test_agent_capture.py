"""Captured output: bounded on disk, complete at both ends, pushed without gaps."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from windrow_agent.workers.capture import CapturedFile

LIMIT = 256 << 10


def pushed(file: CapturedFile, into: bytearray, piece: int = 10_000) -> None:
    while content := file.increment(piece):
        into += content
        file.sent += len(content)


def test_small_output_is_pushed_as_it_grows(tmp_path: Path) -> None:
    file = CapturedFile(tmp_path / "a" / "out.txt", LIMIT)
    fd = file.open_for_writing()
    copy = bytearray()
    for line in (b"one\n", b"two\n", "drei ä\n".encode()):
        os.write(fd, line)
        pushed(file, copy)
    os.close(fd)
    assert copy == (tmp_path / "a" / "out.txt").read_bytes() == "one\ntwo\ndrei ä\n".encode()
    assert not file.settled
    file.end()
    assert file.settled


def test_a_flood_keeps_beginning_and_end_and_little_disk(tmp_path: Path) -> None:
    file = CapturedFile(tmp_path / "out.txt", LIMIT)
    fd = file.open_for_writing()
    copy = bytearray()
    for number in range(2000):
        os.write(fd, b"%06d " % number * 1000)
        if number % 7 == 0:
            file.bound()
            pushed(file, copy)
    os.write(fd, b"the very last line\n")
    file.bound()
    os.close(fd)
    assert file.path.stat().st_blocks * 512 < 2 * LIMIT
    assert file.tail(100).endswith(b"the very last line\n")
    file.end()
    pushed(file, copy)
    assert copy.startswith(b"000000 ")
    assert copy.endswith(b"the very last line\n")
    assert b"bytes of output are left out here" in copy
    assert len(copy) < LIMIT // 2 + (1 << 20) + 1000
    assert file.settled


def test_a_copy_that_was_ahead_of_the_cut_goes_on_after_it(tmp_path: Path) -> None:
    """What was pushed before the middle was given back is not pushed twice, and nothing is pushed as zeros."""
    file = CapturedFile(tmp_path / "out.txt", LIMIT)
    fd = file.open_for_writing()
    copy = bytearray()
    os.write(fd, b"a" * (LIMIT - 10))
    pushed(file, copy)
    os.write(fd, b"b" * LIMIT * 4)
    file.bound()
    os.close(fd)
    file.end()
    pushed(file, copy)
    assert copy.startswith(b"a" * (LIMIT - 10))
    assert copy.endswith(b"b" * 1000)
    assert b"\0" not in copy


def test_a_copy_that_has_most_of_the_end_gets_the_rest_and_no_notice(tmp_path: Path) -> None:
    """Nothing is left out of it, though the middle of the file is given back."""
    file = CapturedFile(tmp_path / "out.txt", LIMIT)
    fd = file.open_for_writing()
    copy = bytearray()
    written = b"".join(b"%06d " % number for number in range(LIMIT // 7))
    os.write(fd, written)
    pushed(file, copy)
    last = b"past the limit, and the last line\n" * 10
    os.write(fd, last)
    file.bound()
    os.close(fd)
    assert file.path.read_bytes() != written + last
    file.end()
    pushed(file, copy)
    assert copy == written + last
    assert file.settled


def test_a_file_system_without_holes_keeps_the_bound(tmp_path: Path, monkeypatch: object) -> None:
    import pytest
    from windrow_agent.workers import capture

    assert isinstance(monkeypatch, pytest.MonkeyPatch)

    def refuse(fd: int, offset: int, length: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(capture, "_punch", refuse)
    file = CapturedFile(tmp_path / "out.txt", LIMIT)
    fd = file.open_for_writing()
    for _ in range(50):
        os.write(fd, b"x" * 50_000)
        file.bound()
    os.close(fd)
    assert file.path.stat().st_size <= LIMIT
    file.end()
    copy = bytearray()
    pushed(file, copy)
    assert b"left out" in copy


def test_what_follows_another_file_waits_for_it_and_goes_on_behind_it(tmp_path: Path) -> None:
    first = CapturedFile(tmp_path / "1" / "usage.csv")
    second = CapturedFile(tmp_path / "2" / "usage.csv", follows=first)
    third = CapturedFile(tmp_path / "3" / "usage.csv", follows=second)
    assert third.empty
    first.write(b"one\n")
    second.write(b"two\n")
    third.write(b"three\n")
    assert not third.empty
    copy = bytearray()
    for file in (third, second):
        pushed(file, copy)
        assert not copy and not file.pushed and not file.settled
    pushed(first, copy)
    assert not second.increment(1), "the first one may still grow"
    first.write(b"one and a half\n")
    first.end()
    pushed(first, copy)
    for file in (second, third):
        file.end()
        assert not file.pushed and file.begin == len(copy)
        pushed(file, copy)
        assert file.settled
    assert copy == b"one\none and a half\ntwo\nthree\n"


def test_the_agents_own_words_respect_the_bound(tmp_path: Path) -> None:
    file = CapturedFile(tmp_path / "error.txt", 1000)
    for _ in range(100):
        file.write(b"x" * 100)
    assert file.path.stat().st_size <= 1000


def test_a_table_is_pushed_row_by_row(tmp_path: Path) -> None:
    """Wherever worker or agent dies, the master's copy ends with a whole row."""
    file = CapturedFile(tmp_path / "metrics.csv", LIMIT, of_rows=True)
    fd = file.open_for_writing()
    copy = bytearray()
    os.write(fd, b"Utc Time,Name\n1,loss\n2,lo")
    assert file.increment(17) == b"Utc Time,Name\n"
    pushed(file, copy)
    assert (bytes(copy), file.pushed) == (b"Utc Time,Name\n1,loss\n", True)
    os.write(fd, b"ss\n" + b"3,%b\n" % (b"x" * 60_000) + b"4,lo")
    pushed(file, copy)
    assert copy.endswith(b"\n2,loss\n3," + b"x" * 60_000 + b"\n")
    os.close(fd)
    file.end()
    pushed(file, copy)
    assert copy.endswith(b"x\n")
    assert file.settled


def test_a_table_that_was_cut_still_gets_its_end(tmp_path: Path) -> None:
    file = CapturedFile(tmp_path / "metrics.csv", LIMIT, of_rows=True)
    fd = file.open_for_writing()
    copy = bytearray()
    for number in range(40_000):
        os.write(fd, b"%06d,loss,0.1\n" % number)
        if number % 1000 == 0:
            file.bound()
            pushed(file, copy)
    os.close(fd)
    file.bound()
    file.end()
    pushed(file, copy)
    assert file.settled
    assert copy.startswith(b"000000,loss,0.1\n000001,loss,0.1\n")
    assert copy.endswith(b"\n039999,loss,0.1\n")
    assert b"bytes of output are left out here" in copy


def test_a_text_for_which_the_disk_has_no_room_is_lost_as_a_whole(small_disk: Path) -> None:
    file = CapturedFile(small_disk / "errors.txt")
    file.write(b"before\n")
    with (small_disk / "filler").open("wb", buffering=0) as filler, pytest.raises(OSError, match="No space"):
        while filler.write(bytes(1 << 16)):
            pass
    file.write(b"lost " * 4096 + b"\n")
    CapturedFile(small_disk / "folder" / "errors.txt").write(b"lost\n")
    (small_disk / "filler").unlink()
    file.write(b"after\n")
    assert file.path.read_bytes() == b"before\nafter\n"


def test_what_a_script_puts_in_the_place_of_its_output_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("TOPSECRET" * (LIMIT // 4))
    for lay in (lambda place: place.symlink_to(tmp_path / "secret"), os.mkfifo):
        file = CapturedFile(tmp_path / "out.txt", LIMIT)
        os.close(file.open_for_writing())
        file.path.unlink()
        lay(file.path)
        file.bound()
        assert file.tail(100) == b"" and file.increment(100) == b"" and file.written == 0
        file.write(b"more")
        file.end()
        assert file.settled, "nothing waits for it"
        file.path.unlink()
    assert (tmp_path / "secret").stat().st_size == 9 * (LIMIT // 4)
