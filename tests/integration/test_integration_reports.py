"""Logs and reports of a cluster: read from elsewhere, over a master that was killed, of a cancelled job."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import windrow
from cluster_commands import FILES, ServedCluster
from embedded_run import wait_until
from test_integration_one_line import OneLineRun
from windrow.job_page.page import job_page


def read(cluster: ServedCluster, job: str, *arguments: str) -> str:
    done = cluster.run("job", "logs", job, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def paths(cluster: ServedCluster, job: str) -> list[str]:
    return [file["path"] for file in json.loads(read(cluster, job, "--format", "json"))]


def test_reports_of_a_step_that_two_masters_and_two_nodes_have_run(cluster: ServedCluster) -> None:
    cluster.start_agent("one")
    cluster.start_agent("two")
    hurry, variables = cluster.folder / "hurry", "jobs.score.environment_variables"
    cluster.create("nightly", "--set", f"{variables}.PAUSE=2", "--set", f"{variables}.HURRY={hurry}")
    wait_until(lambda: cluster.done("nightly") >= 2, "some of the job")
    wait_until(lambda: "score/sys/master_role.1.txt" in paths(cluster, "nightly"), "the first master has told of it")
    assert "job_result.txt" not in paths(cluster, "nightly"), "not before it has ended"
    cluster.processes["master"].kill()
    cluster.processes["master"].wait()
    cluster.start_master()
    wait_until(lambda: "score/sys/master_role.2.txt" in paths(cluster, "nightly"), "the second master has told of it")
    hurry.touch()
    cluster.check_done("nightly")

    assert read(cluster, "nightly", "job_result.txt").startswith("Job nightly: Completed\n")
    (overview,) = [path for path in paths(cluster, "nightly") if "job_progress_overview" in path]
    told = read(cluster, "nightly", overview)
    assert told.count("begins: master incarnation 1.") == told.count("continues: master incarnation 2.") == 1
    assert f"Processed {FILES} of {FILES} mini batches" in told.splitlines()[-2]

    table = read(cluster, "nightly", "score/sys/job_report/processed_mini-batches.csv")
    rows = [row for row in csv.DictReader(io.StringIO(table)) if row["Status"] == "RUN_DONE"]
    assert sorted(int(row["Mini-batch Id"]) for row in rows) == list(range(FILES)), "one outcome a mini-batch"
    by_node = {node: [row for row in rows if row["Node"] == node] for node in ("one", "two")}
    assert all(by_node.values()) and sum(map(len, by_node.values())) == FILES
    summary = read(cluster, "nightly", "score/sys/job_report/node_summary.csv")
    assert {row["Node"]: int(row["Succeeded Mini-batches"]) for row in csv.DictReader(io.StringIO(summary))} == {
        node: len(found) for node, found in by_node.items()
    }

    # Each mini-batch is found in the log of the worker that the table names.
    row = by_node["two"][-1]
    mini_batch = row["Mini-batch Id"]
    line = read(cluster, "nightly", "--mini-batch", mini_batch)
    assert f"two/{row['Process']} sys: " in line and f"mini-batch {mini_batch}, try " in line
    worker = read(cluster, "nightly", "--worker", f"two/{row['Process']}")
    assert f"mini-batch {mini_batch}, try " in worker
    assert not re.search(r"\bone/process", worker), "of no worker of the other node"


def test_a_cancelled_job_has_reports(cluster: ServedCluster) -> None:
    cluster.start_agent("one")
    cluster.create("nightly", "--set", "jobs.score.environment_variables.PAUSE=60")
    wait_until(lambda: cluster.job("nightly")["steps"][0]["mini_batches"]["leased"] > 0, "it runs")
    assert cluster.run("job", "cancel", "nightly", "--wait").returncode == 0
    result = read(cluster, "nightly", "job_result.txt")
    assert result.startswith("Job nightly: Cancelled\n") and "windrow job retry nightly" in result
    assert f"{FILES}: 0 succeeded, 0 failed, {FILES} cancelled" in read(cluster, "nightly", "score/job_result.txt")
    assert "score/sys/job_report/processed_mini-batches.csv" in paths(cluster, "nightly")
    assert "score/job_error.txt" not in paths(cluster, "nightly")


def test_the_report_knows_how_long_workers_took_to_be_ready(tmp_path: Path) -> None:
    run = OneLineRun(tmp_path)
    # Both workers get to work: the first one waits until the second has begun, too.
    (ready := tmp_path / "ready").mkdir()
    run.script(
        "import os, time\n"
        f"def init():\n    time.sleep(0.7)\n    open({str(ready)!r} + '/' + str(os.getpid()), 'w').close()\n"
        f"def run(mini_batch):\n    while len(os.listdir({str(ready)!r})) < 2:\n        time.sleep(0.01)\n"
        "    return mini_batch\n"
    )
    code, text = run.run("run", "score.py", "data", "-o", "rows.txt", "--mini-batch-size", "1", "--workers", "2")
    assert code == 0, text
    with windrow.Client(state=run.state) as client:
        document = client.report(client.find("last").job_id)
    (step,) = document["steps"]
    starts = step["starts"]
    assert starts["workers"] == 2
    assert starts["init_us"] > 0 and starts["start_us"] > 0, "the agent saw workers in init()"
    assert starts["init_max_us"] <= starts["init_us"]
    page = job_page(document)
    assert "went into init() (" in page and "What would make it faster" not in page
