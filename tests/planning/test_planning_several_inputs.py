"""Several inputs of one step: each divided on its own, in their order, by a planner that may be killed anywhere."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from planner_process import MiniBatch, Plan, Planner, names, plan
from windrow_master.planning import describe_items
from windrow_master.planning.recipes.description import describe_partition
from windrow_worker.loading import is_row_index_exact, make_loader

NOWHERE = b"/"
"""Where `inputs` are given, the one path of the helper is not used."""


def divided(*inputs: tuple[Path, str], mode: str = "ro_mount") -> list[dict[str, str]]:
    """Inputs of a request, named a, b, … in their order."""
    return [
        {"name": "abcdefgh"[at], "type": kind, "path": os.fsdecode(path), "mode": mode}
        for at, (path, kind) in enumerate(inputs)
    ]


def files(folder: Path, count: int, suffix: str = "") -> Path:
    """A folder of empty files."""
    for at in range(count):
        place = folder / f"s{at % 3}" / f"{at:04}{suffix}"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    return folder


def table(folder: Path, contents: dict[str, str], *steps: str) -> Path:
    """A folder of files with an MLTable file."""
    for name, text in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    lines = ["paths:", "  - pattern: ./**/*.*", "transformations:", *(f"  - {step}" for step in steps)]
    (folder / "MLTable").write_text("\n".join(lines) + "\n")
    return folder


def numbered(column: str, first: int, rows: int, group: str = "") -> str:
    """CSV text: a column of numbers, and one of groups."""
    lines = [f"{at},{group or 'xyz'[at % 3]}" for at in range(first, first + rows)]
    return "\n".join([f"{column},g", *lines, ""])


def jsonl(path: Path, first: int, rows: int) -> None:
    """A file of JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"n": at}) + "\n" for at in range(first, first + rows)))


class Setting:
    """A step with several inputs, and how it is planned."""

    def __init__(self, inputs: list[dict[str, str]], size: int | None = None, **more: Any) -> None:
        self.size = size
        self.more: dict[str, Any] = {"inputs": inputs, **more}

    def plan(self, step: Path, checkpoint: Any = None) -> Plan:
        """To the end; sorted rows always in the same place, which recipes name."""
        rows = str(step.parent / "rows")
        return plan(step, NOWHERE, size=self.size, checkpoint=checkpoint, rows_folder=rows, **self.more)

    def start(self, step: Path, checkpoint: Any) -> Planner:
        """A planner at work."""
        rows = str(step.parent / "rows")
        return Planner(step, NOWHERE, size=self.size, checkpoint=checkpoint, rows_folder=rows, **self.more)


def file_lists(folder: Path) -> Setting:
    """Two folders, a file, and an MLTable file's list of which a step takes some."""
    some = table(folder / "d", {f"{at:03}.x": "" for at in range(150)}, "take: 120")
    lone = folder / "lone"
    lone.touch()
    parts = [(files(folder / "a", 61), "uri_folder"), (files(folder / "b", 100), "uri_folder")]
    return Setting(divided(*parts, (lone, "uri_file"), (some, "mltable")), size=2)


def tables(folder: Path) -> Setting:
    """CSV, with its rows counted; Parquet; and plain files."""
    parquet = folder / "b" / "rows.parquet"
    parquet.parent.mkdir()
    pyarrow.parquet.write_table(pyarrow.table({"k": list(range(90))}), parquet, row_group_size=1)
    plain = folder / "c"
    plain.mkdir()
    (plain / "x.csv").write_text(numbered("z", 0, 70))
    some = table(folder / "a", {"x.csv": numbered("n", 0, 90), "y.csv": numbered("n", 90, 40)}, "read_delimited")
    return Setting(divided((some, "mltable"), (parquet.parent, "mltable"), (plain, "mltable")), 5, exact_row_index=True)


def records(folder: Path) -> Setting:
    """JSON lines."""
    jsonl(folder / "a" / "x", 0, 80)
    jsonl(folder / "a" / "y", 80, 21)
    jsonl(folder / "b.jsonl", 101, 99)
    inputs = divided((folder / "a", "uri_folder"), (folder / "b.jsonl", "uri_file"))
    return Setting(inputs, file_format="jsonl", mini_batch_rows=2)


def groups_of_files(folder: Path) -> Setting:
    """Keys in the paths of files; each input has them in another place."""
    for name, text in (("a", "/{user}/{n}.x"), ("b", "/{n}/{user}.x")):
        contents = {f"u{at % 9}/{at:02}.x": "" for at in range(80)}
        table(folder / name, contents, f"extract_columns_from_partition_format: {json.dumps(text)}")
    return Setting(divided((folder / "a", "mltable"), (folder / "b", "mltable")), partition_keys=["user"])


def groups_of_rows(folder: Path) -> Setting:
    """The key is in the paths of one input, and in the data of the others: those are sorted."""
    step = 'extract_columns_from_partition_format: "/{n}/rows.csv"'
    first = table(folder / "a", {f"{at}/rows.csv": numbered("v", 0, 3).replace("g\n", "h\n") for at in range(30)}, step)
    (first / "MLTable").write_text((first / "MLTable").read_text() + "  - read_delimited\n")
    parts = [table(folder / name, {"x.csv": numbered("n", 0, 40)}, "read_delimited") for name in "bc"]
    return Setting(divided((first, "mltable"), *((part, "mltable") for part in parts)), partition_keys=["n"])


ALL: Sequence[Callable[[Path], Setting]] = (file_lists, tables, records, groups_of_files, groups_of_rows)


def items_of(found: Plan) -> list[int]:
    """The items of all mini-batches as they are loaded."""
    loader = make_loader(found.reader)
    return [loader.load(recipe).item_count for recipe in found.recipes]


@pytest.mark.parametrize("make", ALL)
def test_indexes_and_items_run_on_and_every_mini_batch_can_be_loaded(
    tmp_path: Path, make: Callable[[Path], Setting]
) -> None:
    found = make(tmp_path).plan(tmp_path / "step")
    assert found.error is None, found.error
    loaded, first = items_of(found), 0
    # Text tables that are divided by keys in their paths are not counted.
    assert is_row_index_exact(found.reader) == (make is not groups_of_rows)
    for one, items in zip(found.mini_batches, loaded, strict=True):
        if is_row_index_exact(found.reader):
            assert (one.item_first, one.item_count) == (first, items)
        first += items


@pytest.mark.parametrize("make", ALL)
def test_every_checkpoint_leads_to_the_same_mini_batches(tmp_path: Path, make: Callable[[Path], Setting]) -> None:
    setting = make(tmp_path)
    whole = setting.plan(tmp_path / "whole")
    assert len(whole.checkpoints) > 2
    for number, checkpoint in enumerate(whole.checkpoints[:-1]):
        step = tmp_path / f"step{number}"
        step.mkdir()
        for file in ("recipes", "listing"):
            kept = (tmp_path / "whole" / file).read_bytes()[: checkpoint[f"{file}_bytes"]]
            (step / file).write_bytes(kept + b"torn")
        rest = setting.plan(step, checkpoint)
        assert rest.mini_batches == whole.mini_batches[checkpoint["mini_batches"] :]
        assert (step / "recipes").read_bytes() == (tmp_path / "whole" / "recipes").read_bytes()


@pytest.mark.parametrize("make", ALL)
def test_killed_after_each_group_and_started_again(tmp_path: Path, make: Callable[[Path], Setting]) -> None:
    setting = make(tmp_path)
    whole = setting.plan(tmp_path / "whole")
    checkpoint: dict[str, Any] | None = None
    found: list[MiniBatch] = []
    while checkpoint is None or not checkpoint["done"]:
        planner = setting.start(tmp_path / "step", checkpoint)
        said = planner.message()
        assert said is not None
        checkpoint = said[0]["to"]
        found += said[1]
        planner.close(kill=True)
    assert found == whole.mini_batches
    assert (tmp_path / "step/recipes").read_bytes() == (tmp_path / "whole/recipes").read_bytes()


def test_no_mini_batch_of_files_mixes_inputs(tmp_path: Path) -> None:
    found = file_lists(tmp_path).plan(tmp_path / "step")
    assert found.reader == {"kind": "files", "root": ""}
    folders = [{os.fsdecode(name).removeprefix(f"{tmp_path}/")[:1] for name in batch} for batch in names(found)]
    assert folders == [{"a"}] * 31 + [{"b"}] * 50 + [{"l"}] + [{"d"}] * 60
    assert describe_items(found.reader, found.recipes[31])[0] == f"{tmp_path}/b/s0/0000"


def test_tables_are_read_each_in_its_own_way(tmp_path: Path) -> None:
    found = tables(tmp_path).plan(tmp_path / "step")
    loader = make_loader(found.reader)
    columns: dict[str, list[int]] = {}
    for recipe in found.recipes:
        value = loader.load(recipe).value
        columns.setdefault(value.columns[0], []).extend(value.iloc[:, 0].tolist())
    assert columns == {"n": list(range(130)), "k": list(range(90)), "z": list(range(70))}
    assert describe_items(found.reader, found.recipes[-1])[0].startswith(f"{tmp_path}/c/x.csv:bytes ")


def test_the_same_values_in_two_inputs_are_two_mini_batches(tmp_path: Path) -> None:
    found = groups_of_files(tmp_path).plan(tmp_path / "step")
    told = [describe_partition(found.reader, recipe) for recipe in found.recipes]
    users = [f'{{"user": "u{at}"}}' for at in range(9)]
    # The other input has its numbers where this one has users.
    assert told[:9] == users and len(told) == 9 + 80 and told[9] == '{"user": "00"}'
    loaded = [make_loader(found.reader).load(recipe) for recipe in found.recipes]
    assert [one.partition_key_value for one in loaded] == [json.loads(text) for text in told]


def test_rows_are_sorted_input_by_input(tmp_path: Path) -> None:
    found = groups_of_rows(tmp_path).plan(tmp_path / "step")
    loader = make_loader(found.reader)
    loaded = [loader.load(recipe) for recipe in found.recipes]
    assert [one.item_count for one in loaded] == [3] * 30 + [1] * 80
    assert [one.partition_key_value["n"] for one in loaded[30:]] == [*range(40), *range(40)]  # type: ignore[index]
    assert describe_items(found.reader, found.recipes[30]) == ['the group {"n": 0} of input b']
    assert describe_items(found.reader, found.recipes[70]) == ['the group {"n": 0} of input c']
    assert [one.rank for one in found.mini_batches[30:]] == [1] * 80


def test_an_index_is_exact_only_where_it_is_in_all_inputs(tmp_path: Path) -> None:
    setting = tables(tmp_path)
    setting.more["exact_row_index"] = False
    found = setting.plan(tmp_path / "step")
    assert not is_row_index_exact(found.reader) and is_row_index_exact(found.reader["inputs"][1])


@pytest.mark.parametrize(
    ("second", "kind", "words"),
    [
        ("empty", "uri_folder", ["Input b: ", "empty contains no files"]),
        ("gone", "uri_folder", ["Input b: ", "gone does not exist"]),
        ("csv", "mltable", ["of one kind", "a: lists of files", "b: tables"]),
        ("a", "model", ["type of the input b"]),
    ],
)
def test_what_is_wrong_with_an_input_is_told_with_its_name(
    tmp_path: Path, second: str, kind: str, words: list[str]
) -> None:
    files(tmp_path / "a", 3)
    (tmp_path / "empty").mkdir()
    table(tmp_path / "csv", {"x.csv": "a\n1\n"}, "read_delimited")
    inputs = divided((tmp_path / "a", "uri_folder"), (tmp_path / second, kind))
    error = plan(tmp_path / "step", NOWHERE, inputs=inputs).error
    assert error is not None and error["category"] == "UserError"
    assert not [word for word in words if word not in error["message"]], error


@pytest.mark.parametrize(("contents", "words"), [("v\n", "has no records"), ("w\n1\n", "names v, which the input")])
def test_a_table_that_cannot_be_divided_is_told_before_anything_runs_if_its_listing_shows_it(
    tmp_path: Path, contents: str, words: str
) -> None:
    good = table(tmp_path / "a", {"x.csv": "v\n1\n2\n"}, "read_delimited")
    bad = table(tmp_path / "b", {"x.csv": contents}, "read_delimited")
    inputs = divided((good, "mltable"), (bad, "mltable"))
    found = plan(tmp_path / "step", NOWHERE, inputs=inputs, partition_keys=["v"])
    assert found.error is not None and not found.mini_batches
    assert "Input b: " in found.error["message"] and words in found.error["message"]


def test_warnings_say_which_input_they_are_of(tmp_path: Path) -> None:
    files(tmp_path / "a", 1)
    files(tmp_path / "b", 1)
    (tmp_path / "b" / "broken").symlink_to("nowhere")
    inputs = divided((tmp_path / "a", "uri_folder"), (tmp_path / "b", "uri_folder"))
    (warning,) = plan(tmp_path / "step", NOWHERE, inputs=inputs).warnings
    assert warning.startswith(f"Input b: {tmp_path}/b/broken was left out")


@pytest.mark.parametrize("kind", ["uri_folder", "mltable", "by keys"])
def test_copies_are_for_all_inputs_or_none(tmp_path: Path, kind: str) -> None:
    folders = [files(tmp_path / name, 1) for name in "ab"]
    for folder in folders if kind != "uri_folder" else ():
        step = "extract_columns_from_partition_format: '/{s}/{name}'"
        (folder / "MLTable").write_text(f"paths: [{{pattern: '*/*'}}]\ntransformations: [{{{step}}}]\n")
    inputs = divided(*((folder, "uri_folder" if kind == "uri_folder" else "mltable") for folder in folders))
    more: dict[str, Any] = {"inputs": inputs, "partition_keys": ["s"] if kind == "by keys" else []}
    inputs[1]["mode"] = "download"
    error = plan(tmp_path / "step", NOWHERE, **more).error
    assert error is not None and "The mode of b asks for copies, that of a does not" in error["message"]
    inputs[0]["mode"] = "download"
    assert plan(tmp_path / "step", NOWHERE, **more).reader["copy"] is True


def test_what_was_listed_is_not_looked_at_again(tmp_path: Path) -> None:
    setting = groups_of_files(tmp_path)
    whole = setting.plan(tmp_path / "whole")
    planner = setting.start(tmp_path / "step", None)
    said = planner.message()
    assert said is not None
    planner.close(kill=True)
    shutil.rmtree(tmp_path / "b")
    rest = setting.plan(tmp_path / "step", said[0]["to"])
    assert said[1] + rest.mini_batches == whole.mini_batches
