"""Agents that tasks of other engines hold, by the scripts of the documentation; workers of these engines are killed."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cluster_commands import ServedCluster
from documented_commands import INSIDE, block
from embedded_run import WINDROW, wait_until
from installed_packages import is_installed

pytestmark = pytest.mark.timeout(600, func_only=True)

DASK = """\
import sys
from distributed import LocalCluster
if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        print(cluster.scheduler_address, flush=True)
        sys.stdin.read()
"""


def nodes(cluster: ServedCluster) -> dict[str, int]:
    """Names of the nodes that are ready, with the process that holds each."""
    listed = json.loads(cluster.run("node", "list", "--format", "json").stdout)
    names = [node["node_id"] for node in listed if node["state"] == "ready"]
    return {name: int(name.rpartition("-")[2]) for name in names}


def environment(cluster: ServedCluster) -> dict[str, str]:
    """One in which `windrow` is found."""
    path = f"{Path(WINDROW).parent}{os.pathsep}{os.environ['PATH']}"
    return {**cluster.environment(), "PATH": path}


@contextmanager
def started(cluster: ServedCluster, script: str, *words: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """A script of the documentation."""
    file = cluster.folder / script
    file.write_text("\n".join(block(INSIDE, f"# {script}").lines))
    options = ["--join-token-file", str(cluster.token_file("right")), "--slots", "1", "--exit-idle", "5s"]
    with (cluster.folder / f"{script}.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, str(file), *words, "2", *options],
            cwd=cluster.folder,
            env={**environment(cluster), **variables},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def check_a_killed_worker_gets_another_agent(cluster: ServedCluster, process: subprocess.Popen[str]) -> None:
    gate = cluster.folder / "gate"
    cluster.create("nightly", "--set", f"jobs.score.environment_variables.GATE={gate}")
    wait_until(lambda: len(nodes(cluster)) == 2 or process.poll() is not None, "both agents are ready")
    assert process.poll() is None
    victim, pid = next(iter(nodes(cluster).items()))
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: len(nodes(cluster)) == 2 and victim not in nodes(cluster), "another agent has come")
    gate.touch()
    step = cluster.check_done("nightly")
    assert (step["failed_attempts"], step["retries"]) == ({}, 0)
    told, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert "[0, 0]" in told


@pytest.mark.skipif(not is_installed("distributed"), reason="Dask is not installed")
def test_agents_run_inside_workers_of_dask(cluster: ServedCluster) -> None:
    engine = subprocess.Popen(
        [sys.executable, "-c", DASK],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=cluster.folder,
        env=environment(cluster),
    )
    try:
        assert engine.stdout is not None
        scheduler = engine.stdout.readline().strip()
        with started(cluster, "agents_in_dask.py", scheduler) as process:
            check_a_killed_worker_gets_another_agent(cluster, process)
    finally:
        engine.communicate("", timeout=120)


@pytest.mark.skipif(
    not is_installed("pyspark") or shutil.which("java") is None,
    reason="Spark, or Java, is not installed",
)
def test_agents_run_inside_workers_of_spark(cluster: ServedCluster) -> None:
    found = importlib.util.find_spec("pyspark")
    assert found is not None and found.origin is not None
    # Two executors, processes of their own, with a core and 700 MB each.
    submitted = "--master local-cluster[2,1,700] --conf spark.executor.memory=500m --conf spark.ui.enabled=false"
    variables = {
        "SPARK_HOME": str(Path(found.origin).parent),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": f"{submitted} pyspark-shell",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(cluster.private / "spark"),
    }
    with started(cluster, "agents_in_spark.py", **variables) as process:
        check_a_killed_worker_gets_another_agent(cluster, process)
