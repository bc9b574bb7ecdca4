"""`windrow job logs`: what it shows of a job that has ended, and of one that runs."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest
from reported_job import ReportedJob
from windrow_command import WINDROW


def logs(job: ReportedJob, *arguments: str, code: int = 0) -> str:
    found, text = job.windrow("job", "logs", job.job_id, *arguments)
    assert found == code, text
    return text


def test_all_failures_with_their_tracebacks_the_newest_last(reported: ReportedJob) -> None:
    failures = json.loads(logs(reported, "--failed", "--format", "json"))
    assert len(failures) == 4
    assert [failure["time"] for failure in failures] == sorted(failure["time"] for failure in failures)
    text = logs(reported, "--failed")
    heads = [line for line in text.splitlines() if "mini-batch" in line]
    assert len(heads) == 4 and "mini-batch 0, try 1: run() took longer" in heads[0]
    assert text.count("Traceback (most recent call last):") == 3
    cut = logs(reported, "--failed", "--tail", "1", "--format", "json")
    assert "These are the newest 1 of 4" in cut and cut.count('"head"') == 1
    last = logs(reported, "--failed", "--tail", "1")
    assert "These are the newest 1 of 4" in last and heads[-1] in last and heads[0] not in last
    assert logs(reported, "--failed", "--mini-batch", "3").count("mini-batch ") == 1
    assert "show no failure" in logs(reported, "--failed", "--mini-batch", "2")


def test_what_the_logs_tell_of_a_mini_batch(reported: ReportedJob) -> None:
    text = logs(reported, "--mini-batch", "0")
    assert "mini-batch 0, try 1: timeout" in text and "mini-batch 0, try 2: done" in text
    assert "mini-batch 1" not in text
    assert "run() took longer than 2 s" in text
    assert "process000.stdout.txt" in text and "process001.stdout.txt" in text
    told = json.loads(logs(reported, "--mini-batch", "0", "--format", "json"))
    assert [len(told["attempts"]), len(told["failures"])] == [2, 1]


def test_a_number_of_no_mini_batch_is_told_as_that(reported: ReportedJob) -> None:
    for number in ("99", str(1 << 32), str((1 << 63) - 1), "9" * 30):
        assert f"mini-batch {number}" in logs(reported, "--mini-batch", number, code=2)


def test_what_a_worker_wrote_and_did(reported: ReportedJob) -> None:
    text = logs(reported, "--worker", "process001")
    assert "==> score/user/stdout/" in text and "ready\ndone\n" in text
    assert "mini-batch 4, try 1: done" in text and "process000" not in text
    (node,) = {path.parent.name for path in reported.logs.glob("score/sys/node/*/process001.txt")}
    assert logs(reported, "--worker", f"{node}/process001") == text
    assert "process000" in logs(reported, "--node", node)
    assert "no logs of that worker or node" in logs(reported, "--worker", "elsewhere/process001", code=2)


def test_names_are_listed_and_chosen(reported: ReportedJob) -> None:
    listed = [file["path"] for file in json.loads(logs(reported, "--format", "json"))]
    assert {"job_result.txt", "readme.txt", "score/job_result.txt", "score/sys/master_role.1.txt"} <= set(listed)
    assert not [path for path in listed if "/." in f"/{path}"], "what is Windrow's own is not shown"
    assert logs(reported, "job_result.txt").startswith(f"Job {reported.job_id}: CompletedWithFailures")
    step = [file["path"] for file in json.loads(logs(reported, "--step", "score", "--format", "json"))]
    assert step == [path for path in listed if path.startswith("score/")]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("job_result.txt", "--failed"), "PATH names one file"),
        (("--failed", "--follow"), "Leave out --follow"),
        (("--tail", "3"), "--tail needs"),
        (("--worker", "node/abc"), "write NODE/process003"),
        (("--worker", "a/process001", "--node", "b"), "Leave one of them out"),
    ],
)
def test_what_does_not_go_together_is_refused(reported: ReportedJob, arguments: tuple[str, ...], said: str) -> None:
    assert said in logs(reported, *arguments, code=2)


def test_several_logs_are_followed_while_a_job_runs_and_to_its_end(tmp_path: Path) -> None:
    job, gate = ReportedJob(tmp_path / "job"), tmp_path / "gate"
    script = job.folder / "code" / "entry.py"
    waits = f'print("ready", flush=True)\n    while not os.path.exists({str(gate)!r}):\n        time.sleep(0.01)'
    script.write_text(script.read_text().replace('print("ready")', waits))
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    run = subprocess.Popen([WINDROW, "run", "job.yml", "--no-progress"], cwd=job.folder, **quiet)
    try:
        deadline = time.monotonic() + 60
        while not list(job.folder.glob(".windrow/jobs/*/logs/score/user/stdout/*/*")):
            assert time.monotonic() < deadline and run.poll() is None
            time.sleep(0.01)
        _, early = job.windrow("job", "logs", job.job_id, "job_result.txt")
        follow = [WINDROW, "job", "logs", job.job_id, "--follow"]
        lines: list[str] = []
        with subprocess.Popen(follow, cwd=job.folder, stdout=subprocess.PIPE, text=True) as following:
            assert following.stdout is not None
            for line in following.stdout:
                lines.append(line)
                if "| ready" in line:
                    gate.touch()
        assert following.returncode == 0
    finally:
        gate.touch()
        run.wait(60)
    assert f"windrow job explain {job.job_id}" in early
    for wanted in ("stdout | ready", "stdout | done", "error | Traceback (most", "overview | ", "log | "):
        assert any(wanted in line for line in lines), (wanted, lines)
    assert sum("| ready" in line for line in lines) == 2, "each line once"
    assert any("Completed: 8 items ok, 2 failed" in line for line in lines), "to the end"
