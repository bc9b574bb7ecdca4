"""File lists: order, names, sizes, what is left out, and planners killed in the middle."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planner_process import Planner, names, plan
from windrow_master.planning import describe_items
from windrow_master.planning.errors import PlanningError
from windrow_master.planning.listing.patterns import compile_pattern
from windrow_master.planning.listing.walk import walk


def touch(root: Path | bytes, *files: bytes) -> None:
    """Make empty files, and the folders they are in."""
    for file in files:
        path = Path(os.fsdecode(root), os.fsdecode(file))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def ignore(text: str) -> None:
    """Takes a warning."""


def test_order_is_by_component_in_bytes_and_names_stay_bytes(tmp_path: Path) -> None:
    data = tmp_path / "data"
    expected = [b"B", b"a/x/1", b"a/z.csv", b"a-1.csv", b"a.csv", b"d10", b"d9", b"e f\ng", b"\xff\xfe"]
    touch(data, *reversed(expected))
    (data / "empty").mkdir()
    found = plan(tmp_path / "step", data, size=4)
    assert names(found) == [expected[:4], expected[4:8], expected[8:]]
    assert [(one.item_first, one.item_count) for one in found.mini_batches] == [(0, 4), (4, 4), (8, 1)]
    assert found.reader == {"kind": "files", "root": str(data)}
    assert describe_items(found.reader, found.recipes[1])[3] == f"{data}/e f\\ng"
    assert describe_items(found.reader, found.recipes[2]) == [f"{data}/\\xff\\xfe"]


def test_an_odd_root_and_default_size(tmp_path: Path) -> None:
    root = os.fsencode(tmp_path) + b"/r\xff\n"
    touch(root, *(b"%02d" % at for at in range(11)))
    found = plan(tmp_path / "step", root)
    assert os.fsencode(found.reader["root"]) == root
    assert [one.item_count for one in found.mini_batches] == [10, 1]


def test_one_file_and_forty_thousand_in_one_mini_batch(tmp_path: Path) -> None:
    data = tmp_path / "data"
    expected = [b"file-%05d" % at for at in range(40_000)]
    touch(data, *expected)
    found = plan(tmp_path / "step", data, size=40_000)
    assert names(found) == [expected]
    found = plan(tmp_path / "one", data / "file-00007", "uri_file")
    assert names(found) == [[b"file-00007"]] and found.reader["root"] == str(data)


def test_links_loops_and_special_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data"
    touch(data, b"a", b"sub/b")
    touch(tmp_path, b"elsewhere/c")
    (data / "file-link").symlink_to("a")
    (data / "folder-link").symlink_to(tmp_path / "elsewhere")
    (data / "sub/loop").symlink_to("../..", target_is_directory=True)
    (tmp_path / "elsewhere/back").symlink_to(data)
    (data / "broken").symlink_to("nowhere")
    (data / "self").symlink_to("self")
    os.mkfifo(data / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        monkeypatch.chdir(data)
        listener.bind("socket")
        found = plan(tmp_path / "step", data)
    assert names(found) == [[b"a", b"file-link", b"folder-link/c", b"sub/b"]]
    text = "\n".join(found.warnings)
    for word in (
        "broken was left out: a broken link",
        "self was",
        "named pipe",
        "socket",
        "a folder that contains it",
    ):
        assert word in text
    assert len(found.warnings) == 6


@pytest.mark.parametrize(
    ("pattern", "missed"),
    [
        ("*.txt", []),
        ("*", ["broken", "pipe"]),
        ("br*", ["broken"]),
        # It might have led to a folder.
        ("*/b.txt", ["broken"]),
    ],
)
def test_only_what_a_pattern_might_name_is_missed(tmp_path: Path, pattern: str, missed: list[str]) -> None:
    data = tmp_path / "data"
    touch(data, b"a.txt", b"bread", b"sub/b.txt")
    (data / "broken").symlink_to("nowhere")
    os.mkfifo(data / "pipe")
    (data / "MLTable").write_text(f"paths: [{{pattern: '{pattern}'}}]\n")
    warned = plan(tmp_path / "step", data, "mltable").warnings
    assert sorted(Path(text.split(" was left out")[0]).name for text in warned) == missed


@pytest.mark.parametrize("kind", ["uri_folder", "mltable"])
def test_a_state_folder_is_no_data(tmp_path: Path, kind: str) -> None:
    """That of the very run, for one, whose files grow while they are listed; unless it is what is asked for."""
    data = tmp_path / "data"
    touch(data, b"a", b"s/windrow.db", b"s/jobs/1/logs/x", b"s/outputs/1/rows.csv", b"t/windrow.db.old")
    if kind == "mltable":
        (data / "MLTable").write_text("paths: [{pattern: '**'}]\n")
    found = plan(tmp_path / "step", data, kind)
    assert names(found) == [[b"a", b"t/windrow.db.old"]]
    assert found.warnings == [f"{data}/s was left out: it is a state folder of Windrow."]
    (data / "MLTable").unlink(missing_ok=True)
    inside = plan(tmp_path / "inside", data / "s" / "outputs")
    assert names(inside) == [[b"1/rows.csv"]] and not inside.warnings
    assert len(plan(tmp_path / "itself", data / "s").mini_batches) == 1


@pytest.mark.parametrize(
    ("path", "kind", "size", "words"),
    [
        ("none", "uri_folder", None, "none does not exist"),
        ("none", "uri_file", None, "none does not exist"),
        ("none", "mltable", None, "none does not exist"),
        ("empty", "uri_folder", None, "empty contains no files"),
        ("empty", "mltable", None, "empty contains no files"),
        ("full/a", "uri_folder", None, "is a file"),
        ("full", "uri_folder", 0, "at least 1"),
        ("full", "model", None, "must be one of"),
    ],
)
def test_errors_of_users(tmp_path: Path, path: str, kind: str, size: int | None, words: str) -> None:
    touch(tmp_path, b"full/a")
    (tmp_path / "empty/sub").mkdir(parents=True)
    error = plan(tmp_path / "step", tmp_path / path, kind, size).error
    assert error is not None and error["category"] == "UserError" and words in error["message"]


def test_an_unreadable_folder_ends_the_step_with_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, b"data/a", b"data/closed/b")
    real = os.scandir

    def scandir(path: bytes) -> Any:
        if path.endswith(b"closed"):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    # Tests may run as root, for whom nothing is closed.
    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(PlanningError, match=r"data/closed of the input cannot be read: Permission denied"):
        list(walk(os.fsencode(tmp_path / "data"), ignore))


def test_resume_from_every_checkpoint_gives_the_same_mini_batches(tmp_path: Path) -> None:
    data = tmp_path / "data"
    touch(data, *(b"d%d/f%04d" % (at % 7, at) for at in range(6000)), *(b"x%04d" % at for at in range(3000)))
    whole = plan(tmp_path / "whole", data, size=3)
    assert len(whole.mini_batches) == 3000 and len(whole.checkpoints) > 4
    for number, checkpoint in enumerate(whole.checkpoints[:-1]):
        step = tmp_path / f"step{number}"
        step.mkdir()
        # What a killed planner leaves behind: more than the checkpoint says.
        (step / "recipes").write_bytes(
            (tmp_path / "whole/recipes").read_bytes()[: checkpoint["recipes_bytes"]] + b"torn"
        )
        rest = plan(step, data, size=3, checkpoint=checkpoint)
        assert rest.mini_batches == whole.mini_batches[checkpoint["mini_batches"] :]
        assert (step / "recipes").read_bytes() == (tmp_path / "whole/recipes").read_bytes()


def test_killed_after_each_group_and_started_again(tmp_path: Path) -> None:
    data = tmp_path / "data"
    touch(data, *(b"d%03d/f%d" % (at // 9, at) for at in range(4000)))
    whole = plan(tmp_path / "whole", data, size=1)
    checkpoint, found = None, []
    while checkpoint is None or not checkpoint["done"]:
        planner = Planner(tmp_path / "step", data, size=1, checkpoint=checkpoint)
        for _ in range(2):
            said = planner.message()
            if said is None:
                break
            checkpoint = said[0]["to"]
            found += said[1]
        planner.close(kill=True)
    assert found == whole.mini_batches
    assert (tmp_path / "step/recipes").read_bytes() == (tmp_path / "whole/recipes").read_bytes()


def test_what_was_listed_is_not_listed_again(tmp_path: Path) -> None:
    data = tmp_path / "data"
    touch(data, *(b"f%03d" % at for at in range(100)))
    planner = Planner(tmp_path / "step", data, size=1)
    said = planner.message()
    assert said is not None
    planner.close(kill=True)
    for file in data.iterdir():
        file.unlink()
    touch(data, b"f050x", b"g")
    rest = plan(tmp_path / "step", data, size=1, checkpoint=said[0]["to"])
    done = said[0]["to"]["mini_batches"]
    assert [name for (name,) in names(rest)] == [b"f%03d" % at for at in range(done, 100)] + [b"g"]


def test_a_done_checkpoint_ends_at_once_and_a_short_plan_file_is_told(tmp_path: Path) -> None:
    touch(tmp_path, b"data/a")
    whole = plan(tmp_path / "step", tmp_path / "data")
    again = plan(tmp_path / "step", tmp_path / "data", checkpoint=whole.checkpoints[-1])
    assert again.mini_batches == [] and again.error is None
    (tmp_path / "step/recipes").write_bytes(b"")
    error = plan(tmp_path / "step", tmp_path / "data", checkpoint={**whole.checkpoints[-1], "done": False}).error
    assert error is not None and error["category"] == "SystemError" and "damaged" in error["message"]


def test_leaves_when_stdin_closes_though_nobody_reads(tmp_path: Path) -> None:
    touch(tmp_path, *(b"data/" + b"n" * 200 + b"%05d" % at for at in range(6000)))
    planner = Planner(tmp_path / "step", tmp_path / "data", size=1, environment=dict(os.environ))
    assert planner.message() is not None
    # The pipe is full by now or soon; the planner's write waits, and must not keep it alive.
    assert planner.close() == 0


_NAME = st.binary(min_size=1, max_size=3).filter(
    lambda name: b"/" not in name and b"\0" not in name and name not in (b".", b"..")
)


@settings(max_examples=40, deadline=None)
@given(tree=st.sets(st.lists(_NAME, min_size=1, max_size=3).map(tuple), min_size=1, max_size=12), at=st.integers(0, 11))
def test_walk_goes_on_after_any_name(
    tmp_path_factory: pytest.TempPathFactory, tree: set[tuple[bytes, ...]], at: int
) -> None:
    root = os.fsencode(tmp_path_factory.mktemp("tree"))
    # A name cannot be both a file and a folder.
    files = [path for path in tree if not any(other != path and other[: len(path)] == path for other in tree)]
    touch(root, *(b"/".join(path) for path in files))
    expected = [b"/".join(path) for path in sorted(files)]
    assert [name for chunk in walk(root, ignore) for name in chunk] == expected
    after = expected[at % len(expected)]
    assert [name for chunk in walk(root, ignore, after) for name in chunk] == expected[at % len(expected) + 1 :]


@pytest.mark.parametrize(
    ("pattern", "base", "yes", "no"),
    [
        (b"*.csv", b"", [b"a.csv", b".csv"], [b"d/a.csv", b"a.CSV"]),
        (b"d/?.csv", b"d", [b"a.csv"], [b"ab.csv", b"x/a.csv"]),
        (b"./**/*.csv", b"", [b"a.csv", b"x/y/a.csv"], [b"a.txt"]),
        (b"d/**", b"d", [b"a", b"x/a"], []),
        (b"[a-c]x", b"", [b"ax"], [b"dx"]),
        (b"[!a]x", b"", [b"bx"], [b"ax", b"/x"]),
        (b"[[]x", b"", [b"[x"], [b"x"]),
        (b"[]]x", b"", [b"]x"], [b"x"]),
        (b"{a,b}*", b"", [b"{a,b}c"], [b"a"]),
        (b"[x", b"", [b"[x"], [b"x"]),
        (b"a*\n\xff", b"", [b"ab\n\xff"], [b"ab"]),
        (b"?.csv", b"", ["é.csv".encode(), b"\xff.csv"], ["éa.csv".encode()]),
        ("[!a]/[éx]".encode(), b"", ["日/é".encode(), b"b/x"], ["日/a".encode()]),
    ],
)
def test_patterns(pattern: bytes, base: bytes, yes: list[bytes], no: list[bytes]) -> None:
    found = compile_pattern(pattern)
    assert found.base == base
    assert all(found.names_file(name) for name in yes) and not any(found.names_file(name) for name in no)


def stands_for(pattern: tuple[str, ...], name: tuple[str, ...]) -> bool:
    """What patterns mean, by trying all there is to try."""
    if not pattern:
        return not name
    first, *others = pattern
    rest = tuple(others)
    if first == "**":
        return any(stands_for(rest, name[at:]) for at in range(len(name) + 1)) if rest else bool(name)
    return bool(name) and component_stands_for(first, name[0]) and stands_for(rest, name[1:])


def component_stands_for(part: str, name: str) -> bool:
    if not part:
        return not name
    if part[0] == "*":
        return any(component_stands_for(part[1:], name[at:]) for at in range(len(name) + 1))
    return bool(name) and part[0] in (name[0], "?") and component_stands_for(part[1:], name[1:])


@given(
    st.lists(st.one_of(st.just("**"), st.text("ab?*", min_size=1, max_size=5)), min_size=1, max_size=5),
    st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=5),
)
@settings(max_examples=500)
def test_patterns_find_what_trying_everything_finds(parts: list[str], name: list[str]) -> None:
    parts = ["*?"] + [part if part == "**" else part.replace("**", "*") for part in parts]
    found = compile_pattern("/".join(parts).encode())
    assert found.base == b""
    assert found.names_file("/".join(name).encode()) == stands_for(tuple(parts), tuple(name))


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        (b"*a" * 40 + b"*b", b"a" * 250),
        (b"*[ab]?" * 40 + b"*c", b"ab" * 120),
        (b"**/a/" * 40 + b"b", b"a/" * 200 + b"a"),
        (b"**/*a*a*a/" * 20 + b"b", (b"aaaa/" * 100) + b"a"),
    ],
)
def test_many_wildcards_take_no_longer_than_few(pattern: bytes, name: bytes) -> None:
    """A match that went back to try another place took for ever, and the step's planner with it."""
    assert not compile_pattern(pattern).names_file(name)


def test_patterns_look_into_the_folders_they_need(tmp_path: Path) -> None:
    one, deep = compile_pattern(b"x*/*.csv"), compile_pattern(b"x/**/a*/*.csv")
    assert one.leads_into(b"x1") and not one.leads_into(b"y") and not one.leads_into(b"x1/z")
    assert deep.base == b"x" and deep.leads_into(b"any/thing")
