"""Removing folders where scripts have written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from windrow.common.removal import discard_tree, removal, remove_tree

DEPTH = 3000


def deep(at: Path, depth: int = DEPTH) -> None:
    """Folders in each other, deeper than a path may be long, with a file in each tenth."""
    descriptor = os.open(at, os.O_RDONLY)
    for number in range(depth):
        if number % 10 == 0:
            os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=descriptor))
        os.mkdir("below", dir_fd=descriptor)
        below = os.open("below", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(descriptor)


def test_a_folder_is_removed_however_deep_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    deep(folder)
    remove_tree(folder)
    assert not folder.exists()


def test_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    kept, folder = tmp_path / "kept", tmp_path / "folder"
    for place in (kept, folder / "one" / "two"):
        place.mkdir(parents=True)
    (kept / "file").touch()
    for place in (folder, folder / "one", folder / "one" / "two"):
        (place / "link").symlink_to(kept)
    remove_tree(folder)
    assert not folder.exists() and (kept / "file").exists()
    folder.symlink_to(kept)
    with pytest.raises(NotADirectoryError):
        remove_tree(folder)
    discard_tree(folder)
    assert (kept / "file").exists()


def test_it_goes_piece_by_piece(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for number in range(25):
        (folder / str(number)).touch()
    assert len(list(removal(folder, 10))) == 2
    with pytest.raises(FileNotFoundError):
        remove_tree(folder)
