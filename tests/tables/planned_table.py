"""A table planned and read within this process: the planner's real code, its messages in a file, the worker's
loaders."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pandas
from planner_process import MiniBatch, read_message, request_line
from windrow_master.planning.__main__ import plan
from windrow_master.planning.emitter import Output
from windrow_master.planning.request import parse_request
from windrow_worker.loading import make_loader


class Table(NamedTuple):
    """All mini-batches of a table: their rows, the items that the planner told (0: unknown), and all misfits."""

    frames: list[pandas.DataFrame]
    planned: list[int]
    misfits: list[tuple[str, int, str]]

    @property
    def rows(self) -> list[list[Any]]:
        """All rows in order, None for null."""
        return [
            [None if value is None or value is pandas.NaT or value != value else value for value in row]
            for frame in self.frames
            for row in zip(*(frame[name].tolist() for name in frame.columns), strict=True)
        ]


class Plan(NamedTuple):
    """The reader document of a table, the recipes of its mini-batches, and their items as planned (0: unknown)."""

    reader: dict[str, Any]
    recipes: list[dict[str, Any]]
    items: list[int]


def planned(path: Path, mini_batch_size: int | None = None, kind: str = "mltable", **more: Any) -> Plan:
    """Plan a table; `more` of the request as in `request_line`. Raises PlanningError."""
    reader, mini_batches, recipes = _planned(path, mini_batch_size, kind, **more)
    return Plan(reader, [json.loads(recipe) for recipe in recipes], [one.item_count for one in mini_batches])


def _planned(
    folder: Path, mini_batch_size: int | None, kind: str, **more: Any
) -> tuple[dict[str, Any], list[MiniBatch], list[bytes]]:
    step = folder.with_name(folder.name + "-step")
    shutil.rmtree(step, ignore_errors=True)
    step.mkdir()
    said = step / "said"
    fd = os.open(said, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        plan(parse_request(request_line(step, folder, kind, mini_batch_size, **more)), Output(fd))
    finally:
        os.close(fd)
    reader, mini_batches = _messages(said)
    recipes = (step / "recipes").read_bytes()
    return reader, mini_batches, [recipes[one.recipe_offset :][: one.recipe_length] for one in mini_batches]


def read_table(folder: Path, mini_batch_size: int | None = None) -> Table:
    """Plan the input in `folder` and read all its mini-batches. Raises PlanningError, and what loading raises."""
    reader, mini_batches, recipes = _planned(folder, mini_batch_size, "mltable")
    loader = make_loader(reader)
    loaded = [loader.load(recipe) for recipe in recipes]
    for mini_batch, one in zip(mini_batches, loaded, strict=True):
        assert one.item_count == len(one.value) and mini_batch.item_count in (0, one.item_count)
        assert list(one.value.index) == list(range(len(one.value)))
        assert one.is_void == (not one.item_count)
    misfits = [tuple(misfit) for one in loaded for misfit in one.misfits]
    return Table([one.value for one in loaded], [one.item_count for one in mini_batches], misfits)


def _messages(path: Path) -> tuple[dict[str, Any], list[MiniBatch]]:
    reader: dict[str, Any] = {}
    mini_batches: list[MiniBatch] = []
    with path.open("rb") as said:
        while (found := read_message(said)) is not None:
            reader = found[0].get("reader", reader)
            mini_batches += found[1]
    return reader, mini_batches
