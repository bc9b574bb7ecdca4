"""`windrow job list`: which jobs, which columns, one line each."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from client_workspace import Workspace
from windrow.cli.jobs import listing as job_list
from windrow.cli.jobs.show import ahead_of
from windrow.cli.jobs.stream import INTERRUPTED
from windrow.common.quantities import brief_duration, roughly
from windrow.errors import UsageError
from windrow.sdk.forecast import Forecast
from windrow.sdk.job import Job, JobState

LONG = "digits-20260501-101500-ab12"


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A run that tolerated failures, and a later one that failed."""
    workspace = Workspace(tmp_path_factory.mktemp("list"))
    workspace.write(["a", "raise"], name=f"name: {LONG}")
    assert workspace.run("run", "job.yml", "--no-progress", "--tolerate").returncode == 0
    workspace.write(["raise", "raise"], name="name: broken", error_threshold=0)
    assert workspace.run("run", "job.yml", "--no-progress").returncode == 1
    return workspace


def names(workspace: Workspace, *arguments: str) -> list[str]:
    done = workspace.run("job", "list", *arguments, "--format", "json")
    assert done.returncode == 0, done.stderr
    return [job["job_id"] for job in json.loads(done.stdout)]


@pytest.mark.parametrize(
    ("arguments", "listed"),
    [
        ("", ["broken", LONG]),
        ("--only failed", ["broken"]),
        ("--only completed_with_failures --only failed", ["broken", LONG]),
        ("--only running", []),
        ("--name digits-*", [LONG]),
        ("--name b?oken", ["broken"]),
        ("--since 2d", ["broken", LONG]),
        ("--since 2000-01-31", ["broken", LONG]),
        ("--since 2999-01-31", []),
        ("--since 1w --name dig* -n 1", [LONG]),
    ],
)
def test_options_narrow_the_list(ended: Workspace, arguments: str, listed: list[str]) -> None:
    assert names(ended, *arguments.split()) == listed


def test_a_job_is_one_line_of_80_columns(ended: Workspace) -> None:
    head, broken, long = ended.run("job", "list").stdout.splitlines()
    assert head.split() == ["JOB", "STATE", "FAILED", "DONE", "AGE"]
    assert long.split()[:4] == [LONG, "completed_with_failures", "1", "100%"]
    assert broken.split()[:2] == ["broken", "failed"]
    assert max(map(len, (head, broken, long))) <= 80


def test_columns_are_chosen(ended: Workspace) -> None:
    lines = ended.run("job", "list", "--columns", "state, job,items,took").stdout.splitlines()
    assert lines[0].split() == ["STATE", "JOB", "ITEMS", "TOOK"]
    assert lines[2].split()[:3] == ["completed_with_failures", LONG, "2"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--columns job,nope", "there is no column 'nope'"),
        ("--since yesterday", "--since yesterday is not a time"),
        ("--since 999999999w", "is not a time"),
    ],
)
def test_mistakes_are_told(ended: Workspace, arguments: str, said: str) -> None:
    done = ended.run("job", "list", *arguments.split())
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr


def test_an_empty_choice_is_not_an_empty_master(ended: Workspace) -> None:
    assert ended.run("job", "list", "--only", "queued").stdout == "No job fits --only, --since and --name.\n"


@pytest.mark.parametrize(("width", "shown"), [(80, LONG), (50, "digits-20260501-1…"), (44, "digits-2026…"), (40, LONG)])
def test_only_names_are_shortened_and_only_if_that_makes_the_list_fit(width: int, shown: str) -> None:
    chosen, cells = ["job", "state", "age"], ["completed_with_failures", "59min"]
    assert job_list._shortened(chosen, [[LONG, *cells]], width) == (chosen, [[shown, *cells]])


@pytest.mark.parametrize(
    ("width", "job", "names"), [(80, "photos-2026", ["sizes"]), (38, "photos-2026", []), (80, "sizes-2026", [])]
)
def test_display_names_are_shown_where_there_is_room_for_what_they_add(width: int, job: str, names: list[str]) -> None:
    columns, row = ["job", "state", "age"], [job, "completed", "59min"]
    expected = ([*columns, *["name"] * len(names)], [[*row, *names]])
    assert job_list._with_names(columns, [row], ["sizes"], width) == expected


def test_place_and_forecast_are_shown_where_a_job_has_them() -> None:
    columns = job_list.DEFAULT_COLUMNS.split(",")

    def cells(*jobs: Job) -> tuple[list[str], list[list[str]]]:
        rows = [[job_list.COLUMNS[column][1](job, "running") for column in columns] for job in jobs]
        return job_list._without_empty(columns, rows)

    ended, late = Job("j", "", JobState.COMPLETED), Job("k", "", JobState.RUNNING, forecast=Forecast(0, 720, late_s=60))
    assert cells(ended)[0] == ["job", "state", "failed", "done", "age"]
    assert cells(ended, late) == (
        ["job", "state", "failed", "done", "forecast", "age"],
        [["j", "running", "", "", "", ""], ["k", "running", "", "", "ends 12min, late", ""]],
    )
    waits = Job("w", "", JobState.RUNNING, place=3, forecast=Forecast(300))
    assert cells(waits)[1] == [["w", "running", "", "", "3", "starts 5min", ""]]


def test_projects_are_shown_where_they_differ_and_there_is_room() -> None:
    rows = [["a"], ["b"]]
    assert job_list._with_projects(["job"], rows, [("x", "ann"), ("y", "ann")], 80) == (
        ["job", "project"],
        [["a", "x"], ["b", "y"]],
    )
    assert job_list._with_projects(["job"], rows, [("x", "ann"), ("y", "bob")], 11) == (["job"], rows)
    assert job_list._with_projects(["job"], rows, [("x", "ann"), ("x", "ann")], 80) == (["job"], rows)


def test_wide_shows_all_that_says_whose_a_job_is(ended: Workspace) -> None:
    head = ended.run("job", "list", "--wide").stdout.splitlines()[0]
    assert head.split()[:8] == ["JOB", "STATE", "PROJECT", "SUBMITTER", "PRIORITY", "LINE", "FORECAST", "DEADLINE"]
    assert "Give one of them" in ended.run("job", "list", "--wide", "--columns", "job").stderr


def test_forecasts_are_told_as_roughly_as_they_are_known() -> None:
    words = [roughly(seconds) for seconds in (0, 7, 12, 89, 100, 3000, 7800, 90_000)]
    assert words == ["a few seconds", "a few seconds", "10 s", "90 s", "2 min", "50 min", "2 h 10 min", "1 d 1 h"]
    found = Forecast(None, 2400, 3300, 4, 2400, 12)
    assert found.deadline_words == "40 min late; 12 more workers would do"
    assert found._replace(more_workers=None).deadline_words == "40 min late; more workers cannot change that"
    assert found._replace(late_s=-7200).deadline_words == "2 h before its deadline"
    job = Job("j", "", JobState.RUNNING, forecast=found)
    assert ahead_of(job) == (
        "likely to end in about 40 min (55 min if the last mini-batches are slow): "
        "40 min late; 12 more workers would do"
    )
    waits = Job("j", "", JobState.RUNNING, place=2, forecast=Forecast(720, 3600))
    assert ahead_of(waits) == "number 2 in line, likely to start in about 12 min and to end in about 1 h"
    assert ahead_of(Job("j", "", JobState.RUNNING, forecast=Forecast(0.0))) == ""


def test_states_of_the_option_are_those_of_jobs() -> None:
    assert {*job_list.JobStateName} == {*JobState} - {JobState.UNKNOWN} | {INTERRUPTED}


def test_moments_and_short_times() -> None:
    now = datetime.now(UTC)
    for text, ago in {"90s": 90, "5 min": 300, "2h": 7200, "2d": 172_800, "1w": 604_800}.items():
        moment = job_list._moment(text)
        assert now - timedelta(seconds=ago) <= moment <= datetime.now(UTC) - timedelta(seconds=ago)
    assert [brief_duration(seconds) for seconds in (0.4, 59, 60, 7199, 86_400)] == ["0s", "59s", "1min", "1h", "1d"]
    with pytest.raises(UsageError):
        job_list._moment("")
    assert job_list._age(Job("j", "", JobState.QUEUED)) == ""
