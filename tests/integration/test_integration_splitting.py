"""Exact failures: a mini-batch that has used up its tries is split, until the items that fail alone are found.

Each run() notes what it was given in a file beside the data, so that the runs can be counted.
"""

from __future__ import annotations

import csv
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
from embedded_run import TYPED, WINDROW, EmbeddedRun, wait_until

NOTE = """\
import os, signal, sys, time
from pathlib import Path

CALLS = Path(os.environ["CALLS"])

def note(names):
    with open(CALLS, "a") as file:
        file.write(" ".join(names) + "\\n")

"""

SCRIPT = (
    NOTE
    + """\
BAD = {bad!r}

def run(mini_batch):
    names = [os.path.basename(path) for path in mini_batch]
    note(names)
    for name in names:
        if name in BAD:
{strike}
    return [name + ",ok" for name in names]
"""
)


def begin(folder: Path, script: str, monkeypatch: Any, *, files: int, size: int, arguments: str = "") -> EmbeddedRun:
    """A run whose script notes its calls in `calls`."""
    monkeypatch.setenv("CALLS", str(folder / "calls"))
    settings = f"environment_variables: {{CALLS: {folder / 'calls'}}}"
    run = EmbeddedRun(folder / "job", script, files, size=size, settings=settings)
    job = run.folder / "job.yml"
    if arguments:
        code = "      code: ./code\n"
        job.write_text(job.read_text().replace(code, f"{code}      program_arguments: {arguments}\n"))
    return run


def calls(folder: Path) -> list[list[str]]:
    """What each call of run() was given."""
    return [line.split() for line in (folder / "calls").read_text().splitlines()]


def failed_items(run: EmbeddedRun) -> list[dict[str, str]]:
    """The lines of failed_items.csv; none if there is no such file."""
    found = list(run.folder.glob("**/failed_items.csv"))
    if not found:
        return []
    with found[0].open(newline="") as file:
        return list(csv.DictReader(file))


def rows(run: EmbeddedRun) -> list[str]:
    """The rows of the output, by the names that they begin with."""
    return [line.partition(",")[0] for line in run.output.read_text().splitlines()]


def test_three_bad_files_of_500_cost_three_items(tmp_path: Path, monkeypatch: Any) -> None:
    bad = ["f00007", "f00123", "f00499"]
    strike = "            raise ValueError(f'cannot read {name}')"
    run = begin(tmp_path, SCRIPT.format(bad=bad, strike=strike), monkeypatch, files=500, size=20)
    code, text = run.run()
    assert code == 0, text
    assert rows(run) == [f"f{number:05d}" for number in range(500) if f"f{number:05d}" not in bad]
    failed = failed_items(run)
    assert [Path(row["item"]).name for row in failed] == bad
    assert [row["cause"] for row in failed] == ["exception"] * 3
    for row, name in zip(failed, bad, strict=True):
        assert f"ValueError: cannot read {name} (entry.py, line" in row["message"]
    assert len(calls(tmp_path)) <= 25 + 40
    assert max(Counter(name for names in calls(tmp_path) for name in names).values()) <= 3 + 5 + 2


def test_files_that_end_their_worker_are_found(tmp_path: Path, monkeypatch: Any) -> None:
    bad = ["f00003", "f00017"]
    strike = "            os.kill(os.getpid(), signal.SIGSEGV) if name == BAD[0] else os._exit(3)"
    run = begin(tmp_path, SCRIPT.format(bad=bad, strike=strike), monkeypatch, files=30, size=10)
    code, text = run.run()
    assert code == 0, text
    assert rows(run) == [f"f{number:05d}" for number in range(30) if f"f{number:05d}" not in bad]
    failed = failed_items(run)
    assert [(Path(row["item"]).name, row["cause"]) for row in failed] == [(name, "crash") for name in bad]
    assert "SIGSEGV" in failed[0]["message"] and "exit code 3" in failed[1]["message"]
    whole = [names for names in calls(tmp_path) if len(names) == 10]
    assert len(whole) == 3, "what ended its worker is not tried again in the same size"


def test_a_file_that_needs_too_much_memory_is_found(tmp_path: Path, monkeypatch: Any, memory_group: Path) -> None:
    strike = "            hoard = [bytearray(b'x' * (16 << 20)) for _ in range(64)]"
    run = begin(tmp_path, SCRIPT.format(bad=["f00005"], strike=strike), monkeypatch, files=12, size=6)
    line = f"echo $$ > {memory_group}/cgroup.procs && exec {TYPED} run job.yml --no-progress --tolerate"
    run.process = subprocess.Popen(
        ["/bin/sh", "-c", line],
        cwd=run.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )  # fmt: skip
    code, text = run.finish()
    assert code == 0, text
    assert rows(run) == [f"f{number:05d}" for number in range(12) if number != 5]
    (failed,) = failed_items(run)
    assert (Path(failed["item"]).name, failed["cause"]) == ("f00005", "oom")


def test_a_split_goes_on_when_the_master_is_killed(tmp_path: Path, monkeypatch: Any) -> None:
    """What pieces had been found is lost with the master; what fails alone is found again, and nothing else fails."""
    strike = "            while len(names) == 1 and os.path.exists(HELD):\n                time.sleep(0.01)\n" + (
        "            os._exit(9)"
    )
    held = tmp_path / "held"
    script = SCRIPT.format(bad=["f00002", "f00009"], strike=strike) + f"HELD = {str(held)!r}\n"
    run = begin(tmp_path, script, monkeypatch, files=16, size=16)
    held.touch()
    run.start()
    wait_until(lambda: ["f00002"] in calls(tmp_path) if (tmp_path / "calls").exists() else False, "it is split")
    assert run.kill("master")
    held.unlink()
    code, text = run.finish()
    assert code == 0, text
    assert rows(run) == [f"f{number:05d}" for number in range(16) if number not in (2, 9)]
    assert [(Path(row["item"]).name, row["cause"]) for row in failed_items(run)] == [
        ("f00002", "crash"),
        ("f00009", "crash"),
    ]


def test_a_file_that_takes_too_long_is_found(tmp_path: Path, monkeypatch: Any) -> None:
    script = SCRIPT.format(bad=["f00002"], strike="            time.sleep(1000)")
    run = begin(tmp_path, script, monkeypatch, files=4, size=4)
    job = run.folder / "job.yml"
    job.write_text(job.read_text().replace("    task:", "    retry_settings: {max_retries: 0, timeout: 1}\n    task:"))
    code, text = run.run()
    assert code == 0, text
    assert rows(run) == ["f00000", "f00001", "f00003"]
    (failed,) = failed_items(run)
    assert (Path(failed["item"]).name, failed["cause"]) == ("f00002", "timeout")


def test_splitting_can_be_switched_off(tmp_path: Path, monkeypatch: Any) -> None:
    script = SCRIPT.format(bad=["f00002"], strike="            raise ValueError(name)")
    run = begin(tmp_path, script, monkeypatch, files=8, size=4, arguments="--split off")
    code, text = run.run()
    assert code == 0, text
    assert rows(run) == ["f00004", "f00005", "f00006", "f00007"]
    assert len(failed_items(run)) == 4


def test_a_script_whose_every_item_fails_is_not_split_for_ever(tmp_path: Path, monkeypatch: Any) -> None:
    script = SCRIPT.format(bad=[f"f{number:05d}" for number in range(80)], strike="            raise ValueError(name)")
    run = begin(tmp_path, script, monkeypatch, files=80, size=4)
    code, text = run.run()
    assert code == 1, text
    # Three mini-batches are split: halves, single items, and each item once more. The others have one more attempt.
    assert len(calls(tmp_path)) <= 20 * 3 + 3 * 10 + 17
    assert len(failed_items(run)) == 80


MARKS = (
    NOTE
    + """\
def run(mini_batch, context):
    names = [os.path.basename(path) for path in mini_batch]
    note(names)
    context.fail(1, "too dark: " + names[1])
    context.fail(mini_batch[3], "no face")
    return [name + ",ok" for name in names if name not in (names[1], names[3])]
"""
)


def test_items_that_the_script_marks_fail_alone_and_are_not_tried_again(tmp_path: Path, monkeypatch: Any) -> None:
    run = begin(tmp_path, MARKS, monkeypatch, files=8, size=4)
    code, text = run.run()
    assert code == 0, text
    assert rows(run) == ["f00000", "f00002", "f00004", "f00006"]
    assert "4 of 8 items failed; listed in " in text, "none is missing for another reason"
    assert [(Path(row["item"]).name, row["cause"], row["message"]) for row in failed_items(run)] == [
        ("f00001", "marked", "too dark: f00001"),
        ("f00003", "marked", "no face"),
        ("f00005", "marked", "too dark: f00005"),
        ("f00007", "marked", "no face"),
    ]
    assert len(calls(tmp_path)) == 2
    (counters,) = run.counters()
    assert (counters["succeeded"], counters["failed"], counters["items_ok"], counters["items_failed"]) == (2, 0, 4, 4)


GROUPS = """\
def run(mini_batch):
    return [f"{len(mini_batch)} files"]
"""


def test_rows_for_a_whole_mini_batch_are_no_failure_if_the_job_says_so(tmp_path: Path, monkeypatch: Any) -> None:
    run = begin(tmp_path, GROUPS, monkeypatch, files=40, size=10, arguments="--returns per_group")
    code, text = run.run()
    assert code == 0, text
    assert "--returns" not in text
    (counters,) = run.counters()
    assert (counters["items_ok"], counters["items_failed"], counters["rows"]) == (40, 0, 4)
    (tmp_path / "untold").mkdir()
    untold = begin(tmp_path / "untold", GROUPS, monkeypatch, files=40, size=10)
    code, text = untold.run()
    assert text.count("say so: --returns per_group, in program_arguments") == 1
    (counters,) = untold.counters()
    assert (counters["items_ok"], counters["items_failed"]) == (4, 36)


TABLE = (
    NOTE
    + """\
BAD = {bad!r}

def run(mini_batch):
    names = [str(value) for value in mini_batch["number"]]
    note(names)
    assert list(mini_batch.index) == list(range(len(mini_batch)))
    for name in names:
        if int(name) in BAD:
            raise ValueError("cannot score " + name)
    return mini_batch[["number"]]
"""
)


def as_table(run: EmbeddedRun, text: str, *, steps: str = "") -> None:
    """Make the input of a run a table of one file."""
    for file in (run.folder / "data").iterdir():
        file.unlink()
    (run.folder / "data" / "numbers.csv").write_text(text)
    (run.folder / "data" / "MLTable").write_text(
        f"paths: [{{file: ./numbers.csv}}]\ntransformations:\n- read_delimited: {{delimiter: ','}}\n{steps}"
    )
    job = run.folder / "job.yml"
    job.write_text(job.read_text().replace("data: {type: uri_folder", "data: {type: mltable"))


def test_a_bad_row_of_a_table_is_named_by_its_line(tmp_path: Path, monkeypatch: Any) -> None:
    run = begin(tmp_path, TABLE.format(bad=[7, 61]), monkeypatch, files=0, size=300)
    as_table(run, "number,word\n" + "".join(f"{number},word\n" for number in range(100)))
    code, text = run.run()
    assert code == 0, text
    assert rows(run) == [str(number) for number in range(100) if number not in (7, 61)]
    failed = failed_items(run)
    places = [row["item"].replace(str(run.folder.resolve()), "") for row in failed]
    assert places == ["/data/numbers.csv, line 9", "/data/numbers.csv, line 63"]
    assert "ValueError: cannot score 7 " in failed[0]["message"] and failed[1]["cause"] == "exception"


def test_a_bad_row_of_a_parquet_file_is_named_by_its_row(tmp_path: Path) -> None:
    pd.DataFrame({"number": range(100)}).to_parquet(tmp_path / "numbers.parquet", row_group_size=25)
    (tmp_path / "score.py").write_text(
        "def run(table):\n    if (table['number'] == 61).any():\n        raise ValueError('no')\n    return table\n"
    )
    done = subprocess.run(
        [WINDROW, "run", "score.py", "numbers.parquet", "-o", "out.parquet", "--tolerate", "--no-progress"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert list(pd.read_parquet(tmp_path / "out.parquet")["number"]) == [at for at in range(100) if at != 61]
    (file,) = tmp_path.glob(".windrow/**/failed_items.csv")
    with file.open(newline="") as lines:
        (failed,) = csv.DictReader(lines)
    assert failed["item"].startswith(f"{tmp_path}/numbers.parquet") and failed["item"].endswith("row 62"), failed


def test_lines_that_are_no_objects_fail_alone(tmp_path: Path) -> None:
    """Also in a mini-batch that is split, and where all lines of one are wrong."""
    lines = [f'{{"id": {at}}}' for at in range(10_400)]
    lines[10_010] = lines[10_050] = "{broken"
    lines[10_200:] = ["[1]        "] * 200
    lines.insert(5, "")
    (tmp_path / "late.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "score.py").write_text(
        "def run(table):\n    if (table['id'] == 10_020).any():\n        raise ValueError('no')\n    return table\n"
    )
    command = [WINDROW, "run", "score.py", "late.jsonl", "-o", "out.csv", "--mini-batch-size", "1kb", "--no-progress"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 3 and "10,197 of 10,400 items ok" in done.stdout, done.stdout + done.stderr
    bad = {10_010, 10_020, 10_050, *range(10_200, 10_400)}
    assert list(pd.read_csv(tmp_path / "out.csv")["id"]) == [at for at in range(10_400) if at not in bad]
    with (tmp_path / "failed_items.csv").open(newline="") as file:
        failed = list(csv.DictReader(file))
    # A blank line stands before them.
    assert {row["item"] for row in failed} == {f"{tmp_path}/late.jsonl, line {at + 2}" for at in bad}
    assert Counter(row["cause"] for row in failed) == {"exception": 1, "load_failed": 202}
    (first,) = (row for row in failed if row["item"].endswith("line 10012"))
    assert "the line is not a JSON object" in first["message"] and "'{broken'" in first["message"]
    assert "correct it" in first["message"]


def test_a_bad_row_is_named_by_its_line_behind_a_filter_too(tmp_path: Path, monkeypatch: Any) -> None:
    run = begin(tmp_path, TABLE.format(bad=[61]), monkeypatch, files=0, size=300)
    table = "number,word\n" + "".join(f"{number},word\n" for number in range(100))
    as_table(run, table, steps="""- filter: col("number") > 50\n""")
    code, text = run.run()
    assert code == 0, text
    assert rows(run) == [str(number) for number in range(51, 100) if number != 61]
    assert [row["item"].rpartition("/")[2] for row in failed_items(run)] == ["numbers.csv, line 63"]


def test_the_failing_item_alone_is_replayed(tmp_path: Path, monkeypatch: Any) -> None:
    script = SCRIPT.format(bad=["f00002"], strike="            raise ValueError('bad ' + name)")
    run = begin(tmp_path, script, monkeypatch, files=4, size=4)
    code, text = run.run()
    assert code == 0, text
    (failed,) = failed_items(run)
    (job_id,) = (path.name for path in (run.state / "jobs").iterdir())
    (tmp_path / "calls").unlink()
    replayed = subprocess.run(
        [WINDROW, "mb", "replay", job_id, failed["mini_batch"], "--item", failed["number"]],
        cwd=run.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (replayed.returncode, calls(tmp_path)) == (1, [["f00002"]])
    assert "ValueError: bad f00002" in replayed.stderr
    assert replayed.stderr.startswith(
        f"Replaying only item 2 of mini-batch 0 (4 items) of step score, job {job_id}.\n"
        f"  {run.folder}/data/f00002\nCode: "
    )
