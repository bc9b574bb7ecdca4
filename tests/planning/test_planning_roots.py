"""On a served master nothing is read outside the datastores, whatever links and MLTable files say."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Iterator, Sized
from pathlib import Path

import pytest
from planner_process import plan

DEADLINE_S = 120.0


def fill(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("a,b\n1,2\n")
    return folder


def table(folder: Path, paths: str) -> None:
    (folder / "MLTable").write_text(f"paths: [{paths}]\ntransformations: [read_delimited]\n")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A datastore, with a folder beside it that is nobody's business."""
    fill(tmp_path, "secret/file.csv", "store2/file.csv")
    return fill(tmp_path / "store", "data/a.csv", "data/sub/b.csv", "other/c.csv")


def test_what_lies_inside_is_planned_by_way_of_links_too(store: Path, tmp_path: Path) -> None:
    (store / "data" / "sub" / "file.csv").symlink_to("../../other/c.csv")
    (store / "data" / "z").symlink_to(store / "other")
    (tmp_path / "alias").symlink_to(store)
    found = plan(tmp_path / "step", tmp_path / "alias" / "data", size=10, roots=[str(store)])
    assert found.error is None
    assert found.recipes == [b"a.csv\0sub/b.csv\0sub/file.csv\0z/c.csv"]
    # The same without limits.
    assert plan(tmp_path / "free", store / "data", size=10).recipes == found.recipes


@pytest.mark.parametrize("kind", ["uri_folder", "mltable"])
@pytest.mark.parametrize(
    ("link", "target"),
    [("data/link.csv", "secret/file.csv"), ("data/sub/link.csv", "store2/file.csv"), ("data/sub/link", "secret")],
)
def test_a_link_that_leads_out_is_refused(store: Path, tmp_path: Path, kind: str, link: str, target: str) -> None:
    (store / link).symlink_to(tmp_path / target)
    error = plan(tmp_path / "step", store / "data", kind, roots=[str(store), str(tmp_path / "no")]).error
    assert error is not None
    assert error["category"] == "UserError"
    assert f"{store / link} of the input leads to {tmp_path / target}, which is outside" in error["message"]
    assert f"({store}, {tmp_path / 'no'})" in error["message"]
    assert plan(tmp_path / "free", store / "data", kind).error is None


@pytest.mark.parametrize(
    "paths",
    [
        "{file: ../../secret/file.csv}",
        "{folder: ../../secret}",
        "{pattern: ../../secret/*.csv}",
        "{file: ./a.csv}, {file: /etc/passwd}",
        "{pattern: '/etc/*'}",
        "{pattern: ./**/*.csv}, {pattern: ../../store2/**}",
    ],
)
def test_an_mltable_that_names_places_outside_is_refused(store: Path, tmp_path: Path, paths: str) -> None:
    table(store / "data", paths)
    error = plan(tmp_path / "step", store / "data", "mltable", roots=[str(store)]).error
    assert error is not None and "is outside the datastores" in error["message"]


def test_a_pattern_is_not_disturbed_by_links_that_it_does_not_name(store: Path, tmp_path: Path) -> None:
    table(store / "data", "{pattern: ./*.csv}")
    (store / "data" / "link.txt").symlink_to(tmp_path / "secret" / "file.csv")
    (store / "data" / "folder").symlink_to(tmp_path / "secret")
    found = plan(tmp_path / "step", store / "data", "mltable", roots=[str(store)])
    assert found.error is None and len(found.mini_batches) == 1
    (store / "data" / "link.csv").symlink_to(tmp_path / "secret" / "file.csv")
    error = plan(tmp_path / "again", store / "data", "mltable", roots=[str(store)]).error
    assert error is not None and "link.csv" in error["message"]


@pytest.mark.parametrize("path", ["secret", "secret/file.csv", "store/../secret", "store2/file.csv", "store/MLTable"])
def test_nothing_of_an_input_outside_is_told(store: Path, tmp_path: Path, path: str) -> None:
    (tmp_path / "secret" / "MLTable").write_text("top secret: [")
    (store / "MLTable").symlink_to(tmp_path / "secret" / "MLTable")
    error = plan(tmp_path / "step", tmp_path / path, "mltable", roots=[str(store)]).error
    assert error is not None and "outside the datastores" in error["message"]
    assert "top" not in error["message"]


@contextlib.contextmanager
def swapping(place: Path, target: Path) -> Iterator[None]:
    """While it lasts, a file or folder and a link to another one take turns at a place, as fast as they can."""
    aside, link = place.with_name("aside"), place.with_name("link")
    aside_out = place.parent.parent / "aside"
    aside.unlink(missing_ok=True)
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            link.symlink_to(target)
            place.rename(aside_out)
            link.rename(place)
            place.unlink()
            aside_out.rename(place)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def tries(seen: Sized) -> Iterator[int]:
    """60 numbers, and more until something was seen: who meets whom is up to the scheduler."""
    end = time.monotonic() + DEADLINE_S
    for number in itertools.count():
        if number >= 60 and (seen or time.monotonic() > end):
            return
        yield number


def test_a_folder_that_is_swapped_for_a_link_all_the_time_shows_nothing_of_what_it_leads_to(
    store: Path, tmp_path: Path
) -> None:
    fill(tmp_path, "secret/top-secret.csv")
    planned: list[int] = []
    with swapping(store / "data" / "sub", tmp_path / "secret"):
        for number in tries(planned):
            found = plan(tmp_path / f"step-{number}", store / "data", size=10, roots=[str(store)])
            assert all(b"secret" not in recipe for recipe in found.recipes)
            planned += [number] if found.error is None else []
    assert planned, "it was a folder at some of the moments"


def test_a_file_that_is_swapped_for_a_link_all_the_time_is_not_read_where_it_leads(store: Path, tmp_path: Path) -> None:
    table(store / "data", "{file: ./sub/b.csv}")
    (tmp_path / "secret" / "file.csv").write_text("topsecret,x\n1,2\n")
    planned: list[int] = []
    with swapping(store / "data" / "sub" / "b.csv", tmp_path / "secret" / "file.csv"):
        for number in tries(planned):
            found = plan(tmp_path / f"step-{number}", store / "data", "mltable", roots=[str(store)])
            assert b"topsecret" not in b"".join(found.recipes)
            assert "topsecret" not in str(found.reader)
            planned += [number] if found.error is None else []
    assert planned, "it was a file at some of the moments"
