"""What the commands say of a job, beside what they do with it: once, and only what is true."""

from __future__ import annotations

import json

import pytest
from client_workspace import Workspace, end, wait_until
from windrow.cli.display.typed_words import as_typed
from windrow.common.failure_kinds import FailureKind
from windrow.sdk.job import Job, JobState, Step


def ended_job(workspace: Workspace) -> str:
    return str(json.loads(workspace.run("job", "list", "--format", "json").stdout)[0]["job_id"])


def test_logs_are_pointed_to_where_there_are_some(workspace: Workspace) -> None:
    workspace.write(["raise"], error_threshold=0)
    done = workspace.run("run", "job.yml", "--state", "my state")
    assert done.returncode == 1
    [line] = [line for line in done.stdout.splitlines() if line.startswith("What the script printed")]
    assert line.endswith(" --state 'my state'")
    shown = workspace.run("job", "show", line.split(" --state")[0].split()[-1], "--state", "my state")
    assert line in shown.stdout


def test_what_failed_is_pointed_to_and_can_be_read(workspace: Workspace) -> None:
    workspace.write(["a", "raise"], error_threshold=0)
    done = workspace.run("run", "job.yml")
    assert done.returncode == 1
    [line] = [line for line in done.stdout.splitlines() if "1 failed item of step" in line]
    words = line.partition(": ")[2].split()
    read = workspace.run(*words[1:])
    assert read.returncode == 0
    assert [row.split(",")[1] for row in read.stdout.splitlines()] == ["cause", "exception"]


def test_logs_are_not_pointed_to_where_no_script_ran(workspace: Workspace) -> None:
    workspace.write([])
    done = workspace.run("run", "job.yml")
    assert done.returncode == 1
    assert "contains no files" in done.stdout
    assert "windrow job logs" not in done.stdout
    shown = workspace.run("job", "show", ended_job(workspace))
    assert "windrow job logs" not in shown.stdout
    assert shown.stdout.count("contains no files") == 1
    # Windrow's own words are there; of the script nothing.
    logs = workspace.run("job", "logs", ended_job(workspace)).stdout
    assert "job_result.txt" in logs and "/user/" not in logs
    fetched = workspace.run("job", "download", ended_job(workspace))
    assert fetched.returncode == 1
    assert "is failed" in fetched.stderr and "contains no files" in fetched.stderr


def test_an_option_of_a_log_file_without_one_is_refused(workspace: Workspace) -> None:
    done = workspace.run("job", "logs", "some-job", "--tail=3")
    assert done.returncode == 2
    assert "needs the name of a log file" in done.stderr


def test_a_stream_of_a_running_job_names_it_a_job(workspace: Workspace) -> None:
    workspace.write(["wait", "1"])
    run = workspace.start("run", "job.yml")
    wait_until(lambda: workspace.run("job", "list", "--format", "json").stdout.count('"running"'), "the job runs")
    name = ended_job(workspace)
    stream = workspace.start("job", "stream", name)
    assert stream.stderr is not None
    first = stream.stderr.readline()
    workspace.gate.touch()
    assert first == f"Job {name} (running)\n"
    assert end(stream)[0].splitlines()[-1] == f"Output: {workspace.rows}"
    end(run)


@pytest.mark.parametrize("form", ["{}={}", "{} {}"])
def test_a_typed_option_wins_over_the_environment(workspace: Workspace, form: str) -> None:
    workspace.write(["1"])
    assert workspace.run("run", "job.yml", "--state", "mine").returncode == 0
    typed = form.format("--state", "mine").split()
    done = workspace.run("job", "list", *typed, "--format", "json", WINDROW_MASTER="127.0.0.1:1")
    assert len(json.loads(done.stdout)) == 1
    typed = form.format("--master", "127.0.0.1:no").split()
    done = workspace.run("job", "list", *typed, WINDROW_STATE="mine")
    assert done.returncode == 2
    assert "127.0.0.1:no" in done.stderr
    both = workspace.run("job", "list", "--state", "mine", "--master", "127.0.0.1:1")
    assert both.returncode == 2
    assert "are mutually exclusive" in both.stderr


def test_settings_of_a_run_without_a_job_file_are_named_as_they_were_typed() -> None:
    """What the script says stays."""
    told = "took longer (retry_settings.timeout). Make mini_batch_size smaller"
    said, marked = "run() raised ValueError: mini_batch_size (score.py, line 3)", "no mini_batch_size in its header"
    kinds = [
        FailureKind(cause, error, "", 1, 1, 1, 1, 0, message, "", "node", 0)
        for cause, error, message in (("timeout", "", told), ("exception", "ValueError", said), ("marked", "", marked))
    ]
    job = Job("j", "", JobState.FAILED, message=told, steps=(Step("s", "failed", failure_kinds=tuple(kinds)),))
    made = as_typed(job, {"job_file": "/s/.windrow/one-line/rows.csv-1/job.yml"})
    expected = "took longer (--timeout). Make --mini-batch-size smaller"
    assert made.message == expected
    assert [kind.message for kind in made.steps[0].failure_kinds] == [expected, said, marked]
    assert as_typed(job, {"job_file": "/s/job.yml"}) == job
