"""What a master does with folders that scripts have nested: as deep as they like, and deeper than a path may be."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from nested_folders import DEPTH, LONG, WALKED, few_calls, nest, opened
from opened_store import open_store
from windrow.common.removal import discard_tree
from windrow.common.trees import entries_below, walk
from windrow_master.backup.making import make_backup
from windrow_master.backup.restoring import restore_backup
from windrow_master.files.disk_use import bytes_below
from windrow_master.files.durable import make_durable
from windrow_master.files.state_files import StateFiles
from windrow_master.files.temporary import temporary_folder
from windrow_master.reports.parent_copies import copy_to_parent
from windrow_master.rpc.files import walk_files
from windrow_master.setup.owned_files import Owner, give_state


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    made = tmp_path / "f"
    made.mkdir()
    yield made
    discard_tree(made)


@pytest.fixture
def state(folder: Path) -> StateFiles:
    """A state folder in which the output of a job is deep."""
    open_store(folder / "state").close()
    files = StateFiles(folder / "state")
    (files.outputs / "job").mkdir(parents=True)
    nest(files.outputs / "job", WALKED)
    return files


def names_in(folder: Path) -> list[str]:
    return [name for _, _, names in walk(folder) for name in names]


def test_a_backup_holds_what_paths_lead_to_and_tells_the_rest(folder: Path, state: StateFiles) -> None:
    (state.outputs / "deeper").mkdir()
    nest(state.outputs / "deeper", DEPTH, LONG)
    with few_calls():
        note = make_backup(state.folder, folder / "backup")
        restore_backup(folder / "backup", folder / "restored")
    assert [name.split("/")[:2] for name in note.left_out] == [["outputs", "deeper"]]
    restored = StateFiles(folder / "restored")
    assert names_in(restored.outputs / "job") == ["file"] * (WALKED // 10)
    assert names_in(restored.outputs / "deeper") == ["file", "file"]


def test_a_restore_that_broke_off_begins_again(folder: Path, state: StateFiles) -> None:
    make_backup(state.folder, folder / "backup")
    restored = StateFiles(folder / "restored")
    restored.unfinished_restore.mkdir(parents=True)
    (restored.folder / "left").mkdir()
    nest(restored.folder / "left", WALKED)
    with few_calls():
        restore_backup(folder / "backup", restored.folder)
    assert not (restored.folder / "left").exists()


def test_all_that_a_folder_takes_is_counted(folder: Path) -> None:
    nest(folder, DEPTH, LONG)
    with opened(folder) as descriptor:
        expected = sum(entry.status.st_blocks for entry in entries_below(descriptor)) + folder.stat().st_blocks
    assert bytes_below(folder) == expected * 512
    (folder / "file").write_text("x" * 10_000)
    assert bytes_below(folder / "file") >= 10_000
    (folder / "link").symlink_to(folder)
    assert bytes_below(folder / "link") < 10_000
    assert bytes_below(folder / "nothing") == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_state_folder_is_given_to_its_owner_however_deep(state: StateFiles) -> None:
    nest(state.outputs / "job", DEPTH, LONG)
    with few_calls():
        give_state(state.folder, Owner(65534, 65534))
    with opened(state.folder) as descriptor:
        assert {entry.status.st_uid for entry in entries_below(descriptor)} == {65534}


def test_logs_are_listed_and_copied_however_deep(folder: Path) -> None:
    files = nest(folder, WALKED)
    root = folder.with_name("root")
    with few_calls():
        assert len(walk_files(folder)) == files
        assert copy_to_parent(folder, root, "step.") == files
    assert names_in(root) == ["step.file"] * files
    discard_tree(root)


def test_a_temporary_folder_goes_however_deep(folder: Path) -> None:
    with few_calls():
        with temporary_folder("made-", folder) as made:
            nest(made, WALKED)
        assert not made.exists()


def test_a_folder_for_outputs_is_made_however_many_are_missing(folder: Path) -> None:
    place = folder.joinpath(*["d"] * WALKED)
    with few_calls():
        make_durable(place)
    assert place.is_dir()
