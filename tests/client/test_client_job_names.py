"""How jobs are named on the command line: a beginning of the name, `last`, `JOB:STEP`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import windrow
from client_workspace import Workspace, served_master, wait_until
from windrow.cli.options.completion import job_and_step_names, job_names
from windrow.errors import NotFound, UsageError
from windrow.sdk import job_names as names

RUNS = ["sort-a", "sort-b", "digits"]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Three runs, each with a failed item, the newest named `digits`."""
    workspace = Workspace(tmp_path_factory.mktemp("names"))
    for name in RUNS:
        workspace.write(["a", "raise"], name=f"name: {name}")
        done = workspace.run("run", "job.yml", "--no-progress", "--restart", "--tolerate")
        assert done.returncode == 0, done.stderr
    return workspace


@pytest.mark.parametrize(("name", "meant"), [("last", "digits"), ("d", "digits"), ("sort-a", "sort-a")])
def test_every_command_takes_any_name(ended: Workspace, tmp_path: Path, name: str, meant: str) -> None:
    for command in ("job show", "job explain", "job report", "job logs", "mb list", "job cancel"):
        more = ("--failed",) if command == "job logs" else ()
        done = ended.run(*command.split(), name, *more, "--format", "json")
        assert done.returncode == 0, done.stderr
        assert meant in done.stdout or command in ("job logs", "mb list"), command
    assert meant in ended.run("job", "report", name, "--to", "-").stdout
    assert ended.run("job", "stream", name, "--tolerate").stdout.count(f"Run {meant}") <= 1
    done = ended.run("job", "download", name, "--to", str(tmp_path), "--format", "json")
    assert json.loads(done.stdout)["job_id"] == meant
    done = ended.run("mb", "show", name, "1", "--format", "json")
    assert f"windrow mb replay {meant} 1" in json.loads(done.stdout)["replay"]
    assert f"job {meant}." in ended.run("mb", "replay", name, "0").stderr


def test_a_retry_takes_any_name(ended: Workspace) -> None:
    done = ended.run("job", "retry", "sort-b", "--tolerate", "--format", "json")
    begin = json.loads(done.stdout.splitlines()[0])
    assert (done.returncode, begin["job"]["job_id"]) == (0, "sort-b"), done.stderr
    done = ended.run("job", "retry", "last", "--tolerate", "--format", "json")
    assert json.loads(done.stdout.splitlines()[0])["job"]["job_id"] == "digits", done.stdout + done.stderr


def test_results_are_taken_over_by_any_name(ended: Workspace) -> None:
    done = ended.run("run", "job.yml", "--dry-run", "--since", "sort-b", "--restart", "--format", "json")
    assert json.loads(done.stdout)["since"] == "sort-b", done.stderr
    done = ended.run("run", "job.yml", "--dry-run", "--since", "dig", "--restart", "--format", "json")
    assert json.loads(done.stdout)["since"] == "digits", done.stderr
    done = ended.run("run", "job.yml", "--dry-run", "--since", "sort", "--restart", "--format", "json")
    assert any("--since sort may mean sort-b, sort-a" in note for note in json.loads(done.stdout)["notes"])


def test_a_run_takes_results_over_by_any_name(workspace: Workspace) -> None:
    workspace.write(["a"], name="name: first")
    # The result of a file that is as new as the job is not taken over: it could have changed while it was read.
    changed = (workspace.folder / "data" / "item000.txt").stat().st_ctime
    wait_until(lambda: time.time() > changed + 2.1, "the file is old enough", 30)
    assert workspace.run("run", "job.yml").returncode == 0
    done = workspace.run("run", "job.yml", "--since", "fir", "--restart", "--format", "json")
    end = json.loads(done.stdout.splitlines()[-1])
    assert (end["job"]["job_id"], end["job"]["steps"][0]["items"]["taken_over"]) == ("first-2", 1), done.stderr
    done = workspace.run("run", "job.yml", "--since", "fir", "--restart")
    assert (done.returncode, "begin with fir: first-2, first." in done.stderr) == (2, True), done.stderr


def test_an_ambiguous_beginning_lists_what_it_may_mean(ended: Workspace) -> None:
    done = ended.run("job", "show", "sort")
    assert done.returncode == 2
    assert done.stderr == ("windrow: The names of 2 jobs begin with sort: sort-b, sort-a. Write more of the name.\n")
    done = ended.run("job", "show", "nope")
    assert (done.returncode, "windrow job list" in done.stderr) == (2, True)


def test_a_step_is_named_with_its_job(ended: Workspace) -> None:
    def out(*arguments: str) -> str:
        done = ended.run(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert out("mb", "list", "last:score") == out("mb", "list", "digits", "--step", "score")
    assert out("mb", "show", "last:score", "1") == out("mb", "show", "digits", "score/1")
    assert out("job", "logs", "last:score", "--failed") == out("job", "logs", "digits", "--failed", "--step", "score")
    assert out("mb", "list", "last:score", "--step", "score") == out("mb", "list", "last")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("mb list last:score --step other", "last:score names the step score, but the step other is given as well"),
        ("mb show last:score other/1", "the step other is given as well"),
        ("job show last:score", "this command is about a whole job. Write last alone"),
        ("job retry last:score", "this command is about a whole job"),
        ("mb list last:", "Write JOB, or JOB:STEP"),
        ("mb list last:nope", "nope"),
    ],
)
def test_a_step_that_makes_no_sense_is_refused(ended: Workspace, arguments: str, said: str) -> None:
    done = ended.run(*arguments.split())
    assert (done.returncode, said in done.stderr) == (2, True), done.stdout + done.stderr


def test_python_finds_jobs_by_such_names_only_when_asked(ended: Workspace) -> None:
    with windrow.Client(state=ended.state) as client:
        assert [client.find(name).job_id for name in ("last", "dig", "sort-a")] == ["digits", "digits", "sort-a"]
        with pytest.raises(UsageError, match="sort-b, sort-a"):
            client.find("sort")
        for name in ("last", "dig"):
            with pytest.raises(NotFound):
                client.get(name)


def test_the_shell_completes_them(ended: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    with served_master(ended, ended.folder / "data", ended.state) as address:
        monkeypatch.setenv("WINDROW_MASTER", address)
        assert job_names("") == ["last", "digits", "sort-b", "sort-a"]
        assert job_names("l") == ["last"]
        assert job_and_step_names("sort") == ["sort-b", "sort-a"]
        assert job_and_step_names("last:s") == ["last:score"]
        assert job_and_step_names("sort:s") == []


def test_there_is_no_last_job_yet(workspace: Workspace) -> None:
    with served_master(workspace, workspace.folder) as address:
        done = workspace.run("job", "show", "last", WINDROW_MASTER=address)
        assert (done.returncode, "There is no job yet" in done.stderr) == (2, True)


class _Jobs:
    """Jobs by name, as a client finds them."""

    def __init__(self, *job_ids: str) -> None:
        self._jobs = [windrow.Job(job_id, "", windrow.JobState.COMPLETED) for job_id in job_ids]

    def get(self, job_id: str) -> windrow.Job:
        for job in self._jobs:
            if job.job_id == job_id:
                return job
        raise NotFound(f"no {job_id}")

    def list_jobs(self) -> Iterator[windrow.Job]:
        return iter(self._jobs)


def test_a_whole_name_goes_before_a_beginning_and_before_last() -> None:
    jobs = _Jobs("a-2", "a", "last")
    assert [names.find(jobs, name).job_id for name in ("a", "last", "l")] == ["a", "last", "last"]
    with pytest.raises(NotFound, match=r"no $"):
        names.find(jobs, "")


def test_at_most_five_candidates_are_listed() -> None:
    with pytest.raises(UsageError, match="of 7 jobs begin with j: j0, j1, j2, j3, j4 and 2 more"):
        names.find(_Jobs(*(f"j{number}" for number in range(7))), "j")
