"""kill -9 of every process of `windrow run`: the run goes on, by itself or with the same command; nothing is left."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from client_workspace import Workspace, end, kill, wait_until
from windrow.embedded.state_folder import is_owned, read_endpoint


@pytest.mark.parametrize("module", ["windrow_master", "windrow_agent"])
def test_a_killed_process_is_started_again_and_the_output_is_whole(workspace: Workspace, module: str) -> None:
    contents = ["a", "b", "wait", "c", "wait"]
    workspace.write(contents)
    run = workspace.start("run", "job.yml", "--format", "json")
    wait_until(lambda: _published(workspace, "agent_pid"), "the run serves")
    first = wait_until(lambda: workspace.pid_of(module), f"{module} runs")
    kill(first)
    wait_until(lambda: workspace.pid_of(module) not in (None, first), f"another {module} runs")
    workspace.gate.touch()
    stdout, stderr = end(run)
    assert run.returncode == 0, stdout + stderr
    events = [json.loads(line) for line in stdout.splitlines()]
    assert any("died by SIGKILL" in event.get("message", "") for event in events)
    assert workspace.rows.read_text() == workspace.expected(contents)
    assert workspace.processes() == []


def test_no_process_outlives_a_killed_command_and_the_same_command_goes_on(workspace: Workspace) -> None:
    contents = ["a", "wait", "b"]
    workspace.write(contents)
    run = workspace.start("run", "job.yml")
    endpoint = wait_until(lambda: _published(workspace, "agent_pid"), "the run serves")
    run_folder = endpoint["address"].removeprefix("unix:").rpartition("/")[0]
    kill(run.pid)
    run.communicate()
    wait_until(lambda: not workspace.processes(), "no process is left")
    workspace.gate.touch()
    done = workspace.run("run", "job.yml")
    assert done.returncode == 0, done.stderr
    assert workspace.rows.read_text() == workspace.expected(contents)
    assert not _exists(run_folder)


def test_everything_killed_at_once_is_cleared_up_by_the_same_command(workspace: Workspace) -> None:
    contents = ["a", "wait", "b"]
    workspace.write(contents)
    run = workspace.start("run", "job.yml")
    endpoint = wait_until(lambda: _published(workspace, "agent_pid"), "the run serves")
    run_folder = endpoint["address"].removeprefix("unix:").rpartition("/")[0]
    # Stopped first, it starts nothing again; killed last, nobody sees its end.
    run.send_signal(signal.SIGSTOP)
    for process in workspace.processes():
        if process.pid != run.pid:
            with contextlib.suppress(ProcessLookupError):
                kill(process.pid)
    kill(run.pid)
    run.communicate()
    assert _exists(run_folder)
    workspace.gate.touch()
    done = workspace.run("run", "job.yml")
    assert done.returncode == 0, done.stderr
    assert workspace.rows.read_text() == workspace.expected(contents)
    assert not _exists(run_folder)
    assert workspace.processes() == []


@pytest.mark.parametrize("with_master", [False, True], ids=["command", "command and master"])
def test_a_command_killed_at_its_very_beginning_leaves_no_socket_folder(
    workspace: Workspace, with_master: bool
) -> None:
    """Before anybody was told where it listens, and before the master can clear up after itself."""
    workspace.write(["wait"])
    run = workspace.start("run", "job.yml")
    folder = wait_until(lambda: _linked(workspace), "the folder of the socket is known")
    wait_until(lambda: workspace.pid_of("windrow_master"), "the master is started")
    run.send_signal(signal.SIGSTOP)
    if with_master:
        kill(wait_until(lambda: workspace.pid_of("windrow_master"), "the master is there"))
    kill(run.pid)
    run.communicate()
    wait_until(lambda: not workspace.processes(), "no process is left")
    if with_master:
        workspace.gate.touch()
        done = workspace.run("run", "job.yml")
        assert done.returncode == 0, done.stderr
    assert not _exists(folder)
    assert not (with_master and _linked(workspace))


def test_the_same_command_at_once_after_a_kill_waits_for_the_former_processes(workspace: Workspace) -> None:
    contents = ["a", "wait", "b"]
    workspace.write(contents)
    run = workspace.start("run", "job.yml")
    wait_until(lambda: _published(workspace, "agent_pid"), "the run serves")
    workspace.gate.touch()
    kill(run.pid)
    done = workspace.run("run", "job.yml")
    run.communicate()
    assert done.returncode == 0, done.stderr
    assert workspace.rows.read_text() == workspace.expected(contents)


def test_an_end_that_a_killed_command_could_not_tell_is_told_by_the_next_one(workspace: Workspace) -> None:
    contents = ["a", "wait", "b"]
    workspace.write(contents)
    _kill_after_the_end(workspace)
    done = workspace.run("run", "job.yml")
    assert done.returncode == 0, done.stderr
    assert "has already finished" in done.stderr and "--restart" in done.stderr
    assert "Completed: 3 items in 3 mini-batches" in done.stdout
    assert workspace.rows.read_text() == workspace.expected(contents)
    # It is told now: the same command means a new run.
    again = workspace.run("run", "job.yml")
    assert again.returncode == 0 and "Completed: 3 items" in again.stdout
    assert "has already finished" not in again.stderr


@pytest.mark.parametrize("change", ["no output", "another script", "--restart"])
def test_an_untold_end_is_not_told_where_a_new_run_is_meant(workspace: Workspace, change: str) -> None:
    contents = ["a", "wait", "b"]
    workspace.write(contents)
    _kill_after_the_end(workspace)
    if change == "no output":
        workspace.rows.unlink()
    if change == "another script":
        script = workspace.folder / "code" / "score.py"
        script.write_text(script.read_text() + "# changed\n")
    done = workspace.run("run", "job.yml", *(["--restart"] if change == "--restart" else []))
    assert done.returncode == 0, done.stderr
    assert "has already finished" not in done.stderr
    assert workspace.rows.read_text() == workspace.expected(contents)


def test_a_second_command_attaches_and_takes_over_when_the_first_is_killed(workspace: Workspace) -> None:
    contents = ["a", "wait", "b"]
    workspace.write(contents)
    first = workspace.start("run", "job.yml")
    wait_until(lambda: _published(workspace, "agent_pid"), "the run serves")
    second = workspace.start("run", "job.yml", "--format", "json")
    assert second.stdout is not None
    seen: list[str] = []
    for line in second.stdout:
        seen.append(line)
        if "Attached to" in line:
            break
    masters = [p for p in workspace.processes() if "windrow_master" in " ".join(p.cmdline())]
    assert len([p for p in masters if p.status() != psutil.STATUS_ZOMBIE]) == 1
    kill(first.pid)
    first.communicate()
    workspace.gate.touch()
    stdout, stderr = end(second)
    assert second.returncode == 0, "".join(seen) + stdout + stderr
    assert workspace.rows.read_text() == workspace.expected(contents)
    assert workspace.processes() == []


def test_an_attached_command_leaves_the_run_alone(workspace: Workspace) -> None:
    contents = ["a", "wait"]
    workspace.write(contents)
    first = workspace.start("run", "job.yml")
    wait_until(lambda: _published(workspace, "agent_pid"), "the run serves")
    second = workspace.start("run", "job.yml", "--format", "json")
    assert second.stdout is not None
    for line in second.stdout:
        if "Attached to" in line:
            break
    second.send_signal(signal.SIGINT)
    stdout, _ = end(second)
    assert second.returncode == 130
    assert "continues in process" in stdout
    assert is_owned(str(workspace.state))
    workspace.gate.touch()
    _, stderr = end(first)
    assert first.returncode == 0, stderr
    assert workspace.rows.read_text() == workspace.expected(contents)


def test_a_master_that_cannot_begin_is_told_with_its_own_words(workspace: Workspace) -> None:
    workspace.write(["a"])
    workspace.state.mkdir()
    (workspace.state / "windrow.db").write_text("this is no database " * 100)
    done = workspace.run("run", "job.yml")
    assert done.returncode == 5
    assert "windrow.db" in done.stderr
    assert "Traceback" not in done.stderr
    assert workspace.processes() == []


def test_a_master_that_dies_again_and_again_ends_the_run_with_its_state_kept(workspace: Workspace) -> None:
    workspace.write(["a", "wait"])
    run = workspace.start("run", "job.yml")
    wait_until(lambda: _published(workspace, "agent_pid"), "the run serves")
    killed: set[int] = set()
    while run.poll() is None:
        pid = workspace.pid_of("windrow_master")
        if pid is not None and pid not in killed:
            killed.add(pid)
            with contextlib.suppress(ProcessLookupError):
                kill(pid)
    _, stderr = end(run)
    assert run.returncode == 5, stderr
    assert "died 6 times within a minute" in stderr
    assert "the same command continues it" in stderr
    assert workspace.processes() == []
    workspace.gate.touch()
    assert workspace.run("run", "job.yml").returncode == 0
    assert workspace.rows.read_text() == workspace.expected(["a", "wait"])


def test_questions_about_an_interrupted_run_are_answered_and_nothing_runs(workspace: Workspace) -> None:
    workspace.write(["a", "wait"])
    run = workspace.start("run", "job.yml", "--format", "json")
    assert run.stdout is not None
    for line in run.stdout:
        if json.loads(line).get("job", {}).get("steps", [{}])[0].get("mini_batches", {}).get("succeeded"):
            break
    kill(run.pid)
    run.communicate()
    [job] = json.loads(workspace.run("job", "list", "--format", "json").stdout)
    assert job["state"] == "running" and job["interrupted"]
    again = f"or by: windrow job retry {job['job_id']}"
    listed, shown = workspace.run("job", "list", "--only", "interrupted"), workspace.run("job", "show", job["job_id"])
    for told in (listed, shown):
        assert told.returncode == 0 and "interrupted" in told.stdout and again in told.stdout
    assert "running" not in listed.stdout + shown.stdout
    assert "no run is live; 1 job interrupted" in workspace.run("top", "--once").stdout
    assert "These are nodes of runs that have ended." in workspace.run("node", "list").stdout
    stream = workspace.run("job", "stream", job["job_id"])
    assert stream.returncode == 130
    assert "no process runs it" in stream.stderr and again in stream.stderr
    cancelled = workspace.run("job", "cancel", job["job_id"], "--wait")
    assert cancelled.stdout.strip() == f"{job['job_id']} is cancelled."
    workspace.gate.touch()
    fresh = workspace.run("run", "job.yml")
    assert "Continuing" not in fresh.stderr
    assert fresh.returncode == 0


def _kill_after_the_end(workspace: Workspace) -> None:
    """Run the job with a command that is stopped before the end and killed after it."""
    run = workspace.start("run", "job.yml")
    wait_until((workspace.state / "untold").exists, "the run has begun")
    run.send_signal(signal.SIGSTOP)
    workspace.gate.touch()
    wait_until(workspace.rows.exists, "the output is there")
    wait_until(lambda: "completed" in workspace.run("job", "list", "--format", "json").stdout, "the job has ended")
    kill(run.pid)
    run.communicate()
    wait_until(lambda: not workspace.processes(), "no process is left")


def _linked(workspace: Workspace) -> str:
    link = workspace.state / "socket"
    return str(link.readlink()) if link.is_symlink() else ""


def _published(workspace: Workspace, key: str) -> dict[str, object] | None:
    endpoint = read_endpoint(str(workspace.state))
    return endpoint if endpoint is not None and endpoint.get(key) else None


def _exists(folder: str) -> bool:
    from pathlib import Path

    return Path(folder).exists()


def test_a_master_that_ends_by_itself_leaves_the_folder_of_its_socket_to_who_started_it(tmp_path: Path) -> None:
    """The agent may still be on its way to its configuration there, and would fail with a riddle of its own."""
    folder = tmp_path / "windrow-run"
    folder.mkdir()
    (folder / "agent.json").write_text("{}")
    child = subprocess.Popen(
        [sys.executable, "-m", "windrow.embedded.child", "this"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "WINDROW_RUN_FOLDER": str(folder)},
    )
    assert child.wait(240) == 0
    assert child.stdin is not None
    child.stdin.close()
    assert (folder / "agent.json").exists()
