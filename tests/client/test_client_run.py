"""`windrow run` for real: private master and agent, a small job, honest ends."""

from __future__ import annotations

import json
import re
import shlex
import signal
import sys
from pathlib import Path

import pytest
from client_workspace import MAIN, Workspace, end, wait_until


def test_a_run_ends_with_its_output_and_no_process(workspace: Workspace) -> None:
    contents = [str(number) for number in range(12)]
    workspace.write(contents, mini_batch_size=2)
    done = workspace.run("run", "job.yml")
    assert done.returncode == 0, done.stderr
    assert workspace.rows.read_text() == workspace.expected(contents)
    assert done.stdout.splitlines()[-1] == f"Output: {workspace.rows}"
    assert workspace.processes() == []
    assert not (workspace.state / "embedded.json").exists()


def test_a_finished_run_is_followed_by_a_new_one(workspace: Workspace) -> None:
    workspace.write(["a"], name="name: nightly")
    assert workspace.run("run", "job.yml").returncode == 0
    assert workspace.run("run", "job.yml").returncode == 0
    listed = workspace.run("job", "list", "--format", "json")
    assert [job["job_id"] for job in json.loads(listed.stdout)] == ["nightly-2", "nightly"]


def test_an_output_of_which_the_script_wrote_nothing_is_not_said_to_be_elsewhere(workspace: Workspace) -> None:
    workspace.write(["a"])
    job = Path(workspace.job_file)
    job.write_text(job.read_text().replace("append_row_to: ${{outputs.rows}}", ""))
    done = workspace.run("run", "job.yml")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"Output: {workspace.rows} (nothing was written there)"


def test_events_as_json_lines(workspace: Workspace) -> None:
    workspace.write(["a", "b", "c"])
    done = workspace.run("run", "job.yml", "--format", "json")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    told = [event["event"] for event in events if event["event"] not in ("progress", "waits")]
    assert told == ["begin", "end"]
    last = events[-1]
    assert last["exit_code"] == done.returncode == 0
    assert last["outputs"] == [str(workspace.rows)]
    assert last["job"]["steps"][0]["items"] == {"total": 3, "ok": 3, "failed": 0, "cancelled": 0, "taken_over": 0}


@pytest.mark.parametrize(
    ("arguments", "settings", "code", "words"),
    [
        ([], {"error_threshold": 0}, 1, "Failed"),
        ([], {"error_threshold": 5}, 0, "failed_items.csv"),
        (["--strict"], {"error_threshold": 5}, 3, "failed_items.csv"),
    ],
)
def test_failures_and_exit_codes(
    workspace: Workspace, arguments: list[str], settings: dict[str, int], code: int, words: str
) -> None:
    contents = ["a", "raise", "b"]
    workspace.write(contents, **settings)
    done = workspace.run("run", "job.yml", *arguments)
    assert done.returncode == code, done.stdout + done.stderr
    assert words in done.stdout.splitlines()[-1]
    assert "this item is bad: item001.txt" in done.stdout
    if code != 1:
        assert workspace.rows.read_text() == workspace.expected(contents)
        assert str(workspace.rows) in done.stdout.splitlines()[-1]


def test_a_bad_job_file_tells_all_its_errors_and_leaves_no_process(workspace: Workspace) -> None:
    workspace.write(["a"], mini_batch_size="many", error_threshold=-7)
    done = workspace.run("run", "job.yml")
    assert done.returncode == 2
    assert "mini_batch_size" in done.stderr
    assert "error_threshold" in done.stderr
    assert "Traceback" not in done.stderr
    assert workspace.processes() == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "nothing.yml"], "nothing.yml"),
        (["run"], "Missing argument"),
        (["run", "job.yml", "--slots", "none"], "slots"),
        (["run", "s.py", "data", "-o", "o.csv", "--k", "1"], "no option --k. Options of the script go behind --"),
        (["run", "s.py", "data", "--restrat"], "no option --restrat. Did you mean --restart?"),
        (["run", "job.yml", "--restart", "--keep-rows"], "are mutually exclusive"),
        (["run", "job.yml", "--python", "/nowhere/python"], "/nowhere/python"),
        (["run", "job.yml", "--state", "job.yml"], "is a file"),
        (["run", "job.yml", "--set", "inputs.dta.path=./x"], "inputs.dta"),
        (["job", "list"], "Which master?"),
        (["job", "list", "--master", "nowhere"], "give its port, too: nowhere:8470"),
        (["job", "list", "--master", "nowhere:"], "not a master address"),
        (["job", "list", "--state", "nothing"], "no Windrow state"),
    ],
)
def test_bad_usage_says_what_is_wrong_and_starts_nothing(
    workspace: Workspace, arguments: list[str], words: str
) -> None:
    workspace.write(["a"])
    done = workspace.run(*arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert words in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert workspace.processes() == []


def test_a_module_of_the_current_folder_shadows_nothing(workspace: Workspace) -> None:
    workspace.write(["a"])
    for name in ("grpc.py", "json.py", "windrow_master.py", "yaml.py"):
        (workspace.folder / name).write_text("raise RuntimeError('the wrong module')\n")
    script = Path(sys.executable).with_name("windrow")
    import subprocess

    done = subprocess.run(
        [script, "run", "job.yml"],
        cwd=workspace.folder,
        env=workspace.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_ctrl_c_keeps_the_state_and_the_same_command_goes_on(workspace: Workspace) -> None:
    contents = ["a", "b", "c", *["wait"] * 4]
    workspace.write(contents)
    run = workspace.start("run", "job.yml", "--format", "json")
    wait_until(lambda: _ended(workspace) >= 3, "the first three items are done")
    run.send_signal(signal.SIGINT)
    # What runs may finish, nothing else is begun: the drain ends when it has.
    wait_until(lambda: '"draining"' in workspace.run("node", "list", "--format", "json").stdout, "the agent drains")
    workspace.gate.touch()
    stdout, stderr = end(run)
    assert run.returncode == 130, stderr
    # What the drain has added is told as well.
    [job] = json.loads(workspace.run("job", "list", "--format", "json").stdout)
    assert json.loads(stdout.splitlines()[-1])["job"]["steps"] == job["steps"]
    assert f"{job['steps'][0]['items']['ok']} of 7 items are done" in stdout
    assert workspace.processes() == []
    (workspace.folder / "data" / "later").write_text("later")
    done = workspace.run("run", "job.yml")
    assert done.returncode == 0
    assert "Continuing run" in done.stderr
    assert re.search(r"Its input is what was listed at 20[-0-9]+ [0-9:]+; what is new since is not in it", done.stderr)
    # How long nobody ran it says nothing of its pace.
    assert " since it was submitted\n" in done.stdout and "items/s" not in done.stdout
    assert workspace.rows.read_text() == workspace.expected(contents)
    assert len(json.loads(workspace.run("job", "list", "--format", "json").stdout)) == 1


@pytest.mark.parametrize("path", [[], ["note.txt"]])
def test_who_follows_the_logs_of_an_interrupted_run_is_told_and_does_not_keep_it_from_going_on(
    workspace: Workspace, path: list[str]
) -> None:
    _interrupt(workspace, ["a", "wait"])
    [job] = json.loads(workspace.run("job", "list", "--format", "json").stdout)
    logs = workspace.state / "jobs" / job["job_id"] / "logs"
    logs.mkdir(exist_ok=True)
    (logs / "note.txt").write_text("so far\n")
    explained = workspace.run("job", "explain", job["job_id"]).stdout
    assert f"the same call in Python), or by: windrow job retry {job['job_id']}\n" in explained
    assert "score: 1 of 2 items done" in explained and "MASTER_HELD" not in explained
    followed = workspace.run("job", "logs", job["job_id"], *path, "--follow")
    assert followed.returncode == 130, followed.stderr
    assert not path or followed.stdout == "so far\n", "what there is is shown"
    assert "was interrupted (1 of 2 items done)" in followed.stderr
    workspace.gate.touch()
    assert workspace.run("run", "job.yml").returncode == 0


def test_a_run_that_has_ended_says_that_it_waits_for_what_others_run(workspace: Workspace) -> None:
    _interrupt(workspace, ["a", "wait"])
    [other] = json.loads(workspace.run("job", "list", "--format", "json").stdout)
    script = "import os\nimport time\n\n\ndef run(b):\n    while not os.path.exists('@'):\n        time.sleep(0.005)\n"
    other_gate = workspace.folder / "other_gate"
    (workspace.folder / "own").mkdir()
    (workspace.folder / "own" / "own.py").write_text(script.replace("@", str(other_gate)) + "    return b\n")
    run = workspace.start("run", "own/own.py", "job.yml", "-o", "own.txt")
    wait_until(
        lambda: '"leased": 1' in workspace.run("job", "show", other["job_id"], "--format", "json").stdout,
        "the other run goes on",
    )
    other_gate.touch()
    assert run.stderr is not None
    for line in run.stderr:
        if "First, 1 running mini-batch of other runs in this state folder may finish, for at most 30 s." in line:
            break
    workspace.gate.touch()
    stdout, stderr = end(run)
    assert run.returncode == 0, stderr
    assert "Completed: 1 item" in stdout


def test_ctrl_c_twice_ends_at_once(workspace: Workspace) -> None:
    workspace.write(["a", "wait"])
    run = workspace.start("run", "job.yml")
    wait_until(lambda: _ended(workspace) >= 1, "the first item is done")
    run.send_signal(signal.SIGINT)
    assert run.stderr is not None
    for line in run.stderr:
        if "Ctrl-C again" in line:
            break
    run.send_signal(signal.SIGINT)
    end(run)
    assert run.returncode == 130
    assert workspace.processes() == []


def test_a_changed_run_is_refused_until_told_what_to_do(workspace: Workspace) -> None:
    _interrupt(workspace, ["a", "wait"])
    script = workspace.folder / "code" / "score.py"
    script.write_text(script.read_text().replace('" " + text', '" changed " + text'))
    workspace.gate.touch()
    refused = workspace.run("run", "job.yml")
    assert refused.returncode == 2
    assert "--restart" in refused.stderr
    assert "--keep-rows" in refused.stderr
    (job,) = json.loads(workspace.run("job", "list", "--format", "json").stdout)
    assert job["state"] == "running", "a refused command has run nothing"
    kept = workspace.run("run", "job.yml", "--keep-rows")
    assert kept.returncode == 0, kept.stderr
    assert workspace.rows.read_text() == workspace.expected(["a", "wait"])
    nothing_left = workspace.run("run", "job.yml", "--keep-rows")
    assert nothing_left.returncode == 2
    assert "no unfinished run" in nothing_left.stderr
    assert workspace.rows.read_text() == workspace.expected(["a", "wait"])


def test_another_mltable_file_is_another_run(workspace: Workspace) -> None:
    _interrupt(workspace, ["a", "wait", "b"], table="paths: [{pattern: 'item*'}]\n")
    (workspace.folder / "data" / "MLTable").write_text("paths: [{file: item000.txt}, {file: item002.txt}]\n")
    workspace.gate.touch()
    refused = workspace.run("run", "job.yml")
    assert refused.returncode == 2
    assert "--restart" in refused.stderr and "MLTable" in refused.stderr
    (workspace.folder / "data" / "MLTable").write_text("paths: [{pattern: 'item*'}]\n")
    undone = workspace.run("run", "job.yml")
    assert undone.returncode == 0 and "Continuing run" in undone.stderr
    assert workspace.rows.read_text() == workspace.expected(["a", "wait", "b"])


def test_restart_drops_the_unfinished_run(workspace: Workspace) -> None:
    _interrupt(workspace, ["a", "wait"])
    script = workspace.folder / "code" / "score.py"
    script.write_text(script.read_text().replace('" " + text', '" changed " + text'))
    workspace.gate.touch()
    done = workspace.run("run", "job.yml", "--restart")
    assert done.returncode == 0, done.stderr
    assert workspace.rows.read_text() == "item000.txt changed a\nitem001.txt changed wait\n"
    states = [job["state"] for job in json.loads(workspace.run("job", "list", "--format", "json").stdout)]
    assert states == ["completed", "cancelled"]


def test_a_closed_pipe_is_no_traceback(workspace: Workspace) -> None:
    workspace.write([str(number) for number in range(30)])
    import subprocess

    line = f"{shlex.quote(sys.executable)} -c '{MAIN}' run job.yml --format json | head -1"
    done = subprocess.run(
        ["sh", "-c", line],
        cwd=workspace.folder,
        env=workspace.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr
    wait_until(lambda: not workspace.processes(), "no process is left")


def _interrupt(workspace: Workspace, contents: list[str], *, table: str = "") -> None:
    """A run that was ended at once when all but its waiting items were done. `table`: an MLTable file beside them."""
    workspace.write(contents)
    if table:
        (workspace.folder / "data" / "MLTable").write_text(table)
        text = workspace.job_file.read_text()
        workspace.job_file.write_text(text.replace("type: uri_folder", "type: mltable"))
    run = workspace.start("run", "job.yml")
    wanted = sum(text != "wait" for text in contents)
    wait_until(lambda: _ended(workspace) >= wanted, "all but the waiting items are done")
    run.send_signal(signal.SIGTERM)
    assert run.stderr is not None
    for line in run.stderr:
        if "Ctrl-C again" in line:
            break
    run.send_signal(signal.SIGTERM)
    end(run)
    assert run.returncode == 130


def _ended(workspace: Workspace) -> int:
    """Mini-batches with an outcome, asked of the live master."""
    from windrow.embedded.state_folder import read_endpoint
    from windrow.errors import WindrowError
    from windrow.sdk.client import Client

    endpoint = read_endpoint(str(workspace.state))
    if endpoint is None:
        return 0
    try:
        with Client(endpoint["address"], patience_s=5) as client:
            return sum(job.mini_batches.ended for job in client.list_jobs())
    except WindrowError:
        return 0
