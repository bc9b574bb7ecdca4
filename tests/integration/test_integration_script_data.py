"""What scripts read by name, by `azureml.core`: data assets of the master and datastores, with no more rights than the
script has, or its node gives it; tags and metrics, exact whatever dies.

Reference: docs/reference/azure-ml/parallel-job.md#data-of-scripts.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from embedded_run import EmbeddedRun
from windrow_agent.sandbox.confinement import kernel_abi
from windrow_agent.sandbox.policy import STRICT_ABI
from windrow_command import windrow as command

Make = Callable[..., EmbeddedRun]

STRICT = pytest.mark.skipif(kernel_abi() < STRICT_ABI, reason="this kernel cannot confine")
CONFINED = ["off", "auto", pytest.param("strict", marks=STRICT)]

READS = """\
import json, os
from azureml.core import Dataset, Datastore, Run

run_ = Run.get_context()


def said(call):
    try:
        return call()
    except (OSError, RuntimeError) as error:
        return str(error)


def run(mini_batch):
    ws = run_.experiment.workspace
    found = {}
    for name in ("files", "table", "hidden", "far", "none"):
        found[name] = said(lambda: [open(path).read() for path in Dataset.get_by_name(ws, name).to_path()])
    found["first"] = said(lambda: [open(path).read() for path in Dataset.get_by_name(ws, "files", version=1).to_path()])
    found["in"] = "files" in ws.datasets and "none" not in ws.datasets
    known = Dataset.get_by_name(ws, "files")
    found["words"] = [known.id, known.version, known.tags, known.description]
    def mounted():
        with known.mount() as place:
            return sorted(os.listdir(place.mount_point))
    found["mounted"] = said(mounted)
    found["downloaded"] = said(lambda: [os.path.basename(path) for path in known.download("got")])
    return [json.dumps(found)]
"""


def registered(run: EmbeddedRun, name: str, path: str, *more: str) -> None:
    told = command("data", "create", "--name", name, "--path", path, *more, cwd=run.folder)
    assert told.returncode == 0, told.stderr


def row(run: EmbeddedRun) -> Any:
    (line,) = (run.folder / "out.txt").read_text().splitlines()
    return json.loads(line)


@pytest.mark.parametrize("sandbox", CONFINED)
def test_a_script_reads_data_assets_by_name(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sandbox: str
) -> None:
    run = make(READS, files=1)
    for name, text in {"old/a": "old", "new/a": "new", "new/below/b": "more", "table/1.csv": "x\n1\n"}.items():
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / name).write_text(text)
    (tmp_path / "data" / "own").mkdir()
    (tmp_path / "data" / "own" / "MLTable").write_text('{"paths": [{"file": "../table/1.csv"}], "transformations": []}')
    registered(run, "files", str(tmp_path / "data" / "old"))
    registered(run, "files", str(tmp_path / "data" / "new"), "--description", "for all", "--tag", "kind=test")
    registered(run, "table", str(tmp_path / "data" / "own"), "--type", "mltable")
    (tmp_path / "secret").write_text("the secret")
    registered(run, "hidden", str(tmp_path / "secret"), "--type", "uri_file")
    registered(run, "far", "s3://bucket/far")
    if sandbox == "strict":
        monkeypatch.setenv("WINDROW_JOB_PATHS", str(tmp_path / "data" / "new"))
    code, text = run.run("--sandbox", sandbox)
    assert code == 0, text
    found = row(run)
    assert found["files"] == ["new", "more"] and found["mounted"] == ["a", "below"]
    assert found["words"] == ["files:2", 2, {"kind": "test"}, "for all"] and found["in"] is True
    assert found["downloaded"] == ["a", "b"]
    assert "There is no data asset none here" in found["none"]
    assert "s3://bucket/far is in a store, which scripts do not reach: give the data to the step" in found["far"]
    if sandbox == "strict":
        for name, version in (("first", "files:1"), ("table", "table:1"), ("hidden", "hidden:1")):
            assert f"The data asset {version} at " in found[name], found[name]
            assert f"is not for scripts of this node. Give it to the step as an input, azureml:{version}" in found[name]
    else:
        assert (found["first"], found["table"]) == (["old"], ["x\n1\n"])


STORES = """\
import json, os
from azureml.core import Dataset, Datastore, Run

ws = Run.get_context().experiment.workspace


def said(call):
    try:
        return call()
    except RuntimeError as error:
        return str(error)


def run(mini_batch):
    store = Datastore.get(ws, "lab")
    os.makedirs("made/below", exist_ok=True)
    for name in ("one.txt", "below/two.txt"):
        with open(os.path.join("made", name), "w") as file:
            file.write("made: " + name)
    found = {
        "names": sorted(ws.datastores),
        "default": said(lambda: ws.get_default_datastore().name),
        "uploaded": said(lambda: store.upload("made", "up").path_on_datastore),
        "files": said(lambda: store.upload_files(["made/one.txt"], target_path="up", overwrite=False).location),
        "downloaded": said(lambda: store.download("down", prefix="in")),
        "read": said(lambda: [open(path).read() for path in Dataset.File.from_files((store, "in/*.txt")).to_path()]),
        "unknown": said(lambda: Datastore.get(ws, "none")),
        "far": said(lambda: Datastore.get(ws, "far").download("down")),
        "absent": said(lambda: Datastore.register_azure_blob_container),
    }
    return [json.dumps(found)]
""".replace("except RuntimeError", "except (AttributeError, OSError, RuntimeError)")


@pytest.mark.parametrize("sandbox", CONFINED)
def test_a_script_uses_datastores_with_its_own_rights(make: Make, tmp_path: Path, sandbox: str) -> None:
    run = make(STORES, files=1)
    lab = tmp_path / "lab"
    (lab / "in").mkdir(parents=True)
    (lab / "in" / "a.txt").write_text("a")
    (lab / "up").mkdir()
    (lab / "up" / "one.txt").write_text("was there")
    code, text = run.run("--sandbox", sandbox, "--datastore", f"lab={lab}", "--datastore", "far=s3://bucket/far")
    assert code == 0, text
    found = row(run)
    assert found["names"] == ["far", "lab"]
    assert "The master has no datastore 'workspaceblobstore' or 'default' (it has: far, lab)" in found["default"]
    assert "The master has no datastore 'none'" in found["unknown"]
    assert "is in a store, at s3://bucket/far, which scripts do not reach" in found["far"]
    assert "Datastore.register_azure_blob_container is not there in a script of Windrow" in found["absent"]
    # What is there stays, without overwrite=True.
    assert (lab / "up" / "one.txt").read_text() == "was there"
    if sandbox == "strict":
        assert f"The script may not write to {lab}" in found["uploaded"] and not (lab / "up" / "below").exists()
        assert f"The script may not read {lab}" in found["downloaded"]
        assert "There is no file at " in found["read"]
    else:
        assert (found["uploaded"], found["downloaded"], found["read"]) == ("up", 1, ["a"])
        assert (lab / "up" / "below" / "two.txt").read_text() == "made: below/two.txt"
        assert [path.name for path in lab.rglob("*.partial")] == []


TABLES = """\
from azureml.core import Dataset, Run

def run(mini_batch):
    store = Run.get_context().experiment.workspace.get_default_datastore()
    table = Dataset.Tabular.from_delimited_files(path=(store, "rows/*.csv"))
    known = Dataset.get_by_name(Run.get_context().experiment.workspace, "table")
    assert known.keep_columns("y").take(1).to_pandas_dataframe().to_dict("list") == {"y": [2]}
    return [str(table.drop_columns(["y"]).skip(1).to_pandas_dataframe().to_dict("list"))]
"""


def test_a_script_reads_tables_of_the_default_datastore(make: Make, tmp_path: Path) -> None:
    run = make(TABLES, files=1)
    for name, text in {"rows/1.csv": "x,y\n1,2\n", "rows/2.csv": "x,y\n3,4\n"}.items():
        (tmp_path / "store" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "store" / name).write_text(text)
    (tmp_path / "store" / "own").mkdir()
    (tmp_path / "store" / "own" / "MLTable").write_text(
        "paths: [{pattern: ../rows/*.csv}]\ntransformations: [read_delimited]\n"
    )
    registered(run, "table", str(tmp_path / "store" / "own"), "--type", "mltable")
    code, text = run.run("--datastore", f"workspaceblobstore={tmp_path / 'store'}")
    assert code == 0, text
    assert (run.folder / "out.txt").read_text() == "{'x': [3]}\n"


TAGS = """\
import os, signal
from azureml.core import Run

def run(mini_batch, context):
    run = Run.get_context()
    index = context.minibatch_index
    run.tag("of %d" % index, os.getpid())
    run.tag("last", index)
    run.parent.set_tags({"job %d" % index: None})
    run.add_properties({"first of %d" % index: os.getpid()})
    died = os.environ["DIED"] + str(index)
    if index % 2 and not os.path.exists(died):
        with open(died, "w") as file:
            file.write(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGKILL)
    return ["%d %d" % (index, os.getpid())]
"""


def test_tags_are_those_of_the_last_try_and_properties_those_of_the_first(make: Make, tmp_path: Path) -> None:
    run = make(TAGS, files=6, settings=f"environment_variables: {{DIED: {tmp_path}/died}}")
    code, text = run.run("--slots", "3")
    assert code == 0, text
    told = command("job", "show", "last", "--metrics", "--format", "json", cwd=run.folder)
    shown = {(one["step"], one["kind"], one["name"]): one["newest"] for one in json.loads(told.stdout)}
    pids = dict(line.split() for line in (run.folder / "out.txt").read_text().splitlines())
    dead = {index: (tmp_path / f"died{index}").read_text() for index in "135"}
    assert {index: shown["score", "tag", f"of {index}"] for index in pids} == pids
    assert {index: shown["score", "property", f"first of {index}"] for index in pids} == {**pids, **dead}
    assert shown["score", "tag", "last"] in pids
    assert [shown["", "tag", f"job {index}"] for index in pids] == [None] * 6
