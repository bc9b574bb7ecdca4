"""File lists divided by partition keys: which files belong together, in which order, and planners killed between."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from planner_process import Plan, Planner, names, plan
from windrow_master.planning import describe_items
from windrow_master.planning.partitions.grouping import Grouping
from windrow_master.planning.recipes.description import describe_partition
from windrow_worker.loading import make_loader

MUSIC = [
    "user1/winter/genre1/a",
    "user1/spring/genre1/b",
    "user1/fall/genre2/c",
    "user2/spring/genre1/d",
    "user2/winter/genre2/e",
    "user3/winter/genre1/f",
]
FORMAT = "/{user}/{season}/{genre}/{track}"


def listing(folder: Path, files: list[str], text: str = FORMAT) -> Path:
    """A folder with these files, and an MLTable file that lists them."""
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    step = f"  - extract_columns_from_partition_format: {json.dumps(text)}\n"
    (folder / "MLTable").write_text(f"paths:\n  - pattern: ./*/**\ntransformations:\n{step}")
    return folder


def groups(found: Plan) -> list[tuple[dict[str, Any] | None, list[str]]]:
    """What a script is given: the partition, and the files below the input."""
    loader = make_loader(found.reader)
    loaded = [loader.load(recipe) for recipe in found.recipes]
    root = found.reader["root"] + "/"
    return [(one.partition_key_value, [name.removeprefix(root) for name in one.value]) for one in loaded]


def test_six_files_are_five_mini_batches(tmp_path: Path) -> None:
    """The published example (docs/reference/azure-ml/parallel-job.md#division-by-partition)."""
    data = listing(tmp_path / "data", MUSIC)
    found = plan(tmp_path / "step", data, "mltable", partition_keys=["user", "genre"])
    assert found.error is None and not found.warnings
    assert groups(found) == [
        ({"user": "user1", "genre": "genre1"}, ["user1/spring/genre1/b", "user1/winter/genre1/a"]),
        ({"user": "user1", "genre": "genre2"}, ["user1/fall/genre2/c"]),
        ({"user": "user2", "genre": "genre1"}, ["user2/spring/genre1/d"]),
        ({"user": "user2", "genre": "genre2"}, ["user2/winter/genre2/e"]),
        ({"user": "user3", "genre": "genre1"}, ["user3/winter/genre1/f"]),
    ]
    assert [(one.item_first, one.item_count, one.rank) for one in found.mini_batches] == [
        (0, 2, 2), (2, 1, 1), (3, 1, 1), (4, 1, 1), (5, 1, 1),
    ]  # fmt: skip
    assert describe_items(found.reader, found.recipes[1]) == [f"{data}/user1/fall/genre2/c"]
    assert describe_partition(found.reader, found.recipes[1]) == '{"user": "user1", "genre": "genre2"}'


def test_keys_keep_their_order_dates_are_dates_and_what_does_not_match_is_a_group_of_its_own(tmp_path: Path) -> None:
    files = ["b/2020-01-02.x", "a/2020-01-02.x", "a/2019-12-31.x", "a/2020-13-01.x", "c/other.y", "d/other.y"]
    data = listing(tmp_path / "data", files, "/{name}/{day:yyyy-MM-dd}.x")
    found = plan(tmp_path / "step", data, "mltable", size=1, partition_keys=["day", "name"])
    told = [(list((key or {}).items()), files) for key, files in groups(found)]
    assert [([(name, str(value)) for name, value in key], files) for key, files in told] == [
        ([("day", "2019-12-31 00:00:00"), ("name", "a")], ["a/2019-12-31.x"]),
        ([("day", "2020-01-02 00:00:00"), ("name", "a")], ["a/2020-01-02.x"]),
        ([("day", "2020-01-02 00:00:00"), ("name", "b")], ["b/2020-01-02.x"]),
        ([("day", "None"), ("name", "a")], ["a/2020-13-01.x"]),
        ([("day", "None"), ("name", "None")], ["c/other.y", "d/other.y"]),
    ]
    (warning,) = found.warnings
    assert "does not match 2 of the 6 files" in warning and "c/other.y" in warning
    assert describe_partition(found.reader, found.recipes[1]) == '{"day": "2020-01-02 00:00:00", "name": "a"}'


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (["user", "colour"], "names colour, which the input"),
        (["Season"], "user, season, genre, track"),
    ],
)
def test_unknown_keys_are_told_with_the_known_ones(tmp_path: Path, keys: list[str], words: str) -> None:
    data = listing(tmp_path / "data", MUSIC)
    error = plan(tmp_path / "step", data, "mltable", partition_keys=keys).error
    assert error is not None and error["category"] == "UserError" and words in error["message"]


def test_a_folder_has_no_keys(tmp_path: Path) -> None:
    data = listing(tmp_path / "data", MUSIC)
    error = plan(tmp_path / "step", data, "uri_folder", partition_keys=["user"]).error
    assert error is not None and "is a uri_folder, which has none" in error["message"]


def test_a_planner_killed_anywhere_goes_on_with_the_same_groups_from_its_listing(tmp_path: Path) -> None:
    files = [f"u{at % 97:02}/s{at % 5}/g{at % 7}/{at}" for at in range(700)]
    data = listing(tmp_path / "data", files)
    keys = {"partition_keys": ["user", "genre"]}
    whole = plan(tmp_path / "whole", data, "mltable", **keys)
    assert len(whole.recipes) == len({(name.split("/")[0], name.split("/")[2]) for name in files})
    assert sorted(name for recipe in names(whole) for name in recipe) == sorted(os.fsencode(name) for name in files)
    step = tmp_path / "step"
    planner = Planner(step, data, "mltable", **keys)
    said = planner.message()
    assert said is not None and not said[0]["to"]["done"]
    planner.close(kill=True)
    # What comes and goes meanwhile changes nothing; nor does another MLTable file.
    listing(data, ["u00/s0/g0/new"], "/{genre}/{user}/{season}/{track}")
    (data / files[650]).unlink()
    rest = plan(step, data, "mltable", checkpoint=said[0]["to"], **keys)
    assert said[1] + rest.mini_batches == whole.mini_batches
    assert rest.recipes == whole.recipes[len(said[1]) :]


VALUES = st.one_of(
    st.lists(st.one_of(st.none(), st.text(st.characters(exclude_characters="\0"), max_size=3))),
    st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))),
    st.lists(st.one_of(st.none(), st.floats(allow_nan=False))),
    st.lists(st.one_of(st.none(), st.booleans())),
)


@given(VALUES)
def test_groups_come_in_the_order_of_their_values_null_last(values: list[Any]) -> None:
    grouping = Grouping()
    for at, value in enumerate(values):
        grouping.add([value], at * 10, 3)
    made = [
        ([at for begin, end in group.runs for at in range(begin // 10, end // 10)], group.files, group.size)
        for group in grouping.in_order(len(values) * 10)
    ]
    distinct = sorted(set(values) - {None}) + [None] * (None in values)
    expected = [[at for at, value in enumerate(values) if value == wanted] for wanted in distinct]
    assert made == [(one, len(one), 3 * len(one)) for one in expected]
