"""The planner's files on a disk in trouble."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from windrow_master.planning.errors import PlanningError
from windrow_master.planning.plan_files import plan_files
from windrow_master.planning.plan_files.plan_files import AppendFile, PlanFilesLost


class Disk:
    """Lets some calls fail, as a disk would."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, errors: list[int]) -> None:
        self.calls = 0
        real = getattr(os, name)

        def call(*arguments: object) -> object:
            self.calls += 1
            if errors:
                number = errors.pop(0)
                raise OSError(number, os.strerror(number))
            return real(*arguments)

        monkeypatch.setattr(os, name, call)


def test_what_was_appended_is_synced_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch, "fdatasync", [])
    file = AppendFile(os.fsencode(tmp_path / "recipes"), 0)
    assert [file.append(b"abc"), file.append(b"de")] == [0, 3]
    file.sync()
    file.sync()
    assert (tmp_path / "recipes").read_bytes() == b"abcde"
    assert disk.calls == 1


@pytest.mark.parametrize(
    ("number", "expected"), [(errno.ENOSPC, PlanFilesLost), (errno.EDQUOT, PlanFilesLost), (errno.EIO, PlanningError)]
)
def test_a_failed_sync_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, expected: type[Exception]
) -> None:
    file = AppendFile(os.fsencode(tmp_path / "recipes"), 0)
    file.append(b"abc")
    disk = Disk(monkeypatch, "fdatasync", [number])
    with pytest.raises(expected, match="recipes cannot be"):
        file.sync()
    assert disk.calls == 1


@pytest.mark.parametrize("name", ["open", "pwrite"])
def test_a_full_disk_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.setattr(plan_files, "RETRY_FULL_S", 0)
    Disk(monkeypatch, name, [errno.ENOSPC, errno.ENOSPC])
    file = AppendFile(os.fsencode(tmp_path / "recipes"), 0)
    file.append(b"abc")
    file.sync()
    assert (tmp_path / "recipes").read_bytes() == b"abc"
    assert capsys.readouterr().err.count("planning waits for free space") == 1


def appended(path: Path, sizes: list[int]) -> AppendFile:
    file = AppendFile(os.fsencode(path), 0)
    for number, size in enumerate(sizes):
        file.append(bytes([number % 251]) * size)
    return file


SIZES = [1, 4095, 4096, 4097, 7, 0, 10_000, 300]


def test_what_was_appended_is_read_back_and_known_again(tmp_path: Path) -> None:
    file = appended(tmp_path / "listing", SIZES)
    whole = (tmp_path / "listing").read_bytes()
    for start, end in ((0, len(whole)), (4095, 4097), (4096, 8192), (len(whole) - 1, len(whole)), (5, 5)):
        assert file.read(start, end) == whole[start:end]
    file.close()
    again = AppendFile(os.fsencode(tmp_path / "listing"), file.length, file.checksum)
    assert again.checksum == file.checksum
    again.append(b"more")
    assert again.read(0, again.length) == whole + b"more"


def test_the_checksum_does_not_depend_on_how_the_bytes_came(tmp_path: Path) -> None:
    file = appended(tmp_path / "listing", SIZES)
    other = AppendFile(os.fsencode(tmp_path / "other"), 0)
    for byte in (tmp_path / "listing").read_bytes():
        other.append(bytes([byte]))
        if other.length % 5000 == 0:
            assert other.checksum  # asked for in between, as each group does
    assert other.checksum == file.checksum


@pytest.mark.parametrize("at", [0, 4095, 4096, 12_000, -1])
@pytest.mark.parametrize("when", ["while it is planned", "before a planner goes on"])
def test_a_flipped_bit_is_told_wherever_it_is(tmp_path: Path, at: int, when: str) -> None:
    file = appended(tmp_path / "listing", SIZES)
    content = bytearray((tmp_path / "listing").read_bytes())
    content[at] ^= 1
    (tmp_path / "listing").write_bytes(content)
    with pytest.raises(PlanningError, match=r"listing is damaged: .*fail their checksum.*--since"):
        if when == "while it is planned":
            file.read(0, file.length)
        else:
            file.close()
            AppendFile(os.fsencode(tmp_path / "listing"), file.length, file.checksum)


def test_a_cut_file_is_told_and_never_waited_for(tmp_path: Path) -> None:
    file = appended(tmp_path / "listing", SIZES)
    os.truncate(tmp_path / "listing", 5000)
    with pytest.raises(PlanningError, match="listing is damaged"):
        file.read(0, 10_000)
    file.close()
    with pytest.raises(PlanningError, match="it holds 5,000 bytes"):
        AppendFile(os.fsencode(tmp_path / "listing"), file.length, file.checksum)
    with pytest.raises(PlanningError, match="fail their checksum"):
        AppendFile(os.fsencode(tmp_path / "listing"), 4000, file.checksum)


def test_what_was_added_behind_a_checkpoint_is_cut_off(tmp_path: Path) -> None:
    file = appended(tmp_path / "listing", SIZES)
    file.close()
    with (tmp_path / "listing").open("ab") as more:
        more.write(b"garbage")
    again = AppendFile(os.fsencode(tmp_path / "listing"), file.length, file.checksum)
    assert (tmp_path / "listing").stat().st_size == file.length
    assert again.read(0, again.length).startswith(b"\0\x01")
