"""What stands in each log and report of a small job, compared with `golden/`; times, names and numbers of the machine
are masked there (`reported_job`)."""

from __future__ import annotations

import csv
import pstats
from pathlib import Path

import pytest
from reported_job import ReportedJob
from windrow_agent.steps.resource_monitor import DISK_COLUMNS, PROCESS_COLUMNS, RESOURCE_COLUMNS

GOLDEN = Path(__file__).with_name("golden")
ANY_ORDER = ("sys__error", "sys__node", "processed_mini-batches", "user__error__")
"""Files whose lines come in the order in which a worker happened to be handed its mini-batches."""


def file_of(job: ReportedJob, golden: Path) -> Path:
    """The log file that a golden one is of."""
    names = {job.masked(path): path for path in job.files()}
    return names[golden.name.replace("__", "/")]


@pytest.mark.parametrize("golden", sorted(GOLDEN.iterdir()), ids=lambda path: path.name)
def test_a_log_is_as_it_should_be(reported: ReportedJob, golden: Path) -> None:
    told, wanted = reported.plain(file_of(reported, golden)), golden.read_text()
    if any(part in golden.name for part in ANY_ORDER):
        assert sorted(told.splitlines()) == sorted(wanted.splitlines())
    else:
        assert told == wanted


def test_all_of_the_tree_is_there_and_nothing_else(reported: ReportedJob) -> None:
    others = {
        ".reports.json",
        "metrics.csv",
        "score/job_progress_overview.HOUR.txt",
        "score/metrics.csv",
        "score/nodes.json",
        "score/sys/master_role.1.txt",
        "score/sys/perf/NODE/node_disk_usage.csv",
        "score/sys/perf/NODE/node_resource_usage.csv",
        "score/sys/perf/NODE/os/HOUR/processes_MM",
        "score/sys/perf/NODE/processes_resource_usage.csv",
        "score/user/stderr/NODE/process000.stderr.txt",
    }
    golden = {path.name.replace("__", "/") for path in GOLDEN.iterdir()}
    assert {reported.masked(path) for path in reported.files()} == golden | others


def test_the_last_metrics_are_those_of_the_end_in_the_step_and_pushed_to_the_job(reported: ReportedJob) -> None:
    for place in ("score/metrics.csv", "metrics.csv"):
        with (reported.logs / place).open(newline="") as file:
            rows = list(csv.DictReader(file))
        last = {row["Name"]: float(row["Value"]) for row in rows[-10:]}
        assert last.pop("my_Elapsed Seconds") > 2
        assert last == {
            "my_Total Mini Batches": 5,
            "my_Remaining Mini Batches": 0,
            "my_Processed Mini Batches": 5,
            "my_Failed Mini Batches": 1,
            "my_Total Items": 10,
            "my_Remaining Items": 0,
            "my_Processed Items": 10,
            "my_Failed Items": 2,
            "my_Retried Mini Batches": 3,
        }, place


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("node_resource_usage.csv", RESOURCE_COLUMNS),
        ("node_disk_usage.csv", DISK_COLUMNS),
        ("processes_resource_usage.csv", PROCESS_COLUMNS),
    ],
)
def test_resources_are_told_in_the_documented_columns(
    reported: ReportedJob, name: str, columns: tuple[str, ...]
) -> None:
    (path,) = reported.logs.glob(f"score/sys/perf/*/{name}")
    with path.open(newline="") as file:
        head, *rows = csv.reader(file)
    assert tuple(head) == columns
    assert rows and all(len(row) == len(columns) for row in rows)
    if name == "processes_resource_usage.csv":
        assert {"agent", "process000"} <= {row[1] for row in rows}


def test_the_processes_of_the_node_are_listed_by_hour_and_minute(reported: ReportedJob) -> None:
    # One for each minute in which it ran.
    path, *_ = reported.logs.glob("score/sys/perf/*/os/*/processes_*")
    text = path.read_text()
    assert "COMMAND" in text and "windrow_master" in text


def test_the_commands_that_a_result_names_work(reported: ReportedJob) -> None:
    lines = (reported.logs / "job_result.txt").read_text().splitlines()
    commands = [line.partition("windrow ")[2] for line in lines if "windrow job logs " in line]
    assert len(commands) == 3
    for command in commands:
        code, text = reported.windrow(*command.split())
        assert code == 0 and ("cannot score f3" in text or "took longer" in text), (command, text)


def test_workers_profile_themselves_also_those_that_are_killed(tmp_path: Path) -> None:
    for module in ("cProfile", "profile"):
        job = ReportedJob(tmp_path / module, arguments=f"--profiling_module {module} --resource_monitor_interval 0")
        code, text = job.run()
        assert code == 0, text
        profiles = sorted(job.logs.glob("score/sys/node/*/process*.profile"))
        assert [path.name for path in profiles] == ["process000.profile", "process001.profile"]
        # The first is killed in its first run(), of which there are no figures then.
        for path, wanted in zip(profiles, ({"init"}, {"init", "run"}), strict=True):
            functions = {name for _, _, name in pstats.Stats(str(path)).stats}  # type: ignore[attr-defined]
            assert wanted <= functions, (module, path)
        assert not list(job.logs.glob("score/sys/perf/**")), "the monitor is off"


def test_a_profiled_script_that_cannot_begin_shows_its_own_traceback(tmp_path: Path) -> None:
    job = ReportedJob(tmp_path / "job", arguments="--profiling_module cProfile")
    script = job.folder / "code" / "entry.py"
    script.write_text(script.read_text().replace('print("ready")', 'raise ValueError("no model")'))
    code, _ = job.run()
    assert code == 1
    (error, *_) = sorted(job.logs.glob("score/user/error/*/process*.txt"))
    lines = error.read_text().splitlines()
    assert lines[1] == "Traceback (most recent call last):" and "entry.py" in lines[2], lines
    assert "init_failed" in (job.logs / "score" / "job_result.txt").read_text()


def test_a_step_that_failed_says_why(tmp_path: Path) -> None:
    job = ReportedJob(tmp_path / "job", threshold=0, arguments="--copy_logs_to_parent True")
    code, _ = job.run()
    assert code == 1
    error = job.plain(job.logs / "score" / "job_error.txt")
    assert error.startswith("UserError: step score of job JOB failed.\n1 mini-batch failed, more than mini_batch_error")
    assert "ValueError: cannot score f3" in error
    result = job.plain(job.logs / "job_result.txt")
    assert result.startswith("Job JOB: Failed\n")
    assert "mini_batch_error_threshold: 0 allowed, 1 failed: exceeded" in result
    assert "windrow job retry JOB" in result
    # Copied to the root, where the vendor's service would show them.
    copied = {str(path.relative_to(job.logs)) for path in job.files() if not path.is_relative_to(job.logs / "score")}
    assert {"job_error.txt", "user/error.txt", "sys/job_report/processed_mini-batches.csv"} <= copied
    assert any(name.startswith("job_progress_overview.") for name in copied)
    assert any(name.startswith("user/stdout/") for name in copied)
