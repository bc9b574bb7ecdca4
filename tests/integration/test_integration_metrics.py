"""What scripts log by `Run.log`: it reaches the master row by row, whatever dies, and is shown.

Reference: docs/reference/azure-ml/parallel-job.md#metrics.
"""

from __future__ import annotations

import csv
import json
import textwrap
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import windrow
from cluster_commands import FILES, ServedCluster
from embedded_run import EmbeddedRun, wait_until
from windrow.sdk.metrics import POINTS_MAX, logged
from windrow_command import windrow as command

Make = Callable[..., EmbeddedRun]

LOGS = """\
import os, signal, threading
from azureml.core import Run

def init():
    run = Run.get_context()
    run.log("started", 1)
    def tell():
        number = 0
        while not threading.Event().wait(0.001):
            run.log("steady", number)
            number += 1
    threading.Thread(target=tell, daemon=True).start()

def run(mini_batch, context):
    run = Run.get_context()
    index = context.minibatch_index
    run.log("index", index)
    run.log_row("tries", index=index, worker=os.getpid())
    run.parent.log("last", float(index))
    if index % 4 == 1 and not os.path.exists(os.environ["DIED"] + str(index)):
        open(os.environ["DIED"] + str(index), "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return mini_batch
"""


def metrics(run: EmbeddedRun) -> dict[tuple[str, str], dict[str, Any]]:
    """What `windrow job show --metrics` tells, by step and name."""
    told = command("job", "show", "last", "--metrics", "--format", "json", cwd=run.folder)
    assert told.returncode == 0, told.stderr
    return {(one["step"], one["name"]): one for one in json.loads(told.stdout)}


def test_what_workers_log_is_kept_also_of_those_that_are_killed(make: Make, tmp_path: Path) -> None:
    run = make(LOGS, files=12, settings=f"environment_variables: {{DIED: {tmp_path}/died}}")
    code, text = run.run("--slots", "3")
    assert code == 0, text
    with windrow.Client(state=run.state) as client:
        job_id = client.find("last").job_id
        calls = list(logged(client, job_id))
        known = {(metric.step, metric.name): metric for metric in client.metrics(job_id)}
    of_index = Counter(call.value for call in calls if call.name == "index")
    # A mini-batch that is tried again logs again: those of the three dead workers.
    assert of_index == {index: 2 if index % 4 == 1 else 1 for index in range(12)}
    assert len([call for call in calls if call.name == "started"]) >= 4
    steady = known["score", "steady"]
    assert (steady.minimum, steady.values) == (0, sum(call.name == "steady" for call in calls))
    assert 3 <= len(steady.points) <= POINTS_MAX
    for path in run.state.glob("jobs/*/logs/score/user/metrics/*/*.csv"):
        assert whole(path)
        with path.open(newline="") as file:
            counted = [int(row[2]) for row in csv.reader(file) if row[1] == "steady"]
        assert counted == list(range(len(counted)))
    # As commands and the report show it.
    told = metrics(run)
    assert (told["score", "index"]["count"], told["score", "index"]["maximum"]) == (15, 11)
    assert (told["score", "tries"]["count"], told["score", "tries"]["minimum"]) == (15, None)
    assert (told["", "last"]["count"], told["", "last"]["minimum"]) == (15, 0.0)
    shown = command("job", "show", "last", "--metrics", cwd=run.folder).stdout.splitlines()
    assert shown[0].split() == ["STEP", "METRIC", "NEWEST", "COUNT", "MINIMUM", "MAXIMUM", "LOGGED"]
    assert [line.split()[:2] for line in shown[1:3]] == [["(job)", "last"], ["score", "index"]]
    assert command("job", "report", "last", "--to", "report.html", cwd=run.folder).returncode == 0
    page = (run.folder / "report.html").read_text()
    assert page.count("<h3>Metrics</h3>") == page.count("<h2>Metrics of the job</h2>") == 1
    assert '<th scope="row">steady</th>' in page and 'class="metric" points="0.0,' in page
    figures = json.loads(command("job", "report", "last", "--format", "json", cwd=run.folder).stdout)
    assert {one["name"] for one in figures["metrics"]} == {"index", "last", "started", "steady", "tries"}


def test_a_command_logs_under_its_experiment(make: Make) -> None:
    run = make("")
    (run.folder / "code" / "train.py").write_text(
        "from azureml.core import Run\nrun = Run.get_context()\nrun.log_list('loss', [3, 2.5, float('nan')])\n"
        "run.log('of', run.experiment.name)\nrun.log('by', run.id)\n"
    )
    (run.folder / "job.yml").write_text(
        textwrap.dedent(
            """
            type: pipeline
            experiment_name: iris
            jobs: {train: {type: command, code: ./code, command: python train.py}}
            """
        )
    )
    code, text = run.run()
    assert code == 0, text
    told = metrics(run)
    assert (told["train", "of"]["newest"], told["train", "of"]["minimum"]) == ("iris", None)
    assert told["train", "by"]["newest"].endswith("/train")
    loss = told["train", "loss"]
    assert (loss["newest"], loss["count"], loss["minimum"], loss["maximum"]) == ("nan", 3, 2.5, 3)


def test_a_job_that_logs_nothing_says_so(make: Make) -> None:
    run = make("def run(mini_batch):\n    return mini_batch\n")
    run.run()
    assert metrics(run) == {}
    told = command("job", "show", "last", "--metrics", cwd=run.folder).stdout
    assert told.startswith("The scripts of job integration-") and told.endswith(" have logged no metrics.\n")
    assert command("job", "report", "last", "--to", "report.html", cwd=run.folder).returncode == 0
    assert "<h3>Metrics</h3>" not in (run.folder / "report.html").read_text()


FLOOD = """\
import os, time
from azureml.core import Run

def run(mini_batch):
    run = Run.get_context()
    while not os.path.exists(os.environ["GATE"]):
        run.log("text", "x" * 40_000)
        time.sleep(0.002)
    run.log("done", 1)
    return [os.path.basename(path) for path in mini_batch]
"""


def test_no_row_is_torn_where_an_agent_is_killed(cluster: ServedCluster) -> None:
    (cluster.folder / "code" / "entry.py").write_text(FLOOD)
    gate = cluster.folder / "gate"
    cluster.start_agent("one")
    cluster.create("nightly", "--set", f"jobs.score.environment_variables.GATE={gate}")
    below = cluster.state / "jobs" / "nightly" / "logs" / "score" / "user" / "metrics"

    def received() -> int:
        return sum(path.stat().st_size for path in below.rglob("*.csv"))

    wait_until(lambda: received() > 3_000_000, "several pushes have come")
    before = received()
    wait_until(lambda: received() > before, "another push is under way")
    cluster.processes["one"].kill()
    cluster.processes["one"].wait()
    gate.touch()
    cluster.start_agent("two")
    cluster.check_done("nightly")
    torn = [path for path in below.rglob("*.csv") if not whole(path)]
    assert not torn

    def counts() -> dict[str, int]:
        told = json.loads(cluster.run("job", "show", "nightly", "--metrics", "--format", "json").stdout)
        return {one["name"]: one["count"] for one in told}

    values = counts()
    assert values["done"] == FILES
    assert values["text"] == sum(path.read_text().count(",text,") for path in below.rglob("*.csv"))


AT_ONCE = """\
import os
from azureml.core import Run

def run(mini_batch):
    for path in mini_batch:
        Run.get_context().log("of", os.path.basename(path))
    # The first twenty end at once, so their results are sent before the logs are looked at again.
    while len(os.listdir(os.environ["BEGUN"])) > 20 and not os.path.exists(os.environ["MANY"]):
        pass
    open(os.path.join(os.environ["BEGUN"], os.path.basename(mini_batch[0])), "w").close()
    return [os.path.basename(path) for path in mini_batch]
"""


def test_no_result_counts_whose_metrics_are_lost_with_the_node(cluster: ServedCluster) -> None:
    (cluster.folder / "code" / "entry.py").write_text(AT_ONCE)
    many, begun = cluster.folder / "many", cluster.folder / "begun"
    begun.mkdir()
    cluster.start_agent("one")
    variables = "jobs.score.environment_variables"
    cluster.create("nightly", "--set", f"{variables}.MANY={many}", "--set", f"{variables}.BEGUN={begun}")
    wait_until(lambda: cluster.done("nightly") > 0, "results count")
    cluster.processes["one"].kill()
    cluster.processes["one"].wait()
    counted = cluster.done("nightly")
    assert 0 < counted < FILES
    many.touch()
    cluster.start_agent("two")
    cluster.check_done("nightly")
    with windrow.Client(cluster.address) as client:
        of = {call.value for call in logged(client, "nightly") if call.name == "of"}
    assert of == {f"f{number:05d}" for number in range(FILES)}


def whole(path: Path) -> bool:
    """Whether a file consists of whole rows."""
    with path.open(newline="") as file:
        rows = list(csv.reader(file))
    return path.read_bytes().endswith(b"\n") and all(len(row) == 5 and row[4] in ("Run", "step", "job") for row in rows)
