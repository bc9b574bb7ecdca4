"""Data assets and models: registered, named in job files, made of outputs; in a state folder and by a served master."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import windrow_command
from embedded_run import DEADLINE_S, EmbeddedRun
from served import Served
from upload_bench import FILES, JOB, Laptop, finished, uploads_of
from windrow.errors import NotFound, RequestRefused
from windrow_master.crash_points import VARIABLE

NAMES = """
import os

def run(mini_batch):
    return [os.path.basename(path) for path in mini_batch]
"""


def windrow(folder: Path, *arguments: str, code: int = 0) -> str:
    done = windrow_command.windrow(*arguments, cwd=folder, timeout=DEADLINE_S)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def test_a_run_reads_an_asset_and_registers_its_output(tmp_path: Path) -> None:
    run = EmbeddedRun(tmp_path / "run", NAMES, 3)
    job = run.folder / "job.yml"
    job.write_text(
        job.read_text()
        .replace("path: ./data", "path: azureml:numbers@latest")
        .replace("path: ./out.txt", "path: ./out.txt, name: names")
    )
    # Before anything is there: how to register one.
    code, text = run.run()
    assert code == 2
    assert "windrow data create --name numbers" in text

    assert "azureml:numbers:1" in windrow(run.folder, "data", "create", "--name", "numbers", "--path", "./data")
    code, text = run.run()
    assert code == 0, text
    assert run.output.read_text() == "f00000\nf00001\nf00002\n"
    shown = json.loads(windrow(run.folder, "data", "show", "names", "--format", "json"))
    assert (shown["version"], shown["type"], shown["path"]) == ("1", "uri_file", str(run.output))
    job_id = next((run.state / "jobs").iterdir()).name
    assert (shown["job_id"], shown["step"], shown["output"]) == (job_id, "score", "result")
    document = json.loads(windrow(run.folder, "job", "show", job_id, "--state", ".windrow", "--format", "json"))[
        "document"
    ]
    assert document["steps"][0]["inputs"]["data"]["asset"] == "azureml:numbers:1"

    (run.folder / "more").mkdir()
    (run.folder / "more" / "one").touch()
    windrow(run.folder, "data", "create", "--name", "numbers", "--path", "more", "--tag", "owner=me")
    code, text = run.run()
    assert code == 0, text
    assert run.output.read_text() == "one\n"
    listed = windrow(run.folder, "data", "list", "--name", "names").splitlines()
    assert [line.split()[1] for line in listed] == ["VERSION", "2", "1"]
    refused = windrow(run.folder, "data", "create", "--name", "numbers", "--version", "1", "--path", "more", code=2)
    assert "a version cannot be changed" in refused


def test_an_asset_from_a_file_and_a_model(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "net.bin").touch()
    (tmp_path / "models" / "model.yml").write_text(
        "$schema: x\nname: net\nversion: 4\ntype: custom_model\npath: ./net.bin\ntags: {owner: me}\n"
    )
    windrow(tmp_path, "model", "create", "--file", "models/model.yml", "--tag", "more=1")
    shown = json.loads(windrow(tmp_path, "model", "show", "net", "--format", "json"))
    assert (shown["version"], shown["path"], shown["is_file"]) == ("4", str(tmp_path / "models" / "net.bin"), True)
    assert shown["tags"] == {"owner": "me", "more": "1"}
    assert "There is no data asset" in windrow(tmp_path, "data", "list")
    # Options win over the file, and a path of theirs begins at the current folder.
    windrow(tmp_path, "model", "create", "--file", "models/model.yml", "--path", "models", "--version", "5")
    assert json.loads(windrow(tmp_path, "model", "show", "net", "--format", "json"))["path"] == str(tmp_path / "models")
    for name, version in (("net:4", "4"), ("azureml:net:4", "4"), ("azureml:net@latest", "5"), ("azureml:net", "5")):
        assert json.loads(windrow(tmp_path, "model", "show", name, "--format", "json"))["version"] == version
    for arguments, said in (
        (["net:6"], "There is no model net:6 here"),
        (["net@newest"], "the only one is net@latest"),
        (["net:4", "--version", "5"], '"net:4" and --version 5 name different versions'),
        (["azureml:"], "Write NAME, NAME:VERSION or NAME@latest"),
    ):
        assert said in windrow(tmp_path, "model", "show", *arguments, code=2)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Served]:
    processes = Served(tmp_path)
    yield processes
    processes.close()


def test_an_output_is_registered_once_although_the_master_dies_over_it(pair: Served, tmp_path: Path) -> None:
    run = EmbeddedRun(tmp_path / "run", NAMES, 3)
    job = run.folder / "job.yml"
    job.write_text(job.read_text().replace("path: ./out.txt", "path: ./out.txt, name: names"))
    pair.start_agent("one")
    pair.start_master(**{VARIABLE: "assets.registered"})
    with pair.client() as client:
        submitted = client.submit(job)
        pair.wait_master_killed()
        pair.start_master()
        assert client.wait(submitted.job_id, timeout_s=DEADLINE_S).state.succeeded
        (asset,) = client.list_data("names")
        assert (asset.version, asset.path, asset.job_id) == ("1", str(run.output), submitted.job_id)
        # It outlives another restart, and the same path again is a job's own version.
        pair.kill_master()
        pair.start_master()
        assert client.data("names") == asset
        again = client.submit(job)
        assert client.wait(again.job_id, timeout_s=DEADLINE_S).state.succeeded
        assert [one.version for one in client.list_data("names")] == ["2", "1"]


def test_a_version_that_is_taken_is_refused_before_any_work(pair: Served, tmp_path: Path) -> None:
    run = EmbeddedRun(tmp_path / "run", NAMES, 3)
    job = run.folder / "job.yml"
    job.write_text(job.read_text().replace("path: ./out.txt", "path: ./out.txt, name: names, version: 1"))
    pair.start_master()
    with pair.client() as client:
        client.create_data("names", run.folder / "data", version=1)
        with pytest.raises(RequestRefused, match="names:1 already exists") as caught:
            client.submit(job)
        assert caught.value.reason == "ASSET_EXISTS"


def test_data_of_the_client_goes_along_and_is_named_by_jobs(served: Served, tmp_path: Path) -> None:
    laptop = Laptop(tmp_path / "laptop", FILES)
    expected = laptop.embedded_output()
    served.start_agent("one")
    made = laptop.run("data", "create", "--name", "texts", "--path", "./data", WINDROW_MASTER=served.address)
    assert made.returncode == 0, made.stderr
    assert made.stdout.startswith("azureml:texts:1  uri_folder  ")
    assert len(uploads_of(served)) == 1
    laptop.job.write_text(
        JOB.format(kind="uri_folder", path="azureml:texts@latest", size=2).replace(
            "outputs: {result: {type: uri_file}}", "outputs: {result: {type: uri_file, name: scored}}"
        )
    )
    created = laptop.run("job", "create", "job.yml", "--name", "first", WINDROW_MASTER=served.address)
    assert created.returncode == 0, created.stderr
    assert finished(served, "first") == expected
    # The output lies in the master's own folder of outputs, and is data like any other by its name.
    with served.client() as client:
        scored = client.data("scored")
        assert scored.job_id == "first"
    laptop.job.write_text(JOB.format(kind="uri_file", path="azureml:scored:1", size=2))
    created = laptop.run("job", "create", "job.yml", "--name", "second", WINDROW_MASTER=served.address)
    assert created.returncode == 0, created.stderr
    assert finished(served, "second").startswith(b"parallel_run_step.txt ")


def test_a_served_master_registers_only_what_its_jobs_may_read(served: Served, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    assert served.datastore is not None
    (served.datastore / "inside").mkdir()
    with served.client() as client:
        with pytest.raises(RequestRefused, match="outside the datastores"):
            client.create_data("x", tmp_path / "elsewhere")
        with pytest.raises(RequestRefused, match="does not exist"):
            client.create_data("x", served.datastore / "gone")
        with pytest.raises(RequestRefused, match="is a folder, but the type is uri_file"):
            client.create_data("x", served.datastore / "inside", type="uri_file")
        with pytest.raises(RequestRefused, match="is not a type of a data asset"):
            client.create_data("x", served.datastore / "inside", type="custom_model")
        with pytest.raises(RequestRefused, match="not a valid version"):
            client.create_data("x", served.datastore / "inside", version="latest")
        assert client.create_data("x", served.datastore / "inside").version == "1"
        named = client.create_data("y", "azureml://datastores/default/paths/inside")
        assert named.path == "azureml://datastores/default/paths/inside"
        with pytest.raises(NotFound):
            client.model("x")
