"""Datastores of `windrow run`: its jobs name data as those of a served master do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import windrow
from storage_job import CONTENTS, StorageJob
from test_storage_script_outputs import WRITE, made

LAKE = "azureml://datastores/lake/paths"
LONG = "azureml://subscriptions/s/resourcegroups/r/workspaces/w/datastores/lake/paths"


def write(job: StorageJob) -> None:
    job.put("lake/in/a", "1")
    job.put("lake/in/b", "2")
    job.write(
        WRITE,
        f"{{type: uri_folder, path: '{LONG}/in'}}",
        outputs=f"made: {{path: '{LAKE}/out'}}",
        arguments="--out ${{outputs.made}}",
    )


def test_inputs_and_outputs(job: StorageJob) -> None:
    write(job)
    job.run_well("--datastore", f"lake={job.url}/lake")
    assert made(job, "lake/out") == {"a": b"made of a", "b": b"made of b"}
    # What names none still has those of before; they are not told of in the job.
    code, text = job.run("--restart")
    assert code == 0, text
    assert json.loads((job.state / "datastores.json").read_text())["datastores"] == {"lake": f"{job.url}/lake"}


def test_a_folder(job: StorageJob, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "pond" / "in").mkdir(parents=True, exist_ok=True)
        (tmp_path / "pond" / "in" / name).write_text(name)
    job.write(
        CONTENTS,
        "{type: uri_folder, path: 'azureml://datastores/pond/paths/in'}",
        rows="{type: uri_file, path: 'azureml://datastores/pond/paths/out/rows.txt'}",
    )
    code, text = job.run("--datastore=pond=../pond")
    assert code == 0, text
    assert (tmp_path / "pond" / "out" / "rows.txt").read_bytes() == b"a=a\nb=b\n"


def test_from_python(job: StorageJob, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text("1")
    job.write(CONTENTS, "{type: uri_folder, path: 'azureml://datastores/here/paths/in'}")
    run = windrow.run(job.folder / "job.yml", state=job.state, datastores={"here": tmp_path})
    assert run.succeeded and list(run.results()) == ["a=1"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "--datastore lake=PATH"),
        (("--datastore", "pond=s3://bucket/x"), "--datastore lake=PATH"),
        (("--datastore", "lake=/no/such/folder"), "a folder that exists"),
        (("--datastore", "lake"), "NAME=PATH"),
        (("--datastore", "lake=s3://a:b/x"), "is not a valid address of this kind"),
        (("--datastore", "default=s3://bucket/x"), "has to be a folder"),
    ],
)
def test_what_cannot_be_used_is_told_before_anything_runs(job: StorageJob, options: tuple[str, ...], said: str) -> None:
    write(job)
    code, text = job.run(*options)
    assert code == 2 and said in text, text
