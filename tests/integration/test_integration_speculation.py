"""Stragglers that are begun once more, with real processes: the slow attempt is ended, and its rows count nowhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cluster_commands import FILES, ServedCluster
from embedded_run import stored_attempts
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


def test_a_call_that_hangs_is_overtaken_on_another_node(cluster: ServedCluster) -> None:
    mark = cluster.folder / "stalled"
    (cluster.folder / "code" / "entry.py").write_text(STALLS_ONCE.format(mark=str(mark)))
    cluster.start_agent("one")
    cluster.start_agent("two")
    cluster.create("nightly", "--set", "jobs.score.task.program_arguments=--speculate True")
    batches = cluster.check_done("nightly")["mini_batches"]
    assert batches["succeeded"] == FILES
    # On a machine that stalls, other calls are slow enough, too.
    assert 1 <= batches["speculated_won"] <= batches["speculated"]
    assert set(stored_attempts(cluster.state)) == {("PREEMPTED", "preempted")}
    shown = cluster.run("mb", "show", "nightly", "5").stdout
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
        told = re.search(r"score: ([1-9]\d* second attempts? of slow mini-batches; [1-9]\d* succeeded first)", text)
        assert told, text
        assert f"  {told[1]}." in run.run("job", "explain", "last")[1]
    else:
        rows.remove("f00005")
        # Who typed options reads of options, everywhere.
        told = [(tmp_path / "failed_items.csv").read_text()]
        told += [run.run(*line)[1] for line in (("mb", "list", "last"), ("mb", "show", "last", "5"))]
        told += [run.run("job", "logs", "last", f"score/{name}")[1] for name in ("job_result.txt", "user/error.txt")]
        for one in told:
            assert "(--timeout)" in one and "--mini-batch-size smaller" in one, one
            assert "retry_settings" not in one and "mini_batch_size" not in one, one
    assert (tmp_path / "rows.txt").read_text().splitlines() == rows


def test_it_is_said_that_no_second_attempt_began(tmp_path: Path) -> None:
    run = OneLineRun(tmp_path)
    # The only worker has no time for one, however slow the machine is.
    code, text = run.run("run", "score.py", "data", "-o", "rows.csv", "--speculate", "--workers", "1")
    assert code == 0, text
    why = "o second attempt (--speculate): no mini-batch ran for more than twice the mean time"
    assert f"score: n{why}" in text
    assert f"  N{why}" in run.run("job", "explain", "last")[1]
    code, text = run.run("run", "score.py", "data", "-o", "rows.csv", "--restart")
    assert code == 0 and "second attempt" not in text
    assert "second attempt" not in run.run("job", "explain", "last")[1]


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
