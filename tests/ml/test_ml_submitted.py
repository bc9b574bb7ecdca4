"""What notebooks ask of a job after it was submitted, and of one that they get by its name."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from windrow.errors import JobFailed
from windrow.ml import MLClient, command, load_component, load_job
from windrow.ml.entities import Job

JOB = """\
type: pipeline
display_name: Letters
description: makes them large
experiment_name: letters
tags: {team: blue}
settings: {default_compute: "azureml:cpu", continue_on_step_failure: true}
inputs:
  lines: {type: uri_folder, path: ./files}
outputs:
  result: {type: uri_file}
jobs:
  upper:
    type: parallel
    inputs: {lines: "${{parent.inputs.lines}}", factor: 3}
    outputs: {out: "${{parent.outputs.result}}"}
    input_data: ${{inputs.lines}}
    mini_batch_size: "10"
    task: {type: run_function, code: ./src, entry_script: upper.py, append_row_to: "${{outputs.out}}"}
  after:
    type: command
    command: cp ${{inputs.rows}} ${{outputs.copy}}
    inputs: {rows: "${{parent.jobs.upper.outputs.out}}"}
    outputs: {copy: {type: uri_folder}}
"""


@pytest.fixture
def client(notebook: Path) -> Iterator[MLClient]:
    with MLClient(slots=1) as client:
        yield client


def test_a_submitted_job_tells_what_its_file_said(client: MLClient, notebook: Path) -> None:
    (notebook / "job.yml").write_text(JOB)
    begun = datetime.now(UTC)
    made = client.jobs.create_or_update(load_job("job.yml"))
    client.windrow.wait(made.name)
    (listed,) = client.jobs.list()
    for job in (made, client.jobs.get(made.name), listed):
        assert (job.display_name, job.description, job.experiment_name) == ("Letters", "makes them large", "letters")
        assert (job.tags, job.properties, job.compute) == ({"team": "blue"}, {}, "cpu")
        assert (job.settings.continue_on_step_failure, job.settings.default_compute) == (True, "cpu")
        assert job.creation_context.created_at is not None
        assert begun <= job.creation_context.created_at <= datetime.now(UTC)
        assert len(job.inputs) == 0
        assert job.outputs.keys() == ["result", "after.copy"]
        assert (job.outputs["after.copy"].type, job.outputs["result"].type) == ("uri_folder", "uri_file")
        assert list(job.jobs) == ["upper", "after"]
    assert Path(listed.outputs.result.path).read_text() == "A\nB\nC\n"
    with pytest.raises(AttributeError, match="was submitted: its output 'result' can no longer be set"):
        made.outputs.result = "elsewhere"


def test_the_steps_of_a_submitted_job_tell_their_own(client: MLClient, notebook: Path) -> None:
    (notebook / "job.yml").write_text(JOB)
    name = client.jobs.create_or_update(load_job("job.yml")).name
    client.windrow.wait(name)
    job = client.jobs.get(name)
    for upper, after in (list(job.jobs.values()), list(client.jobs.list(parent_job_name=name))):
        assert (upper.type, after.type) == ("parallel", "command")
        assert (upper.status, upper.compute, upper.tags, upper.description) == ("Completed", "cpu", {}, "")
        assert (upper.inputs.lines.path, upper.inputs["factor"]) == (str(notebook / "files"), "3")
        assert after.inputs.rows.path == "${{parent.jobs.upper.outputs.out}}"
        assert upper.outputs.out.path == job.outputs.result.path
        assert upper.creation_context == job.creation_context
        assert upper.studio_url == job.studio_url


@pytest.mark.parametrize("folder", [".windrow", "my runs"])
def test_where_a_job_is_looked_at_is_a_command_that_shows_it(notebook: Path, folder: str) -> None:
    with MLClient(slots=1, state=folder) as client:
        job = client.jobs.create_or_update(command(name="hello", command="true"))
        client.windrow.wait(job.name)
        endpoint = job.services["Studio"].endpoint
        assert endpoint == job.studio_url == client.jobs.get(job.name).studio_url
        assert endpoint.startswith(f"windrow job show {job.name}")
        run = [sys.executable, "-c", "from windrow.cli import main; main()", *shlex.split(endpoint)[1:]]
        shown = subprocess.run(run, capture_output=True, text=True, check=False)
        assert shown.returncode == 0, shown.stderr
        assert job.name in shown.stdout


def test_a_named_master_is_in_the_command_that_shows_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MLClient(master="host:8470").connection.place_options() == " --master host:8470"
    monkeypatch.setenv("WINDROW_MASTER", "host:8470")
    assert MLClient(master="host:8470").connection.place_options() == ""
    assert MLClient().connection.place_options() == ""


def test_made_and_submitted_jobs_are_jobs(client: MLClient, notebook: Path) -> None:
    (notebook / "job.yml").write_text(JOB)
    made = load_job("job.yml")
    submitted = client.jobs.create_or_update(made)
    assert isinstance(made, Job) and isinstance(submitted, Job) and isinstance(submitted.jobs["upper"], Job)
    client.windrow.wait(submitted.name)


def test_a_cancelled_job_is_followed_by_the_word_of_its_status(client: MLClient, capsys: Any) -> None:
    job = client.jobs.create_or_update(command(name="slow", command="sleep 60"))
    client.jobs.begin_cancel(job.name).result()
    with pytest.raises(JobFailed):
        client.jobs.stream(job.name)
    shown = capsys.readouterr().out
    assert f"Status: {client.jobs.get(job.name).status}" in shown
    assert "Canceled: processed" in shown
    assert "Cancelled" not in shown


def test_versions_of_kept_components_are_text(client: MLClient, notebook: Path) -> None:
    (notebook / "part.yml").write_text("type: command\nname: part\nversion: 1.10\ncommand: echo\n")
    part = load_component("part.yml")
    assert part.version == "1.10"
    client.components.create_or_update(part)
    assert client.components.get("part").version == "1.10"
    assert client.components.create_or_update(part, version=2).version == "2"
    assert client.components.get("part", version=2).version == "2"
    assert client.components.get("part", "1.10").version == "1.10"
    assert part.version == "1.10"
    (notebook / "plain.yml").write_text("type: command\nname: plain\ncommand: echo\n")
    assert client.components.create_or_update(load_component("plain.yml")).version == "1"
