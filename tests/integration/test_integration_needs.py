"""What workers need, with real processes: nodes run no more than fit, and scripts see the GPUs that are theirs."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from cluster_commands import FILES, ServedCluster
from embedded_run import WINDROW, check_words, wait_until

SEES = """\
import os, pathlib, time

MARKS = pathlib.Path({marks!r})

def init():
    (MARKS / str(os.getpid())).write_text(os.environ.get("CUDA_VISIBLE_DEVICES", "none"))

def run(mini_batch):
    time.sleep(0.05)
    return [os.path.basename(path) for path in mini_batch]
"""


def marks_of(cluster: ServedCluster) -> Path:
    marks = cluster.folder / "marks"
    marks.mkdir(exist_ok=True)
    (cluster.folder / "code" / "entry.py").write_text(SEES.format(marks=str(marks)))
    return marks


def test_each_worker_sees_exactly_the_gpus_that_it_needs(cluster: ServedCluster) -> None:
    marks = marks_of(cluster)
    cluster.start_agent("one", "--slots", "4", "--gpus", "4")
    cluster.create("nightly", "--set", "jobs.score.resources.gpus_per_worker=2")
    assert cluster.check_done("nightly")["mini_batches"]["succeeded"] == FILES
    seen = sorted(path.read_text() for path in marks.iterdir())
    assert set(seen) <= {"0,1", "2,3"} and 1 <= len(seen) <= 2, seen


def test_a_step_that_no_node_has_enough_for_waits_until_one_comes(cluster: ServedCluster) -> None:
    marks_of(cluster)
    cluster.start_agent("small", "--slots", "2", "--memory", "1GB")
    cluster.create("nightly", "--set", "jobs.score.task.program_arguments=--memory_per_worker 4gb")
    wait_until(lambda: "a worker needs" in cluster.run("job", "explain", "nightly").stdout, "the reason is told")
    told = cluster.run("job", "explain", "nightly").stdout
    check_words(told, ["a worker needs 4.3 GB of memory", "small, has 1.0 GB of memory", "memory_per_worker"])
    cluster.start_agent("large", "--slots", "2", "--memory", "9GB")
    assert cluster.check_done("nightly")["mini_batches"]["succeeded"] == FILES


def test_a_run_without_a_job_file_hears_of_needs_in_its_own_options(tmp_path: Path) -> None:
    """Whoever typed `--cpus-per-worker` knows of no `cpus_per_worker`."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").touch()
    (tmp_path / "score.py").write_text("def run(mini_batch):\n    return mini_batch\n")
    told, state = tmp_path / "told", str(tmp_path / "state")
    options = ["in", "-o", "rows.txt", "--cpus-per-worker", "4096", "--state", state]
    with told.open("wb") as stderr:
        process = subprocess.Popen([WINDROW, "run", "score.py", *options], cwd=tmp_path, stdout=stderr, stderr=stderr)
    try:
        wait_until(lambda: "has more. Start an agent on one, or change" in told.read_text(), "the reason is told")
        shown = subprocess.run(
            [WINDROW, "job", "show", "last", "--state", state], capture_output=True, text=True, check=True
        ).stdout
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)
    for text in (told.read_text(), shown):
        check_words(text, ["change --cpus-per-worker of the step"])
