"""Exact failures: a mini-batch that has used up its tries is split, until the items that fail alone are found.

Each run() notes what it was given in a file beside the data, so that the runs can be counted.
"""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path
from typing import Any

from embedded_run import EmbeddedRun

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
