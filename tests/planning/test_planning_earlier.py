"""What of an earlier job is taken over: mini-batches whose files are there, and have not changed since."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest
from planner_process import Planner, earlier_of, names, plan
from windrow.transfer.data_archive import DataArchive
from windrow_master.files.artifacts import ArtifactFolder
from windrow_master.planning.earlier.file_clocks import LOCAL_MARGIN_S, MARGIN_S, FileClocks
from windrow_master.planning.earlier.why import Why
from windrow_master.uploaded_data import UploadedData


def write(folder: Path, **files: str) -> None:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def test_of_a_folder_only_what_is_new_has_changed_or_had_no_result_is_divided_again(tmp_path: Path) -> None:
    data = tmp_path / "data"
    write(data, **{f"f{at}": "x" for at in range(10)})
    first = plan(tmp_path / "first", data, size=2)
    began = time.time() + 3.0
    given = earlier_of(tmp_path / "first", first, failed=(3,), began=began)
    (data / "f0").unlink()
    write(data, f5b="new")
    second = plan(tmp_path / "second", data, size=2, earlier=given)
    assert names(second) == [
        [b"f1"], [b"f2", b"f3"], [b"f4", b"f5"], [b"f5b", b"f6"], [b"f7"], [b"f8", b"f9"],
    ]  # fmt: skip
    assert [one.before for one in second.mini_batches] == [-1, 1, 2, -1, -1, 4]
    assert [one.item_first for one in second.mini_batches] == [0, 1, 3, 5, 7, 8]
    assert second.notes[-1] == (
        "Results of job before are taken over: 6 of 10 files. The other 4 files run: 1 new, 2 without a result there, "
        "1 in a mini-batch that is no longer the same."
    )


def test_a_file_that_has_changed_since_runs_again_with_its_mini_batch(tmp_path: Path) -> None:
    data = tmp_path / "data"
    write(data, **{f"f{at}": "x" for at in range(6)})
    first = plan(tmp_path / "first", data, size=2)
    # All of them were made at this moment or later: for a job that began so long ago they are new.
    old = earlier_of(tmp_path / "first", first, began=time.time() - 3600)
    second = plan(tmp_path / "second", data, size=2, earlier=old)
    assert [one.before for one in second.mini_batches] == [-1, -1, -1]
    # Touching the times that a user can set does not make a file old.
    os.utime(data / "f3", (0, 0))
    third = plan(tmp_path / "third", data, size=2, earlier=old)
    assert [one.before for one in third.mini_batches] == [-1, -1, -1]


@pytest.mark.parametrize("size", [1, 3, 4])
def test_mini_batches_come_in_the_order_of_their_first_files(tmp_path: Path, size: int) -> None:
    data = tmp_path / "data"
    write(data, **{f"f{at:03}": "x" for at in range(0, 300, 3)})
    first = plan(tmp_path / "first", data, size=size)
    given = earlier_of(tmp_path / "first", first, failed=(2, 7, 8))
    write(data, **{f"f{at:03}": "x" for at in range(0, 300, 7)}, **{f"a{at}": "x" for at in range(5)})
    for at in (3, 150, 297):
        (data / f"f{at:03}").unlink(missing_ok=True)
    second = plan(tmp_path / "second", data, size=size, earlier=given)
    begins = [one[0] for one in names(second)]
    assert begins == sorted(begins)
    assert sorted(name for one in names(second) for name in one) == sorted(os.fsencode(p.name) for p in data.iterdir())
    assert sum(one.before >= 0 for one in second.mini_batches) > len(first.mini_batches) / 4
    firsts = [one.item_first for one in second.mini_batches]
    counts = [one.item_count for one in second.mini_batches]
    assert firsts == [sum(counts[:at]) for at in range(len(counts))]


def test_what_was_decided_stays_when_its_first_file_has_gone_before_its_turn(tmp_path: Path) -> None:
    data = tmp_path / "data"
    write(data, **{f"f{at:03}": "x" for at in range(100)})
    given = earlier_of(tmp_path / "first", plan(tmp_path / "first", data, size=2), failed=(0,))
    planner = Planner(tmp_path / "step", data, size=2, earlier=given)
    said = planner.message()
    assert said is not None and not said[0]["to"]["done"]
    planner.close(kill=True)
    for at in (60, 62, 98):
        (data / f"f{at:03}").unlink()
    again = plan(tmp_path / "step", data, size=2, checkpoint=said[0]["to"], earlier=given)
    both = [*said[1], *again.mini_batches]
    assert [one.before for one in both] == [-1, *range(1, 50)]


def test_a_file_that_was_just_written_counts_as_unchanged_on_a_disk_with_a_fine_clock(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    device = tmp_path.stat().st_dev
    line = f"1 2 {os.major(device)}:{os.minor(device)} / /data rw,relatime shared:1 - %s /dev/vda rw\n"
    path = tmp_path / "file"
    path.write_text("x")
    status = path.stat()
    changed = status.st_ctime_ns / 1e9
    for kind, margin in (("ext4", LOCAL_MARGIN_S), ("nfs4", MARGIN_S), ("fuse.sshfs", MARGIN_S)):
        mounts.write_text(line % kind)
        for began, expected in (
            (changed + margin + 0.01, None),
            (changed + margin - 0.01, Why.UNSURE),
            (changed - 0.01, Why.CHANGED),
        ):
            assert FileClocks(began, str(mounts)).change_of(status) == expected, (kind, began - changed)
    # No mount is known: no clock is.
    assert FileClocks(changed + 1, str(tmp_path / "none")).change_of(status) == Why.UNSURE


def swap(one: Path, other: Path) -> None:
    one.rename(one.with_name("aside"))
    other.rename(one)
    one.with_name("aside").rename(other)


@pytest.mark.parametrize("kind", ["uri_folder", "mltable"])
@pytest.mark.parametrize(
    ("one", "other", "taken"),
    [
        # What is a link in both still leads to the same file.
        ("v1", "v2", ["link.csv"]),
        ("current", "next", ["link.csv"]),
        ("v1/sub", "v2/sub", ["a.csv", "link.csv"]),
        ("linked", "v2", ["a.csv", "sub/b.csv"]),
        ("v1/link.csv", "other.csv", ["a.csv", "sub/b.csv"]),
    ],
)
def test_where_another_folder_or_file_has_the_name_now_its_files_run_though_none_of_them_has_changed(
    tmp_path: Path, kind: str, one: str, other: str, taken: list[str]
) -> None:
    # The same names, lengths and times, but other contents.
    for at, name in enumerate(("v1", "v2", "linked")):
        for file in ("a.csv", "sub/b.csv"):
            path = tmp_path / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"n\n{at}\n")
            os.utime(path, (1e9, 1e9))
    for name, target in (("v1/link.csv", "../linked/a.csv"), ("v2/link.csv", "../linked/a.csv")):
        (tmp_path / name).symlink_to(target)
    for name, target in (("current", "v1"), ("next", "v2"), ("other.csv", "../v2/a.csv")):
        (tmp_path / name).symlink_to(target)
    data = tmp_path / "current"
    before = plan(tmp_path / "first", data, kind, 1)
    given = earlier_of(tmp_path / "first", before)
    files = [named(recipe) for recipe in before.recipes]
    assert files == ["a.csv", "link.csv", "sub/b.csv"]
    assert [found.before for found in plan(tmp_path / "same", data, kind, 1, earlier=given).mini_batches] == [0, 1, 2]
    swap(tmp_path / one, tmp_path / other)
    second = plan(tmp_path / "second", data, kind, 1, earlier=given)
    assert sorted(map(named, second.recipes)) == files
    assert [files[found.before] for found in second.mini_batches if found.before >= 0] == taken


def named(recipe: bytes) -> str:
    """The one file of a recipe, below the folder of the input."""
    name = json.loads(recipe)["file"] if recipe.startswith(b"{") else recipe.decode()
    return str(name).rpartition("current/")[2]


@pytest.mark.parametrize("size", [1, 3])
def test_planners_started_again_at_any_checkpoint_find_the_same(tmp_path: Path, size: int) -> None:
    data = tmp_path / "data"
    for at in range(400):
        write(data, **{f"f{at:03}": "x"})
    first = plan(tmp_path / "first", data, size=2)
    given = earlier_of(tmp_path / "first", first, failed=tuple(range(0, 200, 3)))
    write(data, **{f"g{at:03}": "x" for at in range(50)})
    whole = plan(tmp_path / "whole", data, size=size, earlier=given)
    assert sum(one.before >= 0 for one in whole.mini_batches) == 133
    checkpoint, found = None, []
    while checkpoint is None or not checkpoint["done"]:
        planner = Planner(tmp_path / "step", data, size=size, checkpoint=checkpoint, earlier=given)
        said = planner.message()
        assert said is not None
        checkpoint = said[0]["to"]
        found += said[1]
        planner.close(kill=True)
    assert found == whole.mini_batches
    assert (tmp_path / "step/recipes").read_bytes() == (tmp_path / "whole/recipes").read_bytes()


@pytest.mark.parametrize("first_with", [True, False])
def test_no_file_comes_twice_when_a_retry_takes_over_other_results_than_were_begun_with(
    tmp_path: Path, first_with: bool
) -> None:
    data = tmp_path / "data"
    for at in range(200):
        write(data, **{f"f{at:03}": "x"})
    given = earlier_of(tmp_path / "first", plan(tmp_path / "first", data, size=2), failed=tuple(range(50, 100)))
    checkpoint, found, takes_over = None, [], first_with
    while checkpoint is None or not checkpoint["done"]:
        planner = Planner(tmp_path / "step", data, size=2, checkpoint=checkpoint, earlier=given if takes_over else None)
        said = planner.message()
        assert said is not None
        checkpoint, takes_over = said[0]["to"], not takes_over
        found += said[1]
        planner.close(kill=True)
    text = (tmp_path / "step" / "recipes").read_bytes()
    listed = [name for one in found for name in text[one.recipe_offset :][: one.recipe_length].split(b"\0")]
    assert sorted(listed) == sorted(os.fsencode(path.name) for path in data.iterdir())
    assert any(one.before >= 0 for one in found) is first_with


def test_nothing_is_left_to_run_or_everything_has_gone(tmp_path: Path) -> None:
    data = tmp_path / "data"
    write(data, a="1", b="2")
    first = plan(tmp_path / "first", data, size=1)
    given = earlier_of(tmp_path / "first", first)
    second = plan(tmp_path / "second", data, size=1, earlier=given)
    assert [one.before for one in second.mini_batches] == [0, 1]
    (data / "a").unlink()
    (data / "b").unlink()
    error = plan(tmp_path / "third", data, size=1, earlier=given).error
    assert error is not None and "contains no files" in error["message"]


def test_another_folder_is_told_as_such(tmp_path: Path) -> None:
    for name in ("data", "other"):
        write(tmp_path / name, a="1", b="2")
    first = plan(tmp_path / "first", tmp_path / "data", size=1)
    second = plan(tmp_path / "second", tmp_path / "other", size=1, earlier=earlier_of(tmp_path / "first", first))
    assert [one.before for one in second.mini_batches] == [-1, -1]
    assert second.warnings == ["Nothing of job before is taken over: its files were elsewhere. All files run."]


def table(folder: Path, **files: str) -> Path:
    write(folder, **files)
    (folder / "MLTable").write_text("paths: [{pattern: ./*.csv}]\ntransformations: [{read_delimited: {}}]\n")
    return folder


def test_of_tables_the_parts_of_files_that_are_as_they_were_are_taken_over(tmp_path: Path) -> None:
    rows = "n\n" + "".join(f"{at}\n" for at in range(200))
    data = table(tmp_path / "data", a__csv=rows, b__csv=rows)
    first = plan(tmp_path / "first", data, "mltable", 300)
    assert len(first.mini_batches) >= 4
    given = earlier_of(tmp_path / "first", first, failed=(0,))
    second = plan(tmp_path / "second", data, "mltable", 300, earlier=given)
    assert second.recipes == first.recipes
    assert [one.before for one in second.mini_batches] == [-1, *range(1, len(first.mini_batches))]
    count = len(first.mini_batches)
    assert f"are taken over: {count - 1} of {count} mini-batches" in second.notes[-1] and not second.warnings
    (data / "a.csv").write_text(rows.replace("5", "6"))
    third = plan(tmp_path / "third", data, "mltable", 300, earlier={**given, "began": time.time() - 60})
    assert {one.before for one in third.mini_batches} == {-1}


def test_a_table_that_is_read_otherwise_now_runs_whole(tmp_path: Path) -> None:
    data = table(tmp_path / "data", a__csv="n,m\n1,2\n")
    first = plan(tmp_path / "first", data, "mltable", 300)
    (data / "MLTable").write_text(
        "paths: [{pattern: ./*.csv}]\ntransformations: [{read_delimited: {}}, {keep_columns: [n]}]\n"
    )
    second = plan(tmp_path / "second", data, "mltable", 300, earlier=earlier_of(tmp_path / "first", first))
    assert [one.before for one in second.mini_batches] == [-1]
    assert "read differently than in job before" in second.warnings[-1]


class Uploads:
    """Uploads of a client, as a master unpacks them."""

    def __init__(self, folder: Path) -> None:
        self.given = {"folder": str(folder / "store" / "uploads"), "lists": str(folder / "lists")}
        self._folder = folder
        self._placed = UploadedData(ArtifactFolder(folder / "artifacts"), folder / "store", folder / "lists")

    def place(self, data: Path) -> Path:
        """Upload a folder."""
        archive = DataArchive(data)
        digest = archive.digest()
        (self._folder / "artifacts" / digest).write_bytes(archive.read_at(0, archive.length))
        return self._placed.place(digest, lambda done, total: None)


def test_of_two_uploads_files_with_the_same_content_are_the_same(tmp_path: Path) -> None:
    data, uploads = tmp_path / "data", Uploads(tmp_path)
    write(data, **{f"f{at}": f"text {at}" for at in range(12)})
    before = uploads.place(data)
    first = plan(tmp_path / "first", before, size=2)
    # Just unpacked, and long after all changes: neither tells.
    given = {**earlier_of(tmp_path / "first", first, began=time.time() - 3600), "uploads": uploads.given}
    write(data, f1="changed", g="new")
    (data / "f4").unlink()
    os.utime(data / "f6", (0, 0))
    now = uploads.place(data)
    assert now != before
    # Nobody should write to an upload; what somebody has written to is not what was read, or is not what was sent.
    (now / "f8").write_text("text 8")
    (before / "f11").write_text("other")
    second = plan(tmp_path / "second", now, size=2, earlier=given)
    taken = [(one.before, one.item_count) for one in second.mini_batches if one.before >= 0]
    assert taken == [(2, 2), (4, 2)]
    # The lists of names are sorted, in each part and as a whole.
    assert names(second) == [
        [b"f0", b"f1"], [b"f10", b"f11"], [b"f2", b"f3"], [b"f5"], [b"f6", b"f7"], [b"f8", b"f9"], [b"g"],
    ]  # fmt: skip
    assert second.reader["root"] == str(now)
    # The very same upload once more.
    third = plan(tmp_path / "third", before, size=2, earlier=given)
    assert [one.before for one in third.mini_batches if one.before >= 0] == [0, 2, 3, 4, 5]


def test_uploads_without_a_list_are_not_compared(tmp_path: Path) -> None:
    data, uploads = tmp_path / "data", Uploads(tmp_path)
    write(data, **{f"f{at}": f"text {at}" for at in range(4)})
    before = uploads.place(data)
    first = plan(tmp_path / "first", before, size=2)
    given = {**earlier_of(tmp_path / "first", first), "uploads": uploads.given}
    write(data, g="new")
    now = uploads.place(data)
    (tmp_path / "lists" / before.name).unlink()
    second = plan(tmp_path / "second", now, size=2, earlier=given)
    assert [one.before for one in second.mini_batches] == [-1, -1, -1]
    # Lists go with their data.
    assert [path.name for path in (tmp_path / "lists").iterdir()] == [now.name]
    shutil.rmtree(now)
    Uploads(tmp_path)
    assert not list((tmp_path / "lists").iterdir())


def test_planners_started_again_go_on_with_what_two_uploads_have_in_common(tmp_path: Path) -> None:
    data, uploads = tmp_path / "data", Uploads(tmp_path)
    write(data, **{f"f{at:03}": f"text {at}" for at in range(300)})
    first = plan(tmp_path / "first", uploads.place(data), size=2)
    given = {**earlier_of(tmp_path / "first", first, failed=(7,)), "uploads": uploads.given}
    write(data, f100="changed", g="new")
    now = uploads.place(data)
    planner = Planner(tmp_path / "step", now, size=2, earlier=given)
    said = planner.message()
    assert said is not None and not said[0]["to"]["done"]
    planner.close(kill=True)
    # The list of the one before is gone by then: what was taken over stays, and nothing comes twice.
    shutil.rmtree(tmp_path / "lists")
    again = plan(tmp_path / "step", now, size=2, checkpoint=said[0]["to"], earlier={**given, "alike": False})
    text = (tmp_path / "step" / "recipes").read_bytes()
    both = [text[one.recipe_offset :][: one.recipe_length] for one in [*said[1], *again.mini_batches]]
    listed = sorted(name for recipe in both for name in recipe.split(b"\0"))
    assert listed == sorted(os.fsencode(path.name) for path in data.iterdir())


def table_of(data: Path, *files: str) -> None:
    (data / "MLTable").write_text(json.dumps({"paths": [{"file": f"./{name}"} for name in files]}))


@pytest.mark.parametrize(
    ("before", "now", "taken"),
    [
        ("a b c d", "a b c d", [0, 1]),
        ("a b c a d e", "a b c d e", [0, 2]),
        ("a b c d", "a b c d a", [1]),
        ("a b a b c d", "a b a b c d", [2]),
        ("a a b c", "a b c", [1]),
    ],
)
def test_files_that_are_listed_more_than_once_come_as_often_as_they_are_listed(
    tmp_path: Path, before: str, now: str, taken: list[int]
) -> None:
    data = tmp_path / "data"
    write(data, **dict.fromkeys("abcde", "x"))
    table_of(data, *before.split())
    first = plan(tmp_path / "first", data, "mltable", 2)
    given = earlier_of(tmp_path / "first", first)
    table_of(data, *now.split())
    second = plan(tmp_path / "second", data, "mltable", 2, earlier=given)
    assert [one.before for one in second.mini_batches if one.before >= 0] == taken
    assert sorted(name.decode() for one in names(second) for name in one) == sorted(now.split())


def test_a_planner_that_is_started_again_takes_no_file_twice(tmp_path: Path) -> None:
    data, listed = tmp_path / "data", [f"f{at:03}" for at in range(300)]
    write(data, **dict.fromkeys(listed, "x"))
    table_of(data, *listed, *listed[:2])
    first = plan(tmp_path / "first", data, "mltable", 2)
    given = earlier_of(tmp_path / "first", first)
    table_of(data, *listed)
    planner = Planner(tmp_path / "step", data, "mltable", 2, earlier=given)
    said = planner.message()
    assert said is not None and not said[0]["to"]["done"]
    planner.close(kill=True)
    again = plan(tmp_path / "step", data, "mltable", 2, checkpoint=said[0]["to"], earlier=given)
    both = [*said[1], *again.mini_batches]
    assert [one.before for one in both] == list(range(150))
    assert sum(one.item_count for one in both) == 300
