"""The planner's files on a disk in trouble."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from windrow_master.planning import journal
from windrow_master.planning.errors import PlanningError
from windrow_master.planning.journal import AppendFile, JournalLost


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
    ("number", "expected"), [(errno.ENOSPC, JournalLost), (errno.EDQUOT, JournalLost), (errno.EIO, PlanningError)]
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
    monkeypatch.setattr(journal, "RETRY_FULL_S", 0)
    Disk(monkeypatch, name, [errno.ENOSPC, errno.ENOSPC])
    file = AppendFile(os.fsencode(tmp_path / "recipes"), 0)
    file.append(b"abc")
    file.sync()
    assert (tmp_path / "recipes").read_bytes() == b"abc"
    assert capsys.readouterr().err.count("planning waits until there is room") == 1
