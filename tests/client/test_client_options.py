"""The two readers of `windrow run`'s options agree, and the figures that displays show."""

from __future__ import annotations

import inspect
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from client_workspace import Workspace
from hypothesis import given
from hypothesis import strategies as st
from windrow.cli.display.lines import progress_line
from windrow.cli.display.plain import PlainDisplay
from windrow.cli.messages import PLAIN, YELLOW, printable
from windrow.cli.options import run_options
from windrow.cli.options.declared import options_of
from windrow.cli.running import run_command
from windrow.common.quantities import bytes_in, counted, duration, rate, size
from windrow.sdk.figures import Figures
from windrow.sdk.job import ItemCounts, Job, JobState, MiniBatchCounts, Step
from windrow.spec.naming.datastores import read_datastores


def declared_options() -> dict[str, str]:
    """Every option of the declared command -> the name of its parameter."""
    return {name: key for key, one in options_of(run_command.run).items() for name in one.names}


def test_both_readers_know_the_same_options() -> None:
    assert declared_options() == {**run_options.FLAGS, **run_options.VALUES, **run_options.LISTS}


def test_both_readers_have_the_same_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WINDROW_STATE", raising=False)
    defaults = {name: p.default for name, p in inspect.signature(run_command.run).parameters.items() if name != "file"}
    options = run_options.RunOptions("job.yml")
    assert {name: getattr(options, name) or None for name in defaults} == {n: d or None for n, d in defaults.items()}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("job.yml", {}),
        ("job.yml --set a=b --set=c=d", {"sets": ["a=b", "c=d"]}),
        ("job.yml --datastore a=/b --datastore=c=s3://d/e", {"datastores": ["a=/b", "c=s3://d/e"]}),
        ("--state s job.yml --slots 3 --python p", {"state": "s", "slots": 3, "python": "p"}),
        (
            "job.yml --format json --strict --restart --no-progress",
            {"form": "json", "strict": True, "restart": True, "no_progress": True},
        ),
        ("job.yml --keep-rows --format=json", {"keep_rows": True, "form": "json"}),
    ],
)
def test_plain_lines_are_read_early(line: str, expected: dict[str, object]) -> None:
    options = run_options.parse(line.split())
    assert options is not None
    assert options.job_file == "job.yml"
    assert {name: getattr(options, name) for name in expected} == expected


@pytest.mark.parametrize(
    "line",
    [
        "",
        "--help",
        "job.yml --help",
        "job.yml other.yml",
        "job.yml --slots",
        "job.yml --slots 0",
        "job.yml --slots -1",
        "job.yml -x",
        "job.yml --nonsense",
        "job.yml --format xml",
        "job.yml --restart --keep-rows",
        "job.yml --strict --tolerate",
        "score.py data -o rows.csv --workers 2 --slots 3",
        "job.yml --set",
        "-- job.yml",
        "job.yml -o rows.csv",
        "job.yml --restart=1",
    ],
)
def test_all_other_lines_are_left_to_typer(line: str) -> None:
    assert run_options.parse(line.split()) is None


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("score.py data -o rows.csv --k 0.5", "--k"),
        ("score.py data --rows=5 -o rows.csv", "--rows"),
        ("score.py data -k", "-k"),
        ("score.py data -o rows.csv -- --k 0.5", ""),
        ("score.py data -orows.csv --restart=1 --slots -1 --help", ""),
        ("score.py --python -x", ""),
        ("job.yml --k", ""),
        ("--k score.py", ""),
    ],
)
def test_an_option_of_the_script_is_known_from_its_place(line: str, expected: str) -> None:
    assert run_options.foreign_option(line.split()) == expected


def moment(*, items: int, total: int, planned: bool = True, failed: int = 0, taken: int = 0) -> Job:
    step = Step(
        name="s",
        state="running",
        planned=planned,
        items=ItemCounts(total * 2, items * 2 - failed, failed, 0, taken * 2),
        mini_batches=MiniBatchCounts(total, total - items, 0, items, 0, 0, taken),
    )
    return Job("j", "j", JobState.RUNNING, steps=(step,))


def test_rate_and_time_to_go_follow_the_last_seconds() -> None:
    figures = Figures()
    figures.add(moment(items=0, total=100), 0.0)
    assert figures.items_per_s() is None
    figures.add(moment(items=10, total=100), 10.0)
    assert figures.items_per_s() == 2.0
    for now in (20.0, 30.0, 40.0):
        figures.add(moment(items=10 + int(now - 10) * 2, total=100), now)
    assert figures.mini_batches_per_s() == 2.0
    assert figures.remaining_s(moment(items=70, total=100)) == 15.0
    assert figures.remaining_s(moment(items=70, total=100, planned=False)) is None


def test_a_plain_line_names_a_few_steps_and_counts_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    job = moment(items=5, total=10)
    steps = tuple(job.steps[0]._replace(name=f"s{number}") for number in range(300))
    states = ("concatenating", "completed", *["running"] * 298)
    steps = tuple(step._replace(state=state) for step, state in zip(steps, states, strict=True))
    PlainDisplay().show(job._replace(steps=steps))
    line = capsys.readouterr().err
    assert line.endswith(" (s0 concatenating, s2 running, s3 running, s4 running, s5 running and 294 more steps)\n")
    PlainDisplay().show(job._replace(steps=steps[:3]))
    assert capsys.readouterr().err.endswith(" (s0 concatenating, s2 running)\n")


def test_what_is_taken_over_tells_nothing_of_the_rate() -> None:
    figures = Figures()
    figures.add(moment(items=0, total=0, planned=False), 0.0)
    figures.add(moment(items=5000, total=5000, taken=5000, planned=False), 1.0)
    assert figures.items_per_s() is None
    job = moment(items=9010, total=9040, taken=9000)
    figures.add(job, 5.0)
    assert (figures.mini_batches_per_s(), figures.remaining_s(job)) == (2.0, 15.0)
    assert progress_line(job, figures) == (
        "items 18,020/18,080, mini-batches 9,010/9,040 (9,000 taken over), 4 items/s, 15 s to go"
    )


def test_a_line_of_progress() -> None:
    figures = Figures()
    figures.add(moment(items=0, total=1000), 0.0)
    job = moment(items=500, total=1000, failed=3)
    figures.add(job, 10.0)
    assert progress_line(job, figures) == "items 1,000/2,000, mini-batches 500/1,000, 100 items/s, 10 s to go, 3 failed"


@given(st.floats(min_value=0, max_value=1e7))
def test_durations_are_never_odd(seconds: float) -> None:
    text = duration(seconds)
    assert "60 s" not in text.split(" min")[-1] or seconds < 60
    assert not text.startswith("-")


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (duration(0), "0.0 s"),
        (duration(59.6), "1 min"),
        (duration(185), "3 min 5 s"),
        (duration(7800), "2 h 10 min"),
        (duration(90000), "1 d 1 h"),
        (duration(86400 * 1234), "1,234 d"),
        (rate(1234.5, "items"), "1,234 items/s"),
        (rate(12.34, "items"), "12.3 items/s"),
        (rate(0.05, "items"), "3 items/min"),
        (size(999), "999 B"),
        (size(1500), "1.5 KB"),
        (size(2_500_000_000), "2.5 GB"),
        (counted(1, "item"), "1 item"),
        (counted(2, "retry"), "2 retries"),
        (counted(1000, "mini-batch"), "1,000 mini-batches"),
    ],
)
def test_figures_for_people(shown: str, expected: str) -> None:
    assert shown == expected


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("500MB", 500_000_000),
        ("1.5 GB", 1_500_000_000),
        ("16GiB", 16 << 30),
        (" 2TB ", 2 * 10**12),
        ("4", None),
        ("4gb", None),
        ("-4GB", None),
        ("", None),
    ],
)
def test_sizes_are_read_as_people_write_them(text: str, count: int | None) -> None:
    assert bytes_in(text) == count


@pytest.mark.parametrize(
    ("sent", "hurried"), [("HUP HUP", False), ("INT", False), ("INT INT", True), ("HUP TERM", True), ("INT HUP", True)]
)
def test_a_second_signal_hurries_but_a_closing_terminal_is_one(sent: str, hurried: bool) -> None:
    numbers = [int(getattr(signal, f"SIG{name}")) for name in sent.split()]
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
        "from windrow.cli.running.interrupts import Interrupts\n"
        "interrupts = Interrupts()\n"
        f"for number in {numbers}:\n"
        "    try:\n"
        "        signal.raise_signal(number)\n"
        "    except KeyboardInterrupt:\n"
        "        print('interrupted')\n"
        "print(interrupts.hurried)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == f"interrupted\n{hurried}\n"


@pytest.mark.parametrize("option", ["--python=/usr/bin/python3", "--slots=2"])
def test_a_retry_by_agents_takes_no_options_of_a_run_on_this_machine(tmp_path: Path, option: str) -> None:
    workspace = Workspace(tmp_path)
    refused = workspace.run("job", "retry", "j", "--master", "unix:/nowhere", option)
    assert refused.returncode == 2
    assert f"{option.partition('=')[0]} applies only to runs on this machine" in refused.stderr


def test_the_default_datastore_can_be_named_as_job_files_do(tmp_path: Path) -> None:
    assert read_datastores([f"workspaceblobstore={tmp_path}"]) == {"default": str(tmp_path)}


def test_nobody_controls_the_terminal_of_whoever_reads() -> None:
    name = "evil\x1b]0;title\x07\x1b[2J\rmore\x9b5n \u202efdp.exe\tand\nthis"
    shown = printable(f"{YELLOW}note:{PLAIN} {name}", "utf-8")
    assert shown == (f"{YELLOW}note:{PLAIN} evil\\x1b]0;title\\x07\\x1b[2J\\x0dmore\\x9b5n \\u202efdp.exe\tand\nthis")
    assert printable("größer", "ascii") == "gr\\xf6\\xdfer"
