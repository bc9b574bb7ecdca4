"""Jobs in a cluster that nobody disturbs, and one that grows, shrinks, restarts and goes away in their middle."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from container_cluster import WINDROW, Cluster, Work, wait_until

pytestmark = pytest.mark.timeout(300, func_only=True)

TABLE_SCRIPT = """\
def run(mini_batch):
    mini_batch["total"] = mini_batch["a"] * mini_batch["b"]
    return mini_batch
"""

TABLE_JOB = """\
type: pipeline
inputs:
  data: {{type: mltable, path: {path}}}
outputs:
  rows: {{type: uri_folder{output}}}
jobs:
  total:
    type: parallel
    mini_batch_size: 20kb
    mini_batch_error_threshold: 0
    inputs: {{data: "${{{{parent.inputs.data}}}}"}}
    input_data: ${{{{inputs.data}}}}
    outputs: {{rows: "${{{{parent.outputs.rows}}}}"}}
    task:
      type: run_function
      code: ./code
      entry_script: entry.py
      append_row_to: ${{{{outputs.rows}}}}
"""

MLTABLE = """\
paths:
  - pattern: ./*.csv
transformations:
  - read_delimited: {delimiter: ",", header: all_files_same_headers}
"""


def run_embedded(file: Path) -> None:
    """The same job on this machine alone."""
    done = subprocess.run(
        [WINDROW, "run", file.name, "--no-progress"], cwd=file.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_job_over_files_is_what_the_embedded_run_makes_of_it(cluster: Cluster) -> None:
    work = Work(cluster, "files", items=600).submit()
    local = work.folder / "local.yml"
    text = work.file.read_text().replace("/data/files", str(cluster.data / "files"))
    local.write_text(text.replace("rows: {type: uri_folder}", "rows: {type: uri_folder, path: ./out}"))
    work.check()
    run_embedded(local)
    assert (work.folder / "out" / "parallel_run_step.txt").read_text() == work.output()


def test_a_job_over_a_table_is_what_the_embedded_run_makes_of_it(cluster: Cluster) -> None:
    data, folder = cluster.data / "table", cluster.work / "table"
    data.mkdir()
    (data / "MLTable").write_text(MLTABLE)
    for part in range(5):
        lines = [f"{row},{row % 17 + part},name {row}" for row in range(8_000)]
        (data / f"part{part}.csv").write_text("a,b,c\n" + "\n".join(lines) + "\n")
    (folder / "code").mkdir(parents=True)
    (folder / "code" / "entry.py").write_text(TABLE_SCRIPT)
    (folder / "job.yml").write_text(TABLE_JOB.format(path="/data/table", output=""))
    (folder / "local.yml").write_text(TABLE_JOB.format(path=data, output=", path: ./out"))
    with cluster.client() as client:
        job = client.wait(client.submit(folder / "job.yml").job_id, timeout_s=120)
        assert job.state == "completed", job.message
        assert job.mini_batches.total > 10
        assert client.to_dataframe(job.job_id).shape == (40_000, 4)
        received = client.download(job.job_id, folder / "fetched")
    run_embedded(folder / "local.yml")
    (rows,) = [file for file in received if file.name == "parallel_run_step.txt"]
    assert rows.read_bytes() == (folder / "out" / "parallel_run_step.txt").read_bytes()


def test_a_fleet_grows_and_shrinks_in_the_middle_of_a_job(cluster: Cluster) -> None:
    work = Work(cluster, "elastic", items=2500, pause_s=0.05).submit().wait_done(0.02)
    cluster.up(8)
    assert not work.job().state.ended, "new agents joined too late to be of use"
    cluster.up(2)
    job = work.check()
    assert "node_lost" not in job.steps[0].failed_attempts, "who leaves hands back what it holds"


def test_a_node_is_drained_by_the_command(cluster: Cluster) -> None:
    work = Work(cluster, "drained").submit().wait_done(0.2)
    victim = cluster.agents[0]
    assert victim in cluster.windrow("node", "drain", victim, "--wait")
    job = work.wait()
    assert job.state == "completed"
    assert "node_lost" not in job.steps[0].failed_attempts

    def back() -> bool:
        return any(node.node_id == victim and node.cordoned and node.state == "ready" for node in cluster.nodes())

    wait_until(back, "its container was started again, and gets nothing until somebody says so")
    cluster.windrow("node", "uncordon", victim)
    work.check()


def test_everything_is_restarted_one_by_one_in_the_middle_of_a_job(cluster: Cluster) -> None:
    work = Work(cluster, "rolling", items=6000).submit().wait_done(0.05)
    for container in [*cluster.agents[:2], cluster.master, *cluster.agents[2:]]:
        cluster.restart(container)
        cluster.wait_ready(4)
    work.check()


def test_down_and_up_again_keeps_state_and_history(cluster: Cluster) -> None:
    before = Work(cluster, "before").submit()
    before.check()
    during = Work(cluster, "during", items=4000).submit().wait_done(0.1)
    cluster.down()
    assert not cluster.agents
    cluster.up(4)
    during.check()
    with cluster.client() as client:
        names = [job.job_id for job in client.list_jobs()]
        assert client.get(before.job_id).state == "completed"
    assert names[:2] == [during.job_id, before.job_id]


def test_the_client_container_submits_follows_and_fetches(cluster: Cluster) -> None:
    Work(cluster, "inside", items=100)
    told = cluster.windrow("job", "create", "inside/job.yml", "--stream")
    assert "Completed: 100 items in 100 mini-batches" in told
    with cluster.client() as client:
        job_id = next(client.list_jobs()).job_id
    cluster.windrow("job", "download", job_id, "--to", "fetched")
    assert len((cluster.work / "fetched" / "rows" / "parallel_run_step.txt").read_text().splitlines()) == 100
    assert job_id in cluster.windrow("job", "list")


def test_a_client_elsewhere_brings_its_data_along_and_fetches_what_came_of_it(cluster: Cluster) -> None:
    folder = cluster.folder / "laptop"
    (folder / "images").mkdir(parents=True)
    for number in range(300):
        (folder / "images" / f"{number:05d}").write_text("x" * (number % 7))
    work = Work(cluster, "remote", items=300)
    text = work.file.read_text().replace("/data/remote", "./images")
    (folder / "job.yml").write_text(text)
    (work.folder / "code").rename(folder / "code")
    told = cluster.on_host(folder, "job", "create", "job.yml", "--stream")
    assert "Completed: 300 items in 300 mini-batches" in told
    with cluster.client() as client:
        work.job_id = next(client.list_jobs()).job_id
    cluster.on_host(folder, "job", "download", work.job_id, "--to", "fetched")
    assert (folder / "fetched" / "rows" / "parallel_run_step.txt").read_text() == work.expected()
    assert "Uploaded" in told
    assert "Uploaded" not in cluster.on_host(folder, "job", "create", "job.yml"), "the same data is not sent again"


def test_a_script_that_lacks_a_library_hears_how_it_gets_into_the_image(cluster: Cluster) -> None:
    work = Work(cluster, "lacking", items=1, script="import no_such_thing\n" + Work.SCRIPT.format(pause_s=0)).submit()
    job = work.wait()
    assert job.state == "failed"
    assert "list it in docker/agent-requirements.txt" in job.message
