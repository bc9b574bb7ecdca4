"""A planner that goes on over files that were damaged meanwhile: it says so, or does what it would have done."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from file_damage import flip, harm
from planner_process import Plan, earlier_of, plan

TRIALS = 12


def many_files(folder: Path) -> tuple[Path, dict[str, Any]]:
    for number in range(400):
        (folder / f"d{number % 7}").mkdir(exist_ok=True)
        (folder / f"d{number % 7}/f{number:04}").touch()
    return folder, {"size": 1}


def many_tables(folder: Path) -> tuple[Path, dict[str, Any]]:
    for number in range(60):
        (folder / f"t{number:03}.csv").write_text("a,b\n" + "1,2\n3,4\n" * 20)
    return folder, {"kind": "mltable", "size": 40}


def many_keys_in_paths(folder: Path) -> tuple[Path, dict[str, Any]]:
    for number in range(400):
        (folder / f"k{number % 100}").mkdir(exist_ok=True)
        (folder / f"k{number % 100}/f{number:04}").touch()
    (folder / "MLTable").write_text(
        'paths: [{pattern: "*/f*"}]\ntransformations: [{extract_columns_from_partition_format: "/{k}/{f}"}]\n'
    )
    return folder, {"kind": "mltable", "partition_keys": ["k"]}


def many_groups(folder: Path) -> tuple[Path, dict[str, Any]]:
    (folder / "a.csv").write_text("k,v\n" + "".join(f"g{number % 200:04},{number}\n" for number in range(2000)))
    return folder, {"kind": "mltable", "partition_keys": ["k"]}


def two_tables(folder: Path) -> tuple[Path, dict[str, Any]]:
    inputs = []
    for name in ("one", "two"):
        (folder / name).mkdir()
        many_tables(folder / name)
        inputs.append({"name": name, "type": "mltable", "path": str(folder / name), "mode": "ro_mount"})
    return folder, {"kind": "mltable", "size": 40, "inputs": inputs}


@pytest.mark.parametrize("make", [many_files, many_tables, many_keys_in_paths, many_groups, two_tables])
def test_what_a_planner_that_goes_on_finds_damaged_is_told_or_has_no_effect(
    tmp_path: Path, make: Callable[[Path], tuple[Path, dict[str, Any]]]
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    path, given = make(data)
    whole = plan(tmp_path / "whole", path, **given)
    assert whole.error is None and len(whole.checkpoints) > 2
    told = 0
    for number in range(TRIALS):
        chance = random.Random(number)
        step = tmp_path / f"step{number}"
        shutil.copytree(tmp_path / "whole", step)
        checkpoint = chance.choice(whole.checkpoints[:-1])
        harm(step / chance.choice(["recipes", "listing"]), chance)
        found = plan(step, path, checkpoint=checkpoint, **given)
        told += found.error is not None
        check(found, whole, checkpoint)
    assert told


def check(found: Plan, whole: Plan, checkpoint: dict[str, Any]) -> None:
    if found.error is not None:
        assert found.error["category"] == "SystemError"
        assert "is damaged" in found.error["message"] and "--since" in found.error["message"]
        return
    assert found.mini_batches == whole.mini_batches[checkpoint["mini_batches"] :]
    assert found.recipes == whole.recipes[checkpoint["mini_batches"] :]


@pytest.mark.parametrize("damage", ["index", "recipe", "recipes"])
def test_what_is_taken_over_is_what_the_earlier_job_has_done(tmp_path: Path, damage: str) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for number in range(10):
        (data / f"f{number}").touch()
    first = plan(tmp_path / "first", data, size=2)
    given = earlier_of(tmp_path / "first", first)
    if damage == "recipes":
        (tmp_path / "first" / "recipes").unlink()
    else:
        flip(tmp_path / "first" / ("index" if damage == "index" else "recipes"), -2)
    second = plan(tmp_path / "second", data, size=2, earlier=given)
    if damage == "index":
        assert second.error is not None and "index is damaged" in second.error["message"]
        return
    names = sorted(name for recipe in second.recipes for name in recipe.split(b"\0"))
    assert names == [b"f%d" % number for number in range(10)]
    taken = sum(one.before >= 0 for one in second.mini_batches)
    assert taken == (4 if damage == "recipe" else 0)
    lost = "1 mini-batches" if damage == "recipe" else "5 mini-batches"
    assert any("recipes, of job before, is damaged or gone: " + lost in text for text in second.warnings)
