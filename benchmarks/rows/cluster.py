"""Four agents in containers run 2,000 mini-batches of 10 ms; in the middle, something is killed or cut off."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.compose import Cluster, compose_command, docker
from benchmarks.measurement import Contender, Metric, Outcome, Row
from benchmarks.waiting import wait_until

AGENTS = 4
COUNT = 2000
DISTURB_AT = 0.3
"""The share of the items that is done when the disturbance begins."""

SCRIPT = """\
import os, time
def run(mini_batch):
    time.sleep(0.01)
    return [os.path.basename(path) for path in mini_batch]
"""

JOB = """\
type: pipeline
inputs: {data: {type: uri_folder, path: /data/input}}
outputs: {rows: {type: uri_folder}}
jobs:
  measured:
    type: parallel
    mini_batch_size: "1"
    inputs: {data: "${{parent.inputs.data}}"}
    input_data: ${{inputs.data}}
    outputs: {rows: "${{parent.outputs.rows}}"}
    task: {type: run_function, code: ./code, entry_script: entry.py, append_row_to: "${{outputs.rows}}"}
"""

Disturb = Callable[[Cluster], None]


def _contenders(folder: Path) -> list[Contender]:
    missing = None if compose_command() else "Docker with Compose"
    (folder / "code").mkdir()
    (folder / "code" / "entry.py").write_text(SCRIPT)
    (folder / "job.yml").write_text(JOB)

    def contender(name: str, disturb: Disturb) -> Contender:
        def run(scratch: Path) -> Outcome:
            with Cluster(scratch, AGENTS) as cluster:
                (cluster.data / "input").mkdir()
                for number in range(COUNT):
                    (cluster.data / "input" / f"{number:04d}").touch()
                _job_s(cluster, folder / "job.yml", lambda _: None)  # the first job warms the caches
                plain = _job_s(cluster, folder / "job.yml", lambda _: None)
                disturbed = _job_s(cluster, folder / "job.yml", disturb)
                return Outcome({"later": disturbed - plain, "plain": plain, "up": cluster.up_s})

        return Contender(f"Windrow, {name}", run, missing)

    return [
        contender("an agent killed", lambda cluster: cluster.kill("agent")),
        contender("an agent cut off", _cut_off),
        contender("the master killed", lambda cluster: cluster.kill("master")),
    ]


def _cut_off(cluster: Cluster) -> None:
    agent = cluster.containers("agent")[0]
    docker("network", "disconnect", docker("inspect", "-f", "{{.HostConfig.NetworkMode}}", agent).strip(), agent)


def _job_s(cluster: Cluster, file: Path, disturb: Disturb) -> float:
    """Run the job, check its output, and return its duration by the clock of the master."""
    wait_until("all agents are ready", cluster.all_ready)
    client = cluster.client
    begun = time.monotonic()
    job_id = client.submit(file).job_id
    for job in client.progress(job_id, timeout_s=120):
        if job.items.ended >= DISTURB_AT * COUNT:
            disturb(cluster)
            break
    ended = client.wait(job_id, timeout_s=120, check=False)
    took = time.monotonic() - begun
    if ended.state != "completed":
        raise RuntimeError(f"the job ended {ended.state}: {ended.message}")
    rows = (cluster.data / "outputs" / job_id / "rows" / "parallel_run_step.txt").read_text().split()
    if rows != [f"{number:04d}" for number in range(COUNT)]:
        raise RuntimeError("the output is not what it should be")
    return took


ROW = Row(
    key="cluster",
    title="Four agents in containers: 2,000 mini-batches of 10 ms, disturbed after 30 %",
    aim="later than undisturbed: agent killed ≤ 2 s, cut off ≤ 5 s, master killed ≤ 5 s; `up` to four agents ≤ 10 s",
    metrics=[
        Metric("later", "later than undisturbed", "s"),
        Metric("plain", "undisturbed, from submission", "s"),
        Metric("up", "`up` to the fourth agent", "s"),
    ],
    contenders=_contenders,
    runs=3,
)
