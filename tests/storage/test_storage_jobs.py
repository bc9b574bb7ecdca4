"""Jobs over data in a real S3 server give what the same jobs over a folder give."""

from __future__ import annotations

from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from s3_server import Proxy
from storage_job import CONTENTS, TABLE, StorageJob

LOCAL = "{{type: {type}, path: {path}}}"


def make_files(folder: Path) -> None:
    for name in ("a/z.csv", "a-1.csv", "a.csv", "B/x y.txt", "b/per%20cent.txt", "b/ü 😀.txt", "b-c/d.e/f.txt"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"content of {name}")


def compare(job: StorageJob, script: str, kind: str, local: Path, *, size: int | str, settings: str = "") -> bytes:
    """The rows of the job over the folder and over the store, which must be equal."""
    name = local.name
    job.write(script, LOCAL.format(type=kind, path=local), size=size, settings=settings)
    want = job.run_well()
    job.rows.unlink()
    job.write(script, LOCAL.format(type=kind, path=f"'{job.url}/{name}'"), size=size, settings=settings)
    assert job.run_well() == want
    return want


def test_files(job: StorageJob, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    make_files(folder)
    job.server.upload(folder, f"{job.prefix}/data")
    rows = compare(job, CONTENTS, "uri_folder", folder, size=2).decode()
    assert [line.partition("=")[0] for line in rows.splitlines()][:4] == ["x y.txt", "z.csv", "a-1.csv", "a.csv"]


def make_table(folder: Path, kind: str) -> None:
    folder.mkdir()
    numbers = range(3000)
    if kind == "parquet":
        for part in range(2):
            table = pyarrow.table(
                {"number": [part * 10_000 + n for n in numbers], "text": [f"row {n}" for n in numbers]}
            )
            pyarrow.parquet.write_table(table, folder / f"part-{part}.parquet", row_group_size=1000)
    elif kind == "jsonl":
        (folder / "a.jsonl").write_text("".join(f'{{"number": {n}, "text": "row {n}"}}\n' for n in numbers))
    else:
        for part in range(2):
            lines = "".join(f'{part * 10_000 + n},"row {n}"\n' for n in numbers)
            (folder / f"part-{part}.csv").write_text("number,text\n" + lines)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_tables(job: StorageJob, proxy: Proxy, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "data"
    make_table(folder, kind)
    job.server.upload(folder, f"{job.prefix}/data")
    job.endpoint = proxy.url
    rows = compare(job, TABLE, "mltable", folder, size="10kb")
    assert rows.count(b"\n") == 6000 - 3000 * (kind == "jsonl")
    # Ranges only: no request asks for a whole file.
    assert proxy.whole_reads == []


MLTABLE = """\
paths:
  - file: {data}/part-1.csv
  - pattern: {data}/*-0.csv
transformations:
  - read_delimited:
      delimiter: ','
      include_path_column: {column}
"""


@pytest.mark.parametrize("place", ["local", "remote"])
def test_an_mltable_file_names_data_in_a_store(job: StorageJob, tmp_path: Path, place: str) -> None:
    folder = tmp_path / "data"
    make_table(folder, "csv")
    job.server.upload(folder, f"{job.prefix}/data")
    (folder / "MLTable").write_text(MLTABLE.format(data=".", column="false"))
    job.write(TABLE, LOCAL.format(type="mltable", path=folder), size="10kb")
    want = job.run_well()
    if place == "local":
        (folder / "MLTable").write_text(MLTABLE.format(data=f"{job.url}/data", column="false"))
    else:
        job.put("data/MLTable", MLTABLE.format(data=".", column="false"))
        job.write(TABLE, LOCAL.format(type="mltable", path=f"{job.url}/data"), size="10kb")
    job.rows.unlink()
    assert job.run_well() == want


def test_the_path_column_is_the_address(job: StorageJob) -> None:
    job.put("data/part-1.csv", "number\n1\n2\n")
    job.put("data/part-0.csv", "number\n3\n")
    job.put("data/MLTable", MLTABLE.format(data=".", column="true"))
    job.write("def run(table):\n    return list(table['Path'])\n", LOCAL.format(type="mltable", path=f"{job.url}/data"))
    assert job.run_well().decode().splitlines() == [
        *[f"{job.url}/data/part-1.csv"] * 2,
        f"{job.url}/data/part-0.csv",
    ]


@pytest.mark.parametrize("kind", ["uri_file", "mltable"])
def test_one_object(job: StorageJob, kind: str) -> None:
    job.put("one.csv", "number\n1\n")
    job.write(CONTENTS if kind == "uri_file" else TABLE, LOCAL.format(type=kind, path=f"{job.url}/one.csv"))
    assert job.run_well() == (b"one.csv=number\n1\n\n" if kind == "uri_file" else b"1 2\n")


def test_marks_of_empty_folders_are_no_data(job: StorageJob) -> None:
    """Wherever they stand: beside a folder of a name that goes on, or an object of the same name."""
    for name in ("", "sub/", "sub/deep/", "sub-old/", "both/", "empty/"):
        job.put(f"data/{name}", "")
    job.put("data/sub/x", "1")
    job.put("data/sub-old/y", "2")
    job.put("data/both", "3")
    job.put("data/empty", "")
    job.write(CONTENTS, LOCAL.format(type="uri_folder", path=f"{job.url}/data"))
    assert job.run_well().decode().splitlines() == ["both=3", "empty=", "x=1", "y=2"]


def test_an_object_may_have_the_name_of_a_folder(job: StorageJob) -> None:
    job.put("data/a", "file")
    job.put("data/a/b", "below")
    job.write(CONTENTS, LOCAL.format(type="uri_folder", path=f"{job.url}/data"), size=5)
    assert job.run_well().decode().splitlines() == ["a=file", "b=below"]


def test_what_is_fetched_is_for_reading_and_goes_again(job: StorageJob) -> None:
    for number in range(20):
        job.put(f"data/{number:02d}", "x")
    script = "import os, stat\ndef run(m):\n    return [oct(stat.S_IMODE(os.stat(m[0]).st_mode))]\n"
    job.write(script, LOCAL.format(type="uri_folder", path=f"{job.url}/data"))
    assert job.run_well() == b"0o444\n" * 20
    assert not list((job.state / "agent" / "steps").glob("*/fetched/*"))


SIDE = """\
import argparse, os

def init():
    global model
    parser = argparse.ArgumentParser()
    parser.add_argument("--model")
    place = parser.parse_known_args()[0].model
    paths = [place] if os.path.isfile(place) else [
        os.path.join(folder, name) for folder, _, names in os.walk(place) for name in names
    ]
    model = "+".join(sorted(os.path.relpath(path, os.path.dirname(place)) + ":" + open(path).read() for path in paths))

def run(mini_batch):
    return [model]
"""


@pytest.mark.parametrize(("kind", "want"), [("uri_file", "m.txt:1"), ("uri_folder", "model/a/x:2+model/y:3")])
def test_side_inputs_are_brought_before_workers_start(job: StorageJob, kind: str, want: str) -> None:
    job.put("data/1", "")
    job.put("m.txt", "1")
    job.put("model/a/x", "2")
    job.put("model/y", "3")
    place = "m.txt" if kind == "uri_file" else "model"
    job.write(
        SIDE,
        LOCAL.format(type="uri_folder", path=f"{job.url}/data"),
        inputs=f"model: {{type: {kind}, path: {job.url}/{place}}}",
        arguments="--model ${{inputs.model}}",
    )
    assert job.run_well().decode().strip() == want


def test_a_side_input_that_is_not_there_ends_the_job_with_its_address(job: StorageJob) -> None:
    job.put("data/1", "")
    job.write(
        SIDE,
        LOCAL.format(type="uri_folder", path=f"{job.url}/data"),
        inputs=f"model: {{type: uri_file, path: {job.url}/nowhere}}",
        arguments="--model ${{inputs.model}}",
    )
    code, text = job.run()
    assert code == 1 and f"{job.url}/nowhere" in text, text


@pytest.mark.parametrize("place", ["local", "remote"])
def test_downloads_are_private_copies(job: StorageJob, tmp_path: Path, place: str) -> None:
    """A script may do with them what it likes."""
    folder = tmp_path / "data"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "x").write_text("1")
    job.server.upload(folder, f"{job.prefix}/data")
    script = (
        "def run(m):\n    assert m[0].endswith('/sub/x'), m\n    with open(m[0], 'a') as file:\n"
        "        file.write('2')\n    return [open(m[0]).read()]\n"
    )
    path = folder if place == "local" else f"{job.url}/data"
    job.write(script, f"{{type: uri_folder, path: '{path}', mode: download}}")
    assert job.run_well() == b"12\n"
    assert (folder / "sub" / "x").read_text() == "1"
    assert job.server.get(f"{job.prefix}/data/sub/x") == b"1"


@pytest.mark.parametrize(
    "steps",
    [
        "[{take: 5}, {read_delimited: {delimiter: ','}}, {skip: 700}, {take: 1000}]",
        "[{take_random_sample: {probability: 0.6, seed: 3}}]",
        "[{read_delimited: {delimiter: ','}}, {filter: 'col(\"number\") > 2900'}, {skip: 3}]",
        "[{read_delimited: {delimiter: ',', partition_size: 5000}}, {select_partitions: [1, 3]}]",
    ],
)
def test_steps_of_an_mltable_file(job: StorageJob, tmp_path: Path, steps: str) -> None:
    """They see names without stamps, and count rows where those are."""
    folder = tmp_path / "data"
    make_table(folder, "csv")
    for number in range(10):
        (folder / f"x-{number}.csv").write_text(f"number,text\n{number},a\n")
    (folder / "MLTable").write_text(f"paths: [{{pattern: '*.csv'}}]\ntransformations: {steps}\n")
    job.server.upload(folder, f"{job.prefix}/data")
    compare(job, TABLE if "read" in steps else CONTENTS, "mltable", folder, size="10kb" if "read" in steps else 2)


def test_without_a_job_file(job: StorageJob, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    make_files(folder)
    make_table(tmp_path / "table", "csv")
    job.server.upload(folder, f"{job.prefix}/data")
    job.server.upload(tmp_path / "table", f"{job.prefix}/table")
    job.write(CONTENTS, "{}")
    script = job.folder / "code" / "entry.py"

    def rows(*inputs: str, output: str) -> bytes:
        code, text = job.run(*inputs, "-o", output, file="code/entry.py")
        assert code == 0, text + job.agent_log()
        return (job.folder / output).read_bytes()

    assert rows(f"{job.url}/data/", output="there.txt") == rows(str(folder), output="here.txt")
    pattern = rows(f"{job.url}/data/b*/*.txt", output="pattern.txt")
    assert pattern == rows(str(folder / "b*" / "*.txt"), output="same.txt")
    script.write_text(TABLE)
    there = rows(f"{job.url}/table/part-0.csv", output="there.csv")
    assert there == rows(str(tmp_path / "table" / "part-0.csv"), output="here.csv")
    assert there.startswith(b"number,text,double\n")
