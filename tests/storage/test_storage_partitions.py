"""Partition keys over data in a store give what they give over a folder; and groups of files as private copies."""

from __future__ import annotations

from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from s3_server import BUCKET, Exchange, Proxy
from storage_job import StorageJob
from test_storage_jobs import LOCAL, compare

FILES = """\
import os

def run(mini_batch, context):
    key = context.partition_key_value
    return [f"{sorted(key.items())} {len(mini_batch)} {[open(path).read() for path in mini_batch]}"]
"""

ROWS = """\
def run(table, context):
    key = context.partition_key_value
    return table.assign(key=str(sorted(key.items())), rows=len(table))
"""

PATHS = "/{store}/{brand}-{day:yyyy-MM-dd}"


def write_mltable(folder: Path, read: str, *, paths: str = PATHS) -> None:
    """The MLTable file of a folder; `read`: its step that reads, "" for a list of files."""
    steps = f"  - extract_columns_from_partition_format: '{paths}'\n" if paths else ""
    step = f"  - {read}: {{}}\n" if read else ""
    (folder / "MLTable").write_text(f"paths: [{{pattern: '*/**'}}]\ntransformations:\n{step}{steps}")


def stores(folder: Path) -> list[tuple[Path, int]]:
    """Paths of files in the folders of stores, and a number for each; names that need care in an address."""
    made = []
    for store in ("st 1", "é%20", "z"):
        (folder / store).mkdir(parents=True)
        for brand in ("a", "b-c"):
            for day in ("2020-01-02", "2021-02-03"):
                made.append((folder / store / f"{brand}-{day}", len(made)))
    return made


def make_table(folder: Path, kind: str) -> None:
    for path, number in stores(folder):
        values = [number * 100 + at for at in range(40)]
        if kind == "read_parquet":
            table = pyarrow.table({"number": values, "half": [None if at % 5 else at / 2 for at in values]})
            pyarrow.parquet.write_table(table, path, row_group_size=7)
        elif kind == "read_json_lines":
            path.write_text("".join(f'{{"number": {at}, "text": "t{at % 3}"}}\n' for at in values))
        else:
            path.write_text("number,text\n" + "".join(f'{at},"t{at % 3}"\n' for at in values))


@pytest.mark.parametrize("mode", ["ro_mount", "download"])
def test_groups_of_files(job: StorageJob, tmp_path: Path, mode: str) -> None:
    """Their keys stand in the addresses; nothing is read to find them."""
    folder = tmp_path / "data"
    for path, number in stores(folder):
        path.write_text(str(number))
    write_mltable(folder, "")
    job.server.upload(folder, f"{job.prefix}/data")
    settings = "partition_keys: [day, store]"
    job.write(FILES, f"{{type: mltable, path: '{folder}', mode: direct}}", settings=settings)
    want = job.run_well()
    assert len(want.splitlines()) == 6 and b"'store', 'st 1'" in want
    for place in (folder, f"{job.url}/data"):
        job.rows.unlink()
        job.write(FILES, f"{{type: mltable, path: '{place}', mode: {mode}}}", settings=settings)
        assert job.run_well() == want


@pytest.mark.parametrize("place", ["local", "remote"])
def test_groups_of_files_as_private_copies(job: StorageJob, tmp_path: Path, place: str) -> None:
    """Scripts do with them what they like; they go with the mini-batch."""
    folder = tmp_path / "data"
    for path, _ in stores(folder):
        path.write_text("1")
    write_mltable(folder, "")
    job.server.upload(folder, f"{job.prefix}/data")
    script = (
        "import os\nseen = []\ndef run(m):\n    assert not [path for path in seen if os.path.exists(path)], seen\n"
        "    for path in m:\n        with open(path, 'a') as file:\n            file.write('2')\n"
        "    found = [open(path).read() for path in m]\n    for path in m:\n        os.remove(path)\n"
        "    seen.extend(m)\n    return ['+'.join(found)]\n"
    )
    path = folder if place == "local" else f"{job.url}/data"
    settings = "partition_keys: [store]\n    max_concurrency_per_instance: 1"
    job.write(script, f"{{type: mltable, path: '{path}', mode: download}}", settings=settings)
    assert job.run_well() == b"12+12+12+12\n" * 3
    assert {path.read_text() for path in folder.rglob("*-20*")} == {"1"}
    assert {job.server.get(key) for key in job.server.keys(f"{job.prefix}/data/") if "-20" in key} == {b"1"}
    assert not list((job.state / "agent" / "steps").glob("*/fetched/*"))


@pytest.mark.parametrize("read", ["read_delimited", "read_json_lines", "read_parquet"])
def test_groups_of_tables_by_their_paths(job: StorageJob, proxy: Proxy, tmp_path: Path, read: str) -> None:
    folder = tmp_path / "data"
    make_table(folder, read)
    write_mltable(folder, read)
    job.server.upload(folder, f"{job.prefix}/data")
    job.endpoint = proxy.url
    want = compare(job, ROWS, "mltable", folder, size=1, settings="partition_keys: [day, brand]")
    assert want.count(b"\n") == 480 and want.count(b"2020, 1, 2") == 240
    # Parts of files only, and of the MLTable file all.
    assert [key for key in proxy.whole_reads if not key.endswith("MLTable")] == []


@pytest.mark.parametrize("read", ["read_delimited", "read_parquet"])
def test_groups_of_rows_by_columns_of_the_data(job: StorageJob, tmp_path: Path, read: str) -> None:
    """The planner reads the data, and sorts it; what it fetched for that does not stay."""
    folder = tmp_path / "data"
    make_table(folder, read)
    write_mltable(folder, read)
    job.server.upload(folder, f"{job.prefix}/data")
    key = "text" if read == "read_delimited" else "half"
    want = compare(job, ROWS, "mltable", folder, size=1, settings=f"partition_keys: [{key}, store]")
    assert want.count(b"\n") == 480
    assert not list(job.state.rglob("windrow-*"))


def test_rows_are_counted_and_sampled_before_they_are_sorted(job: StorageJob, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    make_table(folder, "read_delimited")
    (folder / "MLTable").write_text(
        "paths: [{pattern: '*/**'}]\ntransformations:\n  - read_delimited: {}\n  - filter: col('number') > 100\n"
        "  - skip: 13\n  - take_random_sample: {probability: 0.5, seed: 3}\n"
    )
    job.server.upload(folder, f"{job.prefix}/data")
    want = compare(job, ROWS, "mltable", folder, size=1, settings="partition_keys: [text]")
    assert 0 < want.count(b"\n") < 400


def test_data_that_changes_while_it_is_sorted_ends_the_job(job: StorageJob, proxy: Proxy, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    make_table(folder, "read_delimited")
    job.server.upload(folder, f"{job.prefix}/data")
    (folder / "MLTable").write_text(
        f"paths: [{{pattern: '{job.url}/data/*/**'}}]\ntransformations: [read_delimited: {{}}]\n"
    )
    key = f"{job.prefix}/data/z/b-c-2021-02-03"
    looks = []

    def fault(exchange: Exchange) -> None:
        # The head is looked at while columns are pinned; rows come later.
        if exchange.key == key and exchange.command == "GET":
            looks.append(exchange.path)
            if len(looks) == 2:
                job.server.put(key, "number,text\n1,changed\n")

    proxy.fault = fault
    job.endpoint = proxy.url
    job.write(ROWS, LOCAL.format(type="mltable", path=folder), settings="partition_keys: [text]")
    code, text = job.run()
    assert code == 1 and "changed since it was listed" in text and f"s3://{BUCKET}/{key}" in text, text
