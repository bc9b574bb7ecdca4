"""Dry runs: the plan is what a run would do, and nothing is left behind by making it."""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from client_workspace import Workspace, end, kill, wait_until
from windrow.dry_run.query import ask
from windrow.errors import MasterFailed
from windrow.spec import build_effective, load_job

PIPELINE = """
type: pipeline
name: chain
inputs:
  data: {type: uri_folder, path: ./data}
outputs:
  final: {type: uri_file}
jobs:
  last:
    type: parallel
    inputs:
      data: ${{parent.inputs.data}}
      left: ${{parent.jobs.left.outputs.rows}}
      right: ${{parent.jobs.right.outputs.rows}}
    outputs: {rows: "${{parent.outputs.final}}"}
    input_data: ${{inputs.data}}
    task: &task
      type: run_function
      code: ./code
      entry_script: score.py
      append_row_to: ${{outputs.rows}}
      program_arguments: --left ${{inputs.left}} --run_max_try 5
  left: &side
    type: parallel
    inputs: {data: "${{parent.jobs.first.outputs.made}}"}
    outputs: {rows: {type: uri_file}}
    input_data: ${{inputs.data}}
    task: {<<: *task, program_arguments: ""}
  right: *side
  first:
    type: command
    inputs: {data: "${{parent.inputs.data}}"}
    outputs: {made: {type: uri_folder}}
    command: cp -r ${{inputs.data}}/. ${{outputs.made}}
"""


def plan(workspace: Workspace, *arguments: str, code: int = 0, **extra: str) -> dict[str, Any]:
    """The JSON document of a dry run that ends with this exit code."""
    done = workspace.run("run", "--dry-run", *arguments, "--format", "json", **extra)
    assert done.returncode == code, done.stdout + done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def tree(folder: Path) -> dict[str, tuple[int, int]]:
    """Everything in a folder, with what would change if it were written to."""
    found = {}
    for path in folder.rglob("*"):
        status = path.stat()
        # SQLite's shared memory is no state: readers leave their marks in it.
        if not path.name.endswith("-shm"):
            found[str(path.relative_to(folder))] = (status.st_size, status.st_mtime_ns)
    return found


def test_a_plan_tells_what_the_run_does_then_and_leaves_no_trace(workspace: Workspace) -> None:
    contents = ["a", "bb", "c", "d", "e"]
    workspace.write(contents, mini_batch_size=2, name="name: mine")
    before = tree(workspace.folder)
    document = plan(workspace, "job.yml", "--set", "jobs.score.error_threshold=7")
    assert tree(workspace.folder) == before
    assert document["job_id"] == "mine"
    (step,) = document["steps"]
    division = step["division"]
    assert (division["mini_batches"], division["items"], division["complete"]) == (3, 5, True)
    first, _, last = division["first"]
    assert first["holds"] == [str(workspace.folder / "data" / f"item00{n}.txt") for n in (0, 1)]
    assert (first["items"], first["bytes"], last["items"]) == (2, 3, 1)
    assert step["code"]["files"] == 1 and step["entry_script"] == "score.py"
    assert step["inputs"]["data"]["place"] == str(workspace.folder / "data")
    assert step["outputs"]["rows"]["place"] == str(workspace.rows)
    settings = step["settings"]
    assert settings["mini_batch_size"]["value"] == 2
    assert settings["mini_batch_size"]["origin"]["where"].startswith("job.yml:")
    assert settings["error_threshold"]["origin"]["kind"] == "--set"
    assert settings["allowed_failed_percent"]["origin"]["kind"] == "default"
    done = workspace.run("run", "job.yml", "--format", "json")
    job = json.loads(done.stdout.splitlines()[-1])["job"]
    (ran,) = job["steps"]
    assert (job["job_id"], ran["mini_batches"]["total"], ran["items"]["total"]) == ("mine", 3, 5)
    assert workspace.rows.read_text() == workspace.expected(contents)


def test_steps_stand_in_the_order_in_which_they_can_run(workspace: Workspace) -> None:
    workspace.write(["a"])
    workspace.job_file.write_text(PIPELINE)
    document = plan(workspace, "job.yml")
    steps = {step["name"]: step for step in document["steps"]}
    assert [step["name"] for step in document["steps"]] == ["first", "left", "right", "last"]
    assert [steps[name]["level"] for name in ("first", "left", "right", "last")] == [0, 1, 1, 2]
    assert steps["left"]["beside"] == ["right"] and steps["last"]["waits_for"] == ["left", "right"]
    made = str(workspace.state / "outputs" / "chain" / "first" / "made")
    assert steps["first"]["command"] == f"cp -r {workspace.folder / 'data'}/. {made}"
    assert steps["first"]["division"] == {"state": "command"}
    assert steps["left"]["inputs"]["data"]["place"] == made
    assert steps["left"]["division"]["state"] == "waits" and "step first" in steps["left"]["division"]["why"]
    assert steps["last"]["division"]["mini_batches"] == 1
    assert steps["last"]["arguments"][1] == steps["left"]["outputs"]["rows"]["place"]
    tries = steps["last"]["settings"]["max_retries"]
    assert (tries["value"], tries["origin"]["kind"]) == (4, "argument")
    assert document["outputs"]["final"]["place"] == steps["last"]["outputs"]["rows"]["place"]
    text = workspace.run("run", "--dry-run", "job.yml").stdout
    assert "left   parallel  waits for first; side by side with right" in text
    assert not workspace.state.exists()


def test_what_would_fail_is_told_and_ends_with_1(workspace: Workspace) -> None:
    workspace.write(["a"])
    workspace.rows.parent.mkdir()
    workspace.rows.write_text("not ours\n")
    document = plan(workspace, "job.yml", code=1)
    assert "was not written by Windrow" in document["problems"][0]
    workspace.rows.unlink()
    for item in (workspace.folder / "data").iterdir():
        item.unlink()
    document = plan(workspace, "job.yml", code=1)
    assert "contains no files" in document["problems"][0]
    done = workspace.run("run", "--dry-run", "job.yml")
    assert done.returncode == 1 and "would fail: Step score:" in done.stdout


def test_errors_of_file_and_script_end_with_2(workspace: Workspace) -> None:
    workspace.write(["a"])
    done = workspace.run("run", "--dry-run", "job.yml", "--set", "jobs.score.mini_batch_size=x")
    assert (done.returncode, done.stdout) == (2, "")
    (workspace.folder / "code" / "score.py").write_text("def run(:\n")
    done = workspace.run("run", "--dry-run", "job.yml")
    assert (done.returncode, done.stdout) == (2, "")
    assert "code/score.py:1:" in done.stderr
    assert not workspace.state.exists()


def test_a_planner_that_dies_is_told(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace.write(["a"])
    job = workspace.job_file.read_text()
    # More than a pipe takes: it is gone before it has read all.
    workspace.job_file.write_text(f"description: {'x' * 200_000}\n{job}")
    loaded = load_job(workspace.job_file)
    effective = build_effective(loaded, dict.fromkeys(loaded.code_folders.values(), "a" * 64))
    monkeypatch.setattr(sys, "executable", "/bin/true")
    with pytest.raises(MasterFailed, match="could not be made"):
        ask(effective, state=str(workspace.state), outputs="", datastores={}, divided=[])


def test_tables_are_described_by_what_their_mini_batches_are(workspace: Workspace) -> None:
    workspace.write(["a"])
    table = workspace.folder / "table"
    table.mkdir()
    rows = "".join(f"{number},{number % 3}\n" for number in range(600))
    (table / "rows.csv").write_text("number,rest\n" + rows)
    (table / "MLTable").write_text("paths: [{file: ./rows.csv}]\ntransformations: [read_delimited]\n")
    sets = ["--set", "inputs.data={type: mltable, path: ./table}"]
    unset = ["--set", "jobs.score.mini_batch_size=null"]
    by_bytes = plan(workspace, "job.yml", *sets, "--set", "jobs.score.mini_batch_size=2kb")["steps"][0]["division"]
    assert by_bytes["items"] is None and by_bytes["mini_batches"] > 1
    assert by_bytes["first"][0]["holds"][0].startswith(f"{table / 'rows.csv'}:bytes 12-")
    assert 1500 < by_bytes["first"][0]["bytes"] <= 2600
    counted = plan(workspace, "job.yml", *sets, "--exact-row-index", *unset)["steps"][0]["division"]
    assert (counted["items"], counted["mini_batches"]) == (600, 1)
    by_key = plan(workspace, "job.yml", *sets, "--set", "jobs.score.partition_keys=[rest]")["steps"][0]["division"]
    assert [first["partition"] for first in by_key["first"]] == ['{"rest": 0}', '{"rest": 1}', '{"rest": 2}']
    assert [first["items"] for first in by_key["first"]] == [200, 200, 200]


def test_a_run_that_was_killed_is_found_and_its_state_is_not_touched(workspace: Workspace) -> None:
    workspace.write(["a", "wait"], workers=1, name="name: mine")
    run = workspace.start("run", "job.yml", "--no-progress")
    wait_until(lambda: _rows_committed(workspace), "the first mini-batch is done")
    live = plan(workspace, "job.yml")
    assert live["unfinished"] == {"job_id": "mine", "state": "running", "equal": True}
    kill(run.pid)
    for process in workspace.processes():
        kill(process.pid)
    end(run)
    wait_until(lambda: not workspace.processes(), "all are gone")
    before = tree(workspace.folder)
    assert plan(workspace, "job.yml")["unfinished"] == {"job_id": "mine", "state": "running", "equal": True}
    changed = plan(workspace, "job.yml", "--set", "jobs.score.error_threshold=3")
    assert changed["unfinished"]["equal"] is False
    assert tree(workspace.folder) == before
    workspace.gate.touch()
    assert workspace.run("run", "job.yml").returncode == 0
    assert plan(workspace, "job.yml")["job_id"] == "mine-2"


def _rows_committed(workspace: Workspace) -> bool:
    segments = list(workspace.state.glob("jobs/*/steps/*/segments/*"))
    return any(segment.stat().st_size > 0 for segment in segments)


def test_interrupted_it_leaves_nothing_behind(workspace: Workspace) -> None:
    workspace.write(["a"])
    temporary = workspace.folder / "temporary"
    temporary.mkdir()
    run = workspace.start("run", "--dry-run", "job.yml", TMPDIR=str(temporary))
    wait_until(lambda: list(temporary.glob("windrow-dry-run-*")) or run.poll() is not None, "it asks")
    run.send_signal(signal.SIGINT)
    end(run)
    assert run.returncode in (0, 130)
    wait_until(lambda: not list(temporary.iterdir()), "nothing is left")
    wait_until(lambda: not workspace.processes(), "nothing runs any more")
    assert not workspace.state.exists()


def test_killed_it_leaves_nothing_behind(workspace: Workspace) -> None:
    workspace.write(["a"])
    temporary = workspace.folder / "temporary"
    temporary.mkdir()
    run = workspace.start("run", "--dry-run", "job.yml", TMPDIR=str(temporary))
    wait_until(lambda: list(temporary.glob("windrow-dry-run-*")) or run.poll() is not None, "it asks")
    run.kill()
    end(run)
    wait_until(lambda: not list(temporary.iterdir()), "nothing is left")


@pytest.mark.parametrize("option", ["--restart", "--strict", "--no-progress"])
def test_options_of_a_run_do_not_begin_one(workspace: Workspace, option: str) -> None:
    workspace.write(["a"])
    assert workspace.run("run", "job.yml", option, "--dry-run").returncode == 0
    assert not workspace.state.exists()


def test_what_would_be_taken_over_is_what_the_run_takes_over(workspace: Workspace) -> None:
    workspace.write(["a", "b", "c", "d", "e", "f", "raise"], mini_batch_size=2, error_threshold=-1)
    (note,) = plan(workspace, "job.yml", "--since", "last")["notes"]
    assert "no job of this job file has ended" in note and not workspace.state.exists()
    data = workspace.folder / "data"
    newest = max(path.stat().st_ctime for path in data.iterdir())
    wait_until(lambda: time.time() > newest + 2.1, "the files are older than a clock's tick")
    assert workspace.run("run", "job.yml", "--no-progress").returncode == 0
    # A run that never got as far as a result does not hide those of the one before.
    sets = ("--set", "jobs.score.task.code=./broken")
    (workspace.folder / "broken").mkdir()
    script = "def init():\n    raise SystemError('no model')\ndef run(mini_batch):\n    return mini_batch\n"
    (workspace.folder / "broken" / "score.py").write_text(script)
    assert workspace.run("run", "job.yml", "--no-progress", *sets).returncode == 1
    (data / "item001.txt").write_text("changed")
    (data / "new.txt").write_text("new")
    before = tree(workspace.folder)
    document = plan(workspace, "job.yml", "--since", "last")
    assert tree(workspace.folder) == before
    (step,) = document["steps"]
    division, setting = step["division"], step["settings"]["resume_from"]
    # Of seven files in mini-batches of two, the second and third are as they were, and whole.
    taken = {"job": document["since"], "mini_batches": 2, "items": 4}
    assert division["taken_over"] == taken
    assert (division["mini_batches"], division["items"]) == (4, 8)
    assert [first["taken_over"] for first in division["first"]] == [False, True, True]
    assert (setting["value"], setting["origin"]["kind"]) == (document["since"], "--since")
    assert step["notes"] == []
    (changed,) = plan(workspace, "job.yml", "--since", "last", "--set", "jobs.score.task.code=./broken")["steps"]
    assert any("has changed since: the code. A run asks what happens" in note for note in changed["notes"])
    text = workspace.run("run", "--dry-run", "job.yml", "--since", "last").stdout
    assert "2 mini-batches with 4 items; 2 mini-batches with 4 items would run" in text
    done = workspace.run("run", "job.yml", "--since", "last", "--format", "json")
    job = json.loads(done.stdout.splitlines()[-1])["job"]
    counts = job["steps"][0]["mini_batches"], job["steps"][0]["items"]
    assert [count["taken_over"] for count in counts] == [2, 4]
    assert job["run_digest"] == document["run_digest"]


def test_what_cannot_be_taken_over_is_a_problem_of_the_plan(workspace: Workspace) -> None:
    workspace.write(["a"])
    (problem,) = plan(workspace, "job.yml", "--since", "nobody", code=1)["problems"]
    assert "no job named 'nobody'" in problem and "has no runs" in problem
    assert not workspace.state.exists()
    assert workspace.run("run", "job.yml", "--no-progress").returncode == 0
    (problem,) = plan(workspace, "job.yml", "--since", "nobody", code=1)["problems"]
    assert "no job named 'nobody'" in problem and "windrow job list" in problem
    rows = ("--set", "jobs.score.task.append_row_to=null")
    done = workspace.run("run", "--dry-run", "job.yml", "--since", "last", *rows)
    assert done.returncode == 1 and "the form of its rows has changed" in done.stdout, done.stdout + done.stderr


def test_a_plan_tells_how_many_workers_fit_here(workspace: Workspace) -> None:
    workspace.write(["a", "b"])
    needs = "jobs.score.resources.cpus_per_worker"
    (step,) = plan(workspace, "job.yml", "--slots", "5", "--set", f"{needs}=3")["steps"]
    assert (step["room"]["cpus"], step["room"]["workers"]) == (3.0, 1)
    told = workspace.run("run", "--dry-run", "job.yml", "--slots", "5", "--set", f"{needs}=3").stdout
    assert "at most 1 at a time on this machine; each takes 3 processors" in told


def test_a_worker_that_does_not_fit_here_is_a_problem_of_the_plan(workspace: Workspace) -> None:
    workspace.write(["a", "b"])
    document = plan(workspace, "job.yml", "--slots", "2", "--set", "jobs.score.resources.cpus_per_worker=3", code=1)
    (problem,) = document["problems"]
    assert "a worker needs 3 processors (cpus_per_worker), and this machine has 2 processors" in problem
