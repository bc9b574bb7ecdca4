"""What workers need, with real processes: nodes run no more than fit, and scripts see the GPUs that are theirs."""

from __future__ import annotations

from pathlib import Path

from embedded_run import check_words, wait_until
from fleet_commands import FILES, Fleet

SEES = """\
import os, pathlib, time

MARKS = pathlib.Path({marks!r})

def init():
    (MARKS / str(os.getpid())).write_text(os.environ.get("CUDA_VISIBLE_DEVICES", "none"))

def run(mini_batch):
    time.sleep(0.05)
    return [os.path.basename(path) for path in mini_batch]
"""


def marks_of(fleet: Fleet) -> Path:
    marks = fleet.folder / "marks"
    marks.mkdir(exist_ok=True)
    (fleet.folder / "code" / "entry.py").write_text(SEES.format(marks=str(marks)))
    return marks


def test_each_worker_sees_exactly_the_gpus_that_it_needs(fleet: Fleet) -> None:
    marks = marks_of(fleet)
    fleet.start_agent("one", "--slots", "4", "--gpus", "4")
    fleet.create("nightly", "--set", "jobs.score.resources.gpus_per_worker=2")
    assert fleet.check_done("nightly")["mini_batches"]["succeeded"] == FILES
    seen = sorted(path.read_text() for path in marks.iterdir())
    assert set(seen) <= {"0,1", "2,3"} and 1 <= len(seen) <= 2, seen


def test_a_step_that_no_node_has_enough_for_waits_until_one_comes(fleet: Fleet) -> None:
    marks_of(fleet)
    fleet.start_agent("small", "--slots", "2", "--memory", "1GB")
    fleet.create("nightly", "--set", "jobs.score.task.program_arguments=--memory_per_worker 4gb")
    wait_until(lambda: "a worker needs" in fleet.run("job", "explain", "nightly").stdout, "the reason is told")
    told = fleet.run("job", "explain", "nightly").stdout
    check_words(told, ["a worker needs 4.3 GB of memory", "small, has 1.0 GB of memory", "memory_per_worker"])
    fleet.start_agent("large", "--slots", "2", "--memory", "9GB")
    assert fleet.check_done("nightly")["mini_batches"]["succeeded"] == FILES
