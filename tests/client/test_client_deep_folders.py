"""What a client does with folders that are nested deeper than calls can be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from nested_folders import WALKED, few_calls, nest
from windrow.common.removal import discard_tree, temporary_tree
from windrow.ml.v1.local_data import kept_copy
from windrow.ml.v1.runs import _move_files
from windrow.spec.one_line.inputs import Given, is_named, local_files
from windrow.transfer.code_archive import measure


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    made = tmp_path / "f"
    made.mkdir()
    nest(made, WALKED)
    yield made
    discard_tree(made)


FILES = WALKED // 10


def test_code_is_packed(folder: Path) -> None:
    with few_calls():
        assert measure(folder) == (FILES, 0)


def test_inputs_of_one_line_are_listed(folder: Path) -> None:
    (folder / "d" / "loop").symlink_to(folder)
    with few_calls():
        assert len(list(local_files(Given(str(folder), "folder", str(folder), "files")))) == FILES


def test_copies_and_downloads_are_put_in_place(folder: Path) -> None:
    with few_calls(), temporary_tree("kept-", folder.parent) as kept:
        copy = Path(kept_copy(str(folder), kept))
        assert _move_files(str(copy), f"{kept}/moved", overwrite=False) == FILES
    assert not Path(kept).exists()


@pytest.mark.parametrize(
    ("path", "pattern", "expected"),
    [
        ("a/b/c", "a/**/c", True), ("a/c", "a/**/c", True), ("a/b/c", "**", True), ("a/b/c", "a/*", False),
        ("a/b/c", "*/b/[cd]", True), ("a", "a/b", False), ("a/b", "a/b/**", True), ("b", "a/**", False),
        ("d/" * WALKED + "e", "d/**/e", True), ("d/" * WALKED + "e", "**/d/" * 30 + "f", False),
    ],
)  # fmt: skip
def test_names_of_patterns(path: str, pattern: str, expected: bool) -> None:
    with few_calls():
        assert is_named(path, pattern) is expected
