"""Several inputs of one step, some of which lie in a store."""

from __future__ import annotations

from pathlib import Path

import pytest
from storage_job import CONTENTS, StorageJob

SHAPES = """\
def run(table, context):
    first = context.global_row_index_lower_bound
    return [f"{first} {list(table.columns)} {table.iloc[:, 0].tolist()}"] + [""] * (len(table) - 1)
"""


def divide_both(job: StorageJob) -> None:
    """The job's file with the input `more` divided as well."""
    file = job.folder / "job.yml"
    file.write_text(
        file.read_text().replace("input_data: ${{inputs.data}}", "input_data: ['${{inputs.data}}', '${{inputs.more}}']")
    )


@pytest.mark.parametrize("far", ["data", "more", "both"])
def test_lists_of_files(job: StorageJob, tmp_path: Path, far: str) -> None:
    where = {}
    for name in ("data", "more"):
        (tmp_path / name).mkdir()
        for number in range(3):
            (tmp_path / name / f"{name}{number}").write_text(str(number))
        where[name] = str(tmp_path / name)
        if far in (name, "both"):
            job.server.upload(tmp_path / name, f"{job.prefix}/{name}")
            where[name] = f"{job.url}/{name}"
    kind = "{{type: uri_folder, path: '{}'}}"
    job.write(CONTENTS, kind.format(where["data"]), size=2, inputs=f"more: {kind.format(where['more'])}")
    divide_both(job)
    assert job.run_well() == b"data0=0\ndata1=1\ndata2=2\nmore0=0\nmore1=1\nmore2=2\n"


def test_tables(job: StorageJob, tmp_path: Path) -> None:
    job.put("far/x.csv", "a,b\n1,2\n3,4\n5,6\n")
    (tmp_path / "y.csv").write_text("c\n7\n8\n")
    kind = "{{type: mltable, path: '{}'}}"
    inputs = f"more: {kind.format(tmp_path / 'y.csv')}"
    arguments = "--exact_row_index True"
    job.write(SHAPES, kind.format(f"{job.url}/far"), size=8, inputs=inputs, arguments=arguments)
    divide_both(job)
    rows = job.run_well().decode().splitlines()
    assert [row for row in rows if row] == ["0 ['a', 'b'] [1, 3]", "2 ['a', 'b'] [5]", "3 ['c'] [7, 8]"]
