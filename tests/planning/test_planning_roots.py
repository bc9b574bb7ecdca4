"""On a served master nothing is read outside the datastores, whatever links and MLTable files say."""

from __future__ import annotations

from pathlib import Path

import pytest
from planner_process import plan


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
