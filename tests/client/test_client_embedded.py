"""The embedded mode from Python, and questions to a state folder whose run is over."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import windrow
from client_workspace import DEADLINE_S, Workspace, wait_until
from windrow.cli.options.shared import open_client
from windrow.embedded.session import OwnerGone, open_session
from windrow.embedded.state_folder import claim, is_owned, prepare, read_endpoint
from windrow.errors import JobFailed, RunChanged, StateFolderError, UsageError
from windrow.ml import MLClient
from windrow.spec import JobFileError


def test_run_returns_rows_and_tells_progress(workspace: Workspace) -> None:
    contents = ["a", "b", "c"]
    workspace.write(contents)
    seen: list[windrow.Job] = []
    done = windrow.run(workspace.job_file, state=workspace.state, on_progress=seen.append)
    assert done.succeeded
    assert list(done.results()) == workspace.expected(contents).splitlines()
    assert done.to_dataframe().shape == (3, 2)
    assert seen[-1].state.ended
    assert not is_owned(str(workspace.state))


def test_a_failed_job_raises_with_its_main_cause_and_what_to_do(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WINDROW_MASTER", raising=False)
    workspace.write(["a", "raise", "b", "raise"], error_threshold=0, workers=1)
    with pytest.raises(windrow.JobFailed) as raised:
        windrow.run(workspace.job_file, state=workspace.state)
    job = raised.value.job
    assert job.state is windrow.JobState.FAILED
    first, cause, look, again = str(raised.value).splitlines()
    # Until the first failure has ended the job, the one worker may have begun the other bad mini-batch.
    assert re.match(rf"Job {job.job_id} failed: Step 'score' failed: [12] items? failed", first)
    assert re.match(r"score: [12] items? in [12] mini-batch(es)? failed with ValueError \(score.py, line ", cause)
    assert "this item is bad: item001.txt" in cause
    assert look == f"To see more: windrow job logs {job.job_id} --failed --state {workspace.state}"
    assert again.endswith(f"windrow job retry {job.job_id} --state {workspace.state}")
    shown = workspace.run(*look.split(": windrow ")[1].split())
    assert shown.returncode == 0 and "this item is bad" in shown.stdout
    with windrow.Client(state=workspace.state) as client:
        with pytest.raises(windrow.JobFailed) as waited:
            client.wait(job.job_id)
        assert str(waited.value) == str(raised.value)
        assert client.wait(job.job_id, check=False) == waited.value.job


def test_unchecked_a_failed_job_is_returned(workspace: Workspace) -> None:
    workspace.write(["raise"], error_threshold=0)
    done = windrow.run(workspace.job_file, state=workspace.state, check=False)
    assert not done.succeeded
    with pytest.raises(JobFailed) as raised:
        done.results()
    assert raised.value.job == done.job


def test_questions_about_a_finished_run_start_a_master_only_for_a_moment(workspace: Workspace) -> None:
    workspace.write(["a"])
    windrow.run(workspace.job_file, state=workspace.state)
    with windrow.Client(state=workspace.state) as client:
        [job] = client.list_jobs()
        assert list(client.results(job.job_id)) == ["item000.txt a"]
        assert client.runs_nothing
    assert workspace.processes() == []
    listed = workspace.run("job", "list", "--format", "json")
    assert [entry["job_id"] for entry in json.loads(listed.stdout)] == [job.job_id]
    refused = workspace.run("job", "create", "job.yml")
    assert refused.returncode == 2
    assert "windrow run" in refused.stderr


def test_a_client_of_a_state_folder_runs_what_it_submits(workspace: Workspace) -> None:
    workspace.write(["a", "raise"], error_threshold=0)
    with windrow.Client(state=workspace.state, new=True) as client:
        assert client.runs_nothing
        job = client.submit(workspace.job_file)
        assert not client.runs_nothing
        assert client.wait(job.job_id, check=False).items.failed == 1
    (workspace.folder / "code" / "score.py").write_text("def run(mini_batch):\n    return ['well'] * len(mini_batch)\n")
    # Whether the first item had a result when the second failed is chance; if so, it stays, and that is warned of.
    with windrow.Client(state=workspace.state) as client, warnings.catch_warnings():
        warnings.simplefilter("ignore", windrow.JobWarning)
        client.retry(job.job_id, workspace.job_file)
        assert client.wait(job.job_id).items.ok == 2
        assert list(client.results(job.job_id))[1] == "well"
    assert workspace.processes() == []


def test_what_nobody_runs_is_not_waited_for(workspace: Workspace) -> None:
    workspace.write(["a", "wait"])
    run = workspace.start("run", "job.yml")
    wait_until(lambda: (read_endpoint(str(workspace.state)) or {}).get("agent_pid"), "the run serves")
    wait_until(lambda: _has_job(workspace), "the job was submitted")
    run.kill()
    run.communicate()
    with windrow.Client(state=workspace.state) as client:
        [job] = client.list_jobs()
        with pytest.raises(UsageError, match=r"is unfinished .* no process runs it"):
            client.wait(job.job_id)
        # This client does not give way to one of another process.
        program = f"import windrow; windrow.Client(state={str(workspace.state)!r}).submit({str(workspace.job_file)!r})"
        second = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        assert second.returncode != 0
        assert "StateFolderError: Another process" in second.stderr and "runs nothing there" in second.stderr
        client.cancel(job.job_id)
        assert client.wait(job.job_id, check=False).state is windrow.JobState.CANCELLED


def test_a_run_says_that_it_waits_for_another_process(workspace: Workspace) -> None:
    workspace.write(["a"])
    windrow.run(workspace.job_file, state=workspace.state)
    with windrow.Client(state=workspace.state) as client:
        list(client.list_jobs())
        run = workspace.start("run", "job.yml")
        assert run.stderr is not None
        told = run.stderr.readline()
        assert f"Waiting for at most 30 s: another windrow process ({os.getpid()})" in told
        assert "Close or end it" in told
    run.communicate(timeout=DEADLINE_S)
    assert run.returncode == 0


def test_another_master_over_the_folder_is_not_taken_for_the_one_that_has_gone(workspace: Workspace) -> None:
    workspace.state.mkdir()
    first = open_session(str(workspace.state), with_agent=False)
    first.wait_ready()
    second = open_session(str(workspace.state), with_agent=False)
    assert second.attached and second.failure() is None
    first.close()
    third = open_session(str(workspace.state), with_agent=False)
    third.wait_ready()
    assert isinstance(second.failure(), OwnerGone)
    third.close()


def test_a_question_outlives_the_process_whose_master_answered(workspace: Workspace) -> None:
    """Two commands at once over one state folder: the one that attached goes on when the other has ended."""
    workspace.write(["a", "b"])
    windrow.run(workspace.job_file, state=workspace.state)
    first, second, third = (windrow.Client(state=workspace.state) for _ in range(3))
    with first, second, third:
        [job] = second.list_jobs()
        assert first.runs_nothing and not second.runs_nothing
        chunks = second.read_log(job.job_id, second.logs(job.job_id)[0].path)
        read = [next(chunks)]
        first.close()
        assert second.get(job.job_id).state.succeeded
        assert second.runs_nothing, "it has the folder now"
        assert third.get(job.job_id).state.succeeded
        assert not third.runs_nothing, "who comes later attaches to it"
        assert list(third.results(job.job_id)) == ["item000.txt a", "item001.txt b"]
        assert [moment.state.ended for moment in third.progress(job.job_id)] == [True]
        assert b"".join(read + list(chunks)), "what was begun is brought to its end"
        second.close()
        assert third.cancel(job.job_id).state.succeeded
    assert workspace.processes() == []


def test_who_asks_for_work_does_not_stand_in_for_a_run_that_has_ended(workspace: Workspace) -> None:
    workspace.state.mkdir()
    owner = open_session(str(workspace.state), with_agent=False)
    owner.wait_ready()
    with open_client(None, workspace.state, live=True) as client:
        owner.close()
        with pytest.raises(OwnerGone):
            client.master()
    assert not is_owned(str(workspace.state))


def test_who_follows_a_job_is_told_when_the_run_that_carried_it_out_was_killed(workspace: Workspace) -> None:
    workspace.write(["a", "wait"])
    run = workspace.start("run", "job.yml")
    wait_until(lambda: (read_endpoint(str(workspace.state)) or {}).get("agent_pid"), "the run serves")
    wait_until(lambda: _has_job(workspace), "the job was submitted")
    with windrow.Client(state=workspace.state) as client:
        [job] = client.list_jobs()
        moments = client.progress(job.job_id)
        next(moments)
        run.kill()
        run.communicate()
        with pytest.raises(OwnerGone, match=r"is unfinished .* the same call in Python\), or by: windrow job retry"):
            list(moments)
    workspace.gate.touch()
    assert workspace.run("run", "job.yml").returncode == 0


def test_a_bad_file_raises_and_leaves_nothing(workspace: Workspace) -> None:
    workspace.write(["a"], mini_batch_size="many")
    with pytest.raises(JobFileError):
        windrow.run(workspace.job_file, state=workspace.state)
    assert workspace.processes() == []


def test_a_changed_run_raises(workspace: Workspace) -> None:
    workspace.write(["a", "wait"])
    run = workspace.start("run", "job.yml")
    wait_until(lambda: (read_endpoint(str(workspace.state)) or {}).get("agent_pid"), "the run serves")
    wait_until(lambda: _has_job(workspace), "the job was submitted")
    run.kill()
    run.communicate()
    workspace.write(["a", "wait"], max_retries=1)
    with pytest.raises(RunChanged, match="\n  keep_rows=True  finish that run"):
        windrow.run(workspace.job_file, state=workspace.state)


def test_importing_windrow_is_cheap() -> None:
    program = (
        "import sys, windrow, windrow.cli; print(sorted(m for m in sys.modules if m.split('.')[0] in sys.argv[1:]))"
    )
    heavy = [
        "grpc",
        "google",
        "yaml",
        "typer",
        "rich",
        "pandas",
        "numpy",
        "asyncio",
        "dataclasses",
        "subprocess",
        "json",
    ]
    done = subprocess.run([sys.executable, "-c", program, *heavy], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_what_runs_before_the_start_of_master_and_agent_is_cheap() -> None:
    """The cold start hangs on it: no module of this list may come back before both processes are on their way."""
    program = (
        "import sys, windrow.cli.running.run_start, windrow.embedded.session; "
        "print(sorted(m for m in sys.modules if m.split('.')[0] in sys.argv[1:]))"
    )
    heavy = [
        "grpc",
        "google",
        "yaml",
        "typer",
        "rich",
        "asyncio",
        "dataclasses",
        "subprocess",
        "json",
        "typing",
        "pathlib",
        "re",
    ]
    done = subprocess.run(
        [sys.executable, "-S", "-E", "-c", _with_path(program), *heavy], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_one_owner_a_state_folder(workspace: Workspace) -> None:
    folder = prepare(str(workspace.state))
    first = claim(folder)
    assert first is not None
    assert claim(folder) is None
    first.publish({"address": "unix:/nowhere", "pid": 1})
    assert read_endpoint(folder) == {"format": 1, "address": "unix:/nowhere", "pid": 1}
    first.release()
    assert read_endpoint(folder) is None
    second = claim(folder)
    assert second is not None
    second.release()


def test_what_a_dead_owner_published_is_not_believed(workspace: Workspace) -> None:
    folder = prepare(str(workspace.state))
    (workspace.state / "embedded.json").write_text('{"address": "unix:/nowhere"}')
    assert read_endpoint(folder) is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_told(workspace: Workspace) -> None:
    workspace.state.mkdir(mode=0o500)
    with pytest.raises(StateFolderError, match="cannot be written"):
        prepare(str(workspace.state))


def _with_path(program: str) -> str:
    from pathlib import Path

    root = str(Path(windrow.__file__).parents[1])
    return f"import sys; sys.path.insert(0, {root!r}); {program}"


def _has_job(workspace: Workspace) -> bool:
    with windrow.Client(state=workspace.state) as client:
        return any(client.list_jobs())


@pytest.mark.parametrize(
    "moment", ["windrow.embedded.session.Supervisor", "windrow.embedded.supervisor.write_agent_config"]
)
def test_interrupted_while_it_starts_it_leaves_nothing_behind(
    workspace: Workspace, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Before the master is started, and after that."""
    workspace.write(["a"])
    runtime = tmp_path_factory.mktemp("run")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))

    def interrupted(*_: object, **__: object) -> None:
        assert list(runtime.iterdir()), "the folder of the socket is there"
        raise KeyboardInterrupt

    monkeypatch.setattr(moment, interrupted)
    open_files = len([*Path("/proc/self/fd").iterdir()])
    with pytest.raises(KeyboardInterrupt):
        windrow.run(workspace.job_file, state=workspace.state)
    assert not list(runtime.iterdir())
    assert workspace.processes() == []
    assert len([*Path("/proc/self/fd").iterdir()]) == open_files


def test_the_environment_says_where_and_how_python_runs_jobs(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.write(["a"])
    monkeypatch.chdir(workspace.folder)
    monkeypatch.setenv("WINDROW_STATE", str(tmp_path / "elsewhere"))
    assert windrow.run("job.yml").succeeded
    assert windrow.map(len, ["a", "bb"]) == [1, 2]
    assert (tmp_path / "elsewhere" / "jobs").is_dir() and not workspace.state.exists()
    monkeypatch.setenv("WINDROW_ENVIRONMENTS", "none")
    with pytest.raises(UsageError, match=r"\$WINDROW_ENVIRONMENTS is 'none'; it must be build or own"):
        windrow.run("job.yml")
    monkeypatch.setenv("WINDROW_ENVIRONMENTS", "own")
    with MLClient() as client:
        client.connection.client()
        session = client.connection.session
        assert session is not None and not session.builds_environments
