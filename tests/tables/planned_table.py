"""A table planned and read within this process: the planner's real code, its messages in a file, the worker's
loaders."""

from __future__ import annotations

import json
import os
import shutil
import struct
from pathlib import Path
from typing import Any, NamedTuple

import pandas
from windrow_master.planning.__main__ import plan
from windrow_master.planning.emitter import Output
from windrow_master.planning.request import parse_request
from windrow_worker.loading import make_loader

HEAD = struct.Struct("<II")
RECORD = struct.Struct("<QIQI")


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


def read_table(folder: Path, mini_batch_size: int | None = None) -> Table:
    """Plan the input in `folder` and read all its mini-batches. Raises PlanningError, and what loading raises."""
    step = folder.with_name(folder.name + "-step")
    shutil.rmtree(step, ignore_errors=True)
    step.mkdir()
    request = {
        "step_folder": str(step),
        "input": {"type": "mltable", "path": str(folder), "mode": "ro_mount"},
        "mini_batch_size": mini_batch_size,
        "partition_keys": [],
        "checkpoint": None,
        "datastores": {},
        "roots": None,
        "rows_folder": None,
        "rank_mini_batch_count": 0,
        "file_format": None,
        "mini_batch_rows": None,
        "exact_row_index": False,
    }
    said = step / "said"
    fd = os.open(said, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        plan(parse_request(json.dumps(request).encode()), Output(fd))
    finally:
        os.close(fd)
    reader, records = _messages(said.read_bytes())
    recipes = (step / "recipes").read_bytes()
    loader = make_loader(reader)
    loaded = [loader.load(recipes[offset : offset + length]) for _, _, offset, length in records]
    for (_, items, _, _), one in zip(records, loaded, strict=True):
        assert one.item_count == len(one.value) and items in (0, one.item_count)
        assert list(one.value.index) == list(range(len(one.value)))
        assert one.is_void == (not one.item_count)
    misfits = [tuple(misfit) for one in loaded for misfit in one.misfits]
    return Table([one.value for one in loaded], [record[1] for record in records], misfits)


def _messages(said: bytes) -> tuple[dict[str, Any], list[tuple[int, int, int, int]]]:
    reader: dict[str, Any] = {}
    records: list[tuple[int, int, int, int]] = []
    at = 0
    while at < len(said):
        text, more = HEAD.unpack_from(said, at)
        at += HEAD.size
        reader = json.loads(said[at : at + text]).get("reader", reader)
        records += RECORD.iter_unpack(said[at + text : at + text + more])
        at += text + more
    return reader, records
