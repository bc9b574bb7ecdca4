"""Folders that are there after a loss of power."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from windrow.common.durable import sync_folder
from windrow_master.files.durable import make_durable
from windrow_master.output.file_operations import FileOperations
from windrow_master.state_folder.opening import StateFolder


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files and folders that were brought to the disk, in order."""
    places: list[Path] = []
    fsync = os.fsync

    def recorded(descriptor: int) -> None:
        fsync(descriptor)
        places.append(Path(f"/proc/self/fd/{descriptor}").readlink())

    monkeypatch.setattr(os, "fsync", recorded)
    return places


def test_each_name_is_synced_in_the_folder_above_it(tmp_path: Path, synced: list[Path]) -> None:
    make_durable(tmp_path / "a" / "b" / "c")
    assert (tmp_path / "a" / "b" / "c").is_dir()
    assert sorted(synced) == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]


def test_what_is_there_is_left_unless_it_may_not_be_durable(tmp_path: Path, synced: list[Path]) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    make_durable(tmp_path / "a" / "b")
    assert synced == []
    make_durable(tmp_path / "a" / "b", tmp_path)
    assert sorted(synced) == [tmp_path, tmp_path / "a"]


@pytest.mark.parametrize("there", [False, True])
def test_a_new_state_folder_is_durable(tmp_path: Path, synced: list[Path], there: bool) -> None:
    state = tmp_path / "state"
    if there:
        state.mkdir()
    StateFolder.open(state, 0).close()
    assert tmp_path in synced


def test_a_file_system_that_cannot_sync_folders_is_taken_as_it_is() -> None:
    with pytest.raises(OSError, match="Invalid argument"):
        os.fsync(os.open("/proc", os.O_RDONLY))
    sync_folder(Path("/proc"))
    FileOperations().sync_folder(Path("/proc"))


def test_other_errors_are_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        sync_folder(tmp_path / "gone")
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        make_durable(tmp_path / "file" / "folder")
