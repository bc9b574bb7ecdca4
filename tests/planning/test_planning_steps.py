"""Steps of an MLTable file in a real planner process: resumed from every checkpoint, they come out the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from planner_process import Plan, plan
from windrow_worker.loading import make_loader


def mltable(folder: Path, *steps: Any) -> Path:
    """A folder whose files below `data` are read in order, by steps."""
    (folder / "data").mkdir(parents=True, exist_ok=True)
    table = {"paths": [{"pattern": "data/**/*"}], "transformations": list(steps)}
    (folder / "MLTable").write_text(json.dumps(table))
    return folder


def check_resumes(tmp_path: Path, folder: Path, size: int) -> Plan:
    """Plan from every checkpoint: always the same mini-batches and recipes. Returns the whole plan."""
    whole = plan(tmp_path / "whole", folder, "mltable", size)
    assert whole.error is None, whole.error
    assert len(whole.checkpoints) > 1
    # A slow machine makes more of them: some are enough then.
    for number, checkpoint in list(enumerate(whole.checkpoints[:-1]))[:: 1 + len(whole.checkpoints) // 8]:
        step = tmp_path / f"step{number}"
        step.mkdir()
        for file in ("recipes", "listing"):
            stored = (tmp_path / "whole" / file).read_bytes()[: checkpoint[f"{file}_bytes"]]
            (step / file).write_bytes(stored + b"torn")
        rest = plan(step, folder, "mltable", size, checkpoint)
        assert rest.mini_batches == whole.mini_batches[checkpoint["mini_batches"] :]
        assert rest.recipes == whole.recipes[checkpoint["mini_batches"] :]
    return whole


@pytest.mark.parametrize(
    "steps",
    [
        [{"take": 900}],
        [{"skip": 450}],
        [{"filter": "b == 1 or a < 100"}, {"skip": 20}, {"take": 250}],
        [{"take_random_sample": {"probability": 0.5, "seed": 1}}, {"take": 300}],
        [{"select_partitions": [0, 2, 3, 7]}],
        [{"select_partitions": [0, 2, 3, 7]}, {"skip": 10}, {"filter": "a > 5"}],
    ],
)
def test_tables_resume_from_every_checkpoint(tmp_path: Path, steps: list[Any]) -> None:
    folder = mltable(tmp_path / "t", {"read_delimited": {"partition_size": 1000}}, *steps)
    for at in range(4):
        lines = "".join(f"{row},{row % 2}\n" for row in range(at * 200))
        (folder / f"data/f{at}.csv").write_text(f"a,b\n{lines}")
    whole = check_resumes(tmp_path, folder, 30)
    loader = make_loader(whole.reader)
    loaded = [loader.load(recipe) for recipe in whole.recipes]
    assert all(record.item_count in (0, one.item_count) for record, one in zip(whole.mini_batches, loaded, strict=True))
    if any("take" in step for step in steps):
        first = 0
        for record in whole.mini_batches:
            assert record.item_first == first and record.item_count
            first += record.item_count


def test_row_groups_are_counted_from_footers(tmp_path: Path) -> None:
    folder = mltable(tmp_path / "t", "read_parquet", {"skip": 25}, {"take": 200})
    for at in range(3):
        table = pyarrow.table({"a": range(100 * at, 100 * at + 100)})
        pyarrow.parquet.write_table(table, folder / f"data/f{at}.parquet", row_group_size=3)
    whole = check_resumes(tmp_path, folder, 1)
    assert [one.item_count for one in whole.mini_batches][:3] == [2, 3, 3]
    loader = make_loader(whole.reader)
    assert [value for recipe in whole.recipes for value in loader.load(recipe).value.a] == list(range(25, 225))


@pytest.mark.parametrize(
    ("steps", "kept"),
    [
        ([{"skip": 20}, {"take": 150}], range(20, 170)),
        ([{"filter": "not Path.startswith('/nowhere')"}, {"skip": 5}], range(5, 190)),
        ([{"take_random_sample": {"probability": 0.5, "seed": 4}}, {"take": 60}], None),
        ([{"keep_columns": "Path"}, {"select_partitions": 0}], range(190)),
    ],
)
def test_lists_of_files_resume_from_every_checkpoint(tmp_path: Path, steps: list[Any], kept: range | None) -> None:
    folder = mltable(tmp_path / "t", *steps)
    names = [f"data/{at // 50}/{at:03}" for at in range(190)]
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    whole = check_resumes(tmp_path, folder, 1)
    found = [recipe.decode() for recipe in whole.recipes]
    assert found == sorted(found)
    if kept is None:
        assert len(found) == 60
    else:
        assert found == [names[at] for at in kept] or [Path(name).name for name in found] == [f"{at:03}" for at in kept]


def test_lists_of_files_that_end_up_empty(tmp_path: Path) -> None:
    folder = mltable(tmp_path / "t", {"filter": "Path == 'x'"})
    (folder / "data/a").write_text("")
    found = plan(tmp_path / "step", folder, "mltable", 1)
    assert found.error is not None and "leave no files" in found.error["message"]
