"""Delta tables in a store give what they give in a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from deltalake import DeltaTable, write_deltalake
from s3_server import BUCKET, Proxy
from storage_job import StorageJob
from test_storage_jobs import LOCAL

SCRIPT = """\
def run(table, context):
    return table.drop(columns="Path", errors="ignore").assign(key=str(context.partition_key_value))
"""


def make_table(folder: Path) -> Path:
    """Three versions, with a partition column whose values need care in an address; a checkpoint after the second."""
    for version in range(3):
        rows = {"n": [version * 10 + at for at in range(4)], "store": ["a b/%é", "c", "c", None]}
        write_deltalake(str(folder), pyarrow.table(rows), partition_by=["store"], mode="append")
        if version == 1:
            DeltaTable(str(folder)).create_checkpoint()
    return folder


def compare(job: StorageJob, table: Path, name: str, read: str, settings: str = "") -> list[str]:
    """The rows of the table in the folder and in the store, which must be equal; sorted."""
    found = []
    for place in (str(table), f"{job.url}/{name}"):
        folder = job.folder / "mltable"
        folder.mkdir(exist_ok=True)
        (folder / "MLTable").write_text(f"paths: [{{folder: '{place}'}}]\ntransformations: [{read}]\n")
        job.write(SCRIPT, LOCAL.format(type="mltable", path=folder), settings=settings)
        found.append(job.run_well().decode().splitlines())
        job.rows.unlink()
    assert found[0] == found[1]
    return sorted(found[0])


@pytest.mark.parametrize(
    ("read", "rows"), [("read_delta_lake", 12), ("read_delta_lake: {version_as_of: 1, include_path_column: true}", 8)]
)
def test_versions(job: StorageJob, proxy: Proxy, tmp_path: Path, read: str, rows: int) -> None:
    table = make_table(tmp_path / "table")
    # What stands before the checkpoint is gone.
    (table / "_delta_log" / f"{0:020d}.json").unlink()
    job.server.upload(table, f"{job.prefix}/with blank/é")
    job.endpoint = proxy.url
    found = compare(job, table, "with blank/é", read)
    assert [int(row.split()[0]) for row in sorted(found, key=lambda row: int(row.split()[0]))] == [
        version * 10 + at for version in range(rows // 4) for at in range(4)
    ]
    # Of files with rows only parts are asked for.
    assert not [key for key in proxy.whole_reads if key.endswith(".parquet") and "_delta_log" not in key]


@pytest.mark.parametrize("key", ["store", "n"])
def test_partition_keys(job: StorageJob, tmp_path: Path, key: str) -> None:
    """By a partition column of the table, and by a column of the data."""
    table = make_table(tmp_path / "table")
    job.server.upload(table, f"{job.prefix}/table")
    found = compare(job, table, "table", "read_delta_lake", f"partition_keys: [{key}]")
    assert len(found) == 12 and all(f"{{'{key}': " in row for row in found)


def test_credentials_of_a_profile(job: StorageJob, tmp_path: Path) -> None:
    table = make_table(tmp_path / "table")
    job.server.upload(table, f"{job.prefix}/table")
    job.environment |= {"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None, "AWS_PROFILE": "mine"}
    (job.home / ".aws").mkdir()
    (job.home / ".aws" / "credentials").write_text("[mine]\naws_access_key_id = a\naws_secret_access_key = b\n")
    assert len(compare(job, table, "table", "read_delta_lake")) == 12


def removed(job: StorageJob, _: Path) -> None:
    key = next(key for key in job.server.keys(f"{job.prefix}/table/") if key.endswith(".parquet"))
    job.server.client.delete_object(Bucket=BUCKET, Key=key)


def elsewhere(job: StorageJob, table: Path) -> None:
    log = table / "_delta_log" / f"{0:020d}.json"
    actions: list[dict[str, Any]] = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "add" in action:
            action["add"]["path"] = (table / action["add"]["path"]).as_uri()
    job.put(f"table/_delta_log/{log.name}", "".join(json.dumps(action) + "\n" for action in actions))


@pytest.mark.parametrize(
    ("place", "change", "said"),
    [
        ("{url}/table", removed, "The table may have been vacuumed"),
        ("{url}/table", elsewhere, "has a file elsewhere"),
        ("{url}/nothing", None, "is not a Delta table"),
        ("s3://no-such-bucket-here/t", None, "cannot be opened as a Delta table"),
        ("{url}/a%20b", None, "percent escape"),
    ],
)
def test_what_cannot_be_read_is_told(job: StorageJob, tmp_path: Path, place: str, change: Any, said: str) -> None:
    write_deltalake(str(tmp_path / "table"), pyarrow.table({"n": [1]}))
    job.server.upload(tmp_path / "table", f"{job.prefix}/table")
    if change is not None:
        change(job, tmp_path / "table")
    address = place.format(url=job.url)
    (tmp_path / "MLTable").write_text(f"paths: [{{folder: '{address}'}}]\ntransformations: [read_delta_lake]\n")
    job.write(SCRIPT, LOCAL.format(type="mltable", path=tmp_path))
    code, text = job.run()
    assert code == 1 and said in text and address.partition("%")[0] in text, text
