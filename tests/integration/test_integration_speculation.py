"""Stragglers that are begun once more, with real processes: the slow attempt is ended, and its rows count nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from embedded_run import stored_attempts
from fleet_commands import FILES, Fleet
from test_integration_one_line import OneLineRun

STALLS_ONCE = """\
import os, time

def stall():
    \"\"\"Hang for ever, the first time.\"\"\"
    try:
        os.close(os.open({mark!r}, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    time.sleep(3600)

def run(mini_batch):
    if os.path.basename(mini_batch[0]) == "f00005":
        stall()
    return [os.path.basename(path) for path in mini_batch]
"""


def test_a_call_that_hangs_is_overtaken_on_another_node(fleet: Fleet) -> None:
    mark = fleet.folder / "stalled"
    (fleet.folder / "code" / "entry.py").write_text(STALLS_ONCE.format(mark=str(mark)))
    fleet.start_agent("one")
    fleet.start_agent("two")
    fleet.create("nightly", "--set", "jobs.score.task.program_arguments=--speculate True")
    batches = fleet.check_done("nightly")["mini_batches"]
    assert (batches["speculated"], batches["speculated_won"], batches["succeeded"]) == (1, 1, FILES)
    assert stored_attempts(fleet.folder / "master-state") == [("PREEMPTED", "preempted")]
    shown = fleet.run("mb", "show", "nightly", "5").stdout
    assert "Another attempt was faster." in shown
    first, second = (line.split()[1] for line in shown.splitlines() if line.startswith("  on "))
    assert {first, second} == {"one", "two"}


@pytest.mark.parametrize("speculate", [True, False])
def test_on_one_machine_another_worker_overtakes_it(tmp_path: Path, speculate: bool) -> None:
    run = OneLineRun(tmp_path)
    run.script(STALLS_ONCE.format(mark=str(tmp_path / "stalled")))
    options = ["--speculate"] if speculate else ["--timeout", "2", "--max-retries", "0", "--tolerate"]
    fixed = ("-o", "rows.txt", "--mini-batch-size", "1", "--workers", "2")
    code, text = run.run("run", "score.py", "data", *fixed, *options)
    assert code == 0, text
    rows = [f"f{number:05d}" for number in range(12)]
    if speculate:
        assert "score: 1 second attempt of slow mini-batches; 1 succeeded first" in text
    else:
        rows.remove("f00005")
    assert (tmp_path / "rows.txt").read_text().splitlines() == rows


SLOW_ONE = """\
import os, time

def run(mini_batch):
    name = os.path.basename(mini_batch[0])
    with open({order!r}, "a") as order:
        order.write(name + "\\n")
    time.sleep(1.3 if name == "f00007" else 0.01)
    return [name]
"""


def test_what_was_slow_in_the_last_run_begins_first_in_the_next(tmp_path: Path) -> None:
    run = OneLineRun(tmp_path)
    order = tmp_path / "order"
    run.script(SLOW_ONE.format(order=str(order)))
    line = ("run", "score.py", "data", "-o", "rows.txt", "--mini-batch-size", "1", "--workers", "1", "--restart")
    begun = []
    for _ in range(2):
        code, text = run.run(*line)
        assert code == 0, text
        begun.append(order.read_text().split())
        order.unlink()
    names = [f"f{number:05d}" for number in range(12)]
    assert begun[0] == names
    assert begun[1] == ["f00007", *(name for name in names if name != "f00007")]
    assert (tmp_path / "rows.txt").read_text().split() == names, "in the order of the input"
