"""Going through folders that scripts may have made."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from nested_folders import DEPTH, LONG, WALKED, few_calls, nest, opened
from windrow.common import beneath
from windrow.common.beneath import Folder, Refused
from windrow.common.removal import remove_tree
from windrow.common.trees import (
    Entry,
    NestedTooDeep,
    copy_tree,
    entries_below,
    make_folders,
    paths_named,
    walk,
)
from windrow.errors import UsageError


@pytest.fixture(name="few_calls")
def fixture_few_calls() -> Iterator[None]:
    with few_calls():
        yield


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Its content is removed before pytest would try."""
    made = tmp_path / "f"
    made.mkdir()
    yield made
    remove_tree(made)


def test_a_walk_is_that_of_the_standard_library(folder: Path) -> None:
    for name in ("a/b/c", "a/d", "e"):
        (folder / name).mkdir(parents=True)
        (folder / name / "file").touch()
    (folder / "a" / "link").symlink_to(folder / "e")
    (folder / "a" / "broken").symlink_to(folder / "nowhere")
    for follow in (False, True):
        expected = sorted(
            (place, sorted(folders), sorted(names)) for place, folders, names in os.walk(folder, followlinks=follow)
        )
        found = [(place, sorted(folders), sorted(names)) for place, folders, names in walk(folder, follow_links=follow)]
        assert sorted(found) == expected
    pruned = []
    for place, folders, _ in walk(folder):
        pruned.append(place)
        folders[:] = [name for name in folders if name != "a"]
    assert sorted(pruned) == [str(folder), str(folder / "e")]


@pytest.mark.usefixtures("few_calls")
def test_a_walk_goes_as_deep_as_paths_lead(folder: Path) -> None:
    nest(folder, WALKED)
    assert sum(len(names) for _, _, names in walk(folder)) == WALKED // 10


def test_a_walk_tells_what_it_does_not_reach(folder: Path) -> None:
    nest(folder, DEPTH, LONG)
    told: list[OSError] = []
    assert len(list(walk(folder, told.append))) < DEPTH
    assert [error.strerror for error in told] == ["File name too long"]


def test_a_walk_follows_no_link_to_a_folder_that_contains_it(folder: Path) -> None:
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "file").touch()
    for number in range(10):
        (folder / "a" / "b" / f"up-{number}").symlink_to(folder / "a")
    assert [names for _, _, names in walk(folder, follow_links=True) if names] == [["file"]]


def test_entries_are_found_however_deep_they_are(folder: Path) -> None:
    nest(folder, DEPTH, LONG)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    with opened(folder) as descriptor:
        found = []
        for entry in entries_below(descriptor):
            found.append((entry.name, len(entry.above)))
            assert len(os.listdir("/proc/self/fd")) <= before + 4  # noqa: PTH208
    assert sorted(depth for name, depth in found if name == "file") == list(range(0, DEPTH, 10))
    assert sum(name == LONG for name, _ in found) == DEPTH


def test_entries_beside_deep_ones_are_found(folder: Path) -> None:
    for name in ("a/b/c", "a/b/d/e", "a/f", "g/h", "i"):
        (folder / name).mkdir(parents=True)
        (folder / name / "file").touch()
    (folder / "a" / "link").symlink_to(folder / "i")
    with opened(folder) as descriptor:
        found = sorted((entry.path, entry.is_folder) for entry in entries_below(descriptor))
    expected = sorted(folder.rglob("*"))
    assert [name for name, _ in found] == [str(path.relative_to(folder)) for path in expected]
    assert [is_folder for _, is_folder in found] == [path.is_dir() and not path.is_symlink() for path in expected]


def test_entries_are_as_deep_as_is_asked_for(folder: Path) -> None:
    nest(folder, 50, "abc", every=1)
    told: list[OSError] = []
    with opened(folder) as descriptor:
        found = [entry.path for entry in entries_below(descriptor, told.append, path_max=23)]
        assert max(map(len, found)) <= 23 and len(found) == 10
        assert [type(error) for error in told] == [NestedTooDeep]

        def near(entry: Entry) -> bool:
            return len(entry.above) < 2

        assert len(list(entries_below(descriptor, enter=near))) == 6


def test_a_walk_goes_on_where_folders_are_moved_meanwhile(folder: Path) -> None:
    for name in ("a/b/c/d", "e"):
        (folder / name).mkdir(parents=True)
        (folder / name / "file").touch()
    elsewhere = folder.with_name("elsewhere")
    elsewhere.mkdir()
    (elsewhere / "secret").touch()
    found = []
    with opened(folder) as descriptor:
        for entry in entries_below(descriptor):
            found.append(entry.name)
            if entry.name == "d":
                # What is above the walk's place by now is another folder.
                (folder / "a" / "b" / "c").rename(elsewhere / "c")
    assert "secret" not in found
    assert sorted(found) == ["a", "b", "c", "d", "e", "file", "file"]


def test_a_link_in_the_place_of_a_folder_is_not_entered(folder: Path) -> None:
    elsewhere = folder.with_name("elsewhere")
    elsewhere.mkdir()
    (elsewhere / "secret").touch()
    (folder / "a").mkdir()
    told: list[OSError] = []
    found = []
    with opened(folder) as descriptor:
        for entry in entries_below(descriptor, told.append):
            found.append(entry.name)
            (folder / "a").rmdir()
            (folder / "a").symlink_to(elsewhere)
    assert found == ["a"] and len(told) == 1


def test_a_listing_of_too_many_names_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nest(folder, DEPTH, LONG)
    with Folder.open(folder) as top:
        found = top.files()
        assert len(found) == DEPTH // 10
        monkeypatch.setattr(beneath, "NAMES_BYTES_MAX", sum(len(name) for name, _ in found) - 1)
        with pytest.raises(Refused, match="nested too deep"):
            top.files()


@pytest.mark.usefixtures("few_calls")
def test_a_deep_folder_is_copied(folder: Path) -> None:
    source, target = folder / "s", folder / "t"
    make_folders(source)
    nest(source, WALKED)
    (source / "link").symlink_to(source)
    (source / "file").write_text("content")
    copy_tree(source, target)
    assert (target / "file").read_text() == "content"
    assert sum(len(names) for _, _, names in walk(target)) == WALKED // 10


@pytest.mark.usefixtures("few_calls")
def test_folders_are_made_however_many_are_missing(folder: Path) -> None:
    place = folder.joinpath(*["d"] * WALKED)
    make_folders(place)
    make_folders(place)
    assert place.is_dir()
    (folder / "file").touch()
    for path in (folder / "file", folder / "file" / "below"):
        with pytest.raises(OSError):
            make_folders(path)
    with pytest.raises(OSError, match="too long"):
        make_folders(folder.joinpath(*[LONG] * DEPTH))


@pytest.mark.usefixtures("few_calls")
def test_a_pattern_says_where_it_leads_too_deep(folder: Path) -> None:
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "file").touch()
    assert str(folder / "a" / "b" / "file") in paths_named(f"{folder}/**")
    nest(folder, WALKED)
    with pytest.raises(UsageError, match="nested too deep"):
        paths_named(f"{folder}/**/file")
