"""`windrow mb replay` over data in a store: fetched as an agent does, and nothing is brought back."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from s3_server import clean_environment
from storage_job import WINDROW, WITH_OUT, StorageJob

SCRIPT = (
    WITH_OUT
    + """\
    parser.add_argument("--model")
    global model
    model = open(parser.parse_known_args()[0].model).read()

def run(mini_batch):
    rows = []
    for path in mini_batch:
        text = open(path).read()
        with open(os.path.join(out, os.path.basename(path)), "w") as file:
            file.write(text)
        rows.append(model + ":" + os.path.basename(path) + "=" + text)
    return rows
"""
)


def replay(job: StorageJob, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [WINDROW, "mb", "replay", *arguments],
        cwd=job.folder,
        env=clean_environment(job.endpoint, job.home),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def name_of(job: StorageJob) -> str:
    return next((job.state / "jobs").iterdir()).name


def test_data_side_inputs_and_outputs_in_a_store(job: StorageJob, tmp_path: Path) -> None:
    for number in range(3):
        job.put(f"data/{number:02d}", f"text {number}")
    job.put("m.txt", "M")
    job.write(
        SCRIPT,
        f"{{type: uri_folder, path: {job.url}/data}}",
        size=2,
        inputs=f"model: {{type: uri_file, path: {job.url}/m.txt}}",
        outputs=f"made: {{path: {job.url}/out}}",
        arguments="--model ${{inputs.model}} --out ${{outputs.made}}",
    )
    code, text = job.run()
    assert code == 0, text
    before = {key: job.server.get(key) for key in job.server.keys(job.prefix)}
    keep = tmp_path / "kept"
    done = replay(job, name_of(job), "0", "--keep", str(keep))
    assert done.returncode == 0, done.stderr
    assert f"{job.url}/data/00" in done.stderr
    assert "    M:00=text 0\n    M:01=text 1\n" in done.stderr
    assert (keep / "outputs" / "made" / "01").read_text() == "text 1"
    assert {key: job.server.get(key) for key in job.server.keys(job.prefix)} == before
    job.put("data/01", "another text")
    changed = replay(job, name_of(job), "0")
    assert changed.returncode == 1
    assert "could not be fetched" in changed.stderr
    assert "data/01" in changed.stderr


def test_a_slice_of_a_table_in_a_store(job: StorageJob) -> None:
    pytest.importorskip("pandas")
    lines = "".join(f"{number},row {number}\n" for number in range(3000))
    job.put("data/t.csv", "number,text\n" + lines)
    job.put("data/MLTable", "paths: [{file: ./t.csv}]\ntransformations: [{read_delimited: {}}]\n")
    job.write(
        "def run(table): return table.assign(double=2 * table.number)\n",
        f"{{type: mltable, path: {job.url}/data}}",
        size="10kb",
        arguments="--append_row_dataframe_header True",
    )
    code, text = job.run()
    assert code == 0, text
    rows = job.rows.read_text().splitlines()
    done = replay(job, name_of(job), "1")
    assert done.returncode == 0, done.stderr
    shown = [line.strip() for line in done.stderr.partition("The first:\n")[2].splitlines()[:6]]
    assert shown[0] == rows[0]
    at = rows.index(shown[1])
    assert rows[at : at + 5] == shown[1:]


def test_sorted_rows_can_be_replayed_only_while_they_are_there(job: StorageJob) -> None:
    pytest.importorskip("duckdb")
    (job.folder / "t").mkdir()
    (job.folder / "t" / "t.csv").write_text("".join(["key,n\n", *(f"{n % 3},{n}\n" for n in range(30))]))
    (job.folder / "t" / "MLTable").write_text("paths: [{file: ./t.csv}]\ntransformations: [{read_delimited: {}}]\n")
    job.write("def run(table): return table\n", "{type: mltable, path: ./t}", settings="partition_keys: [key]")
    text = (job.folder / "job.yml").read_text().replace('    mini_batch_size: "1"\n', "")
    (job.folder / "job.yml").write_text(text)
    code, said = job.run()
    assert code == 0, said
    done = replay(job, name_of(job), "0")
    assert done.returncode == 2
    assert "sorted by their partition keys" in done.stderr
    assert "removed when the job ends" in done.stderr
