"""Memory and disk that run out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from container_cluster import Cluster, Work, kept, restarts, wait_until
from container_engine import docker

pytestmark = pytest.mark.timeout(300, func_only=True)

HUNGRY = """\
import os, time
def run(mini_batch):
    time.sleep(0.01)
    if mini_batch[0].endswith("00007"):
        hoard = [bytearray(b"x" * (16 << 20)) for _ in range(128)]
    return [os.path.basename(path) + " " + str(len(open(path).read())) for path in mini_batch]
"""


@pytest.fixture(scope="module")
def small_cluster(images: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One agent with little memory, a master with a small disk."""
    cluster = Cluster(
        tmp_path_factory.mktemp("small"),
        f"windrow-small-{os.getpid()}",
        overrides=[Path(__file__).with_name("small-state.yml")],
        WINDROW_AGENT_MEMORY="512m",
    )
    try:
        yield cluster
    finally:
        cluster.down(volumes=True)


@pytest.fixture
def cluster(small_cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """It, up and ready."""
    yield from kept(small_cluster, request, 1)


def test_a_mini_batch_beyond_the_containers_memory_is_told_apart_and_the_agent_survives(cluster: Cluster) -> None:
    work = Work(cluster, "hungry", items=50, script=HUNGRY, settings="mini_batch_error_threshold: 1").submit()
    job = work.wait()
    (step,) = job.steps
    assert step.failed_attempts == {"oom": 3}, "the limit for oom is a limit of its own"
    assert (step.items.ok, step.items.failed) == (49, 1)
    assert [line.split()[0] for line in work.output().splitlines()] == [f"{n:05d}" for n in range(50) if n != 7]
    assert restarts(cluster.agents[0]) == 0, "the kernel chose the worker, not the agent"


def test_a_full_state_volume_stops_acknowledging_says_why_and_goes_on(cluster: Cluster) -> None:
    work = Work(cluster, "full-disk", items=1000).submit().wait_done(0.1)
    fill = "dd if=/dev/zero of=/state/filler bs=64k 2>/dev/null; dd if=/dev/zero of=/state/filler2 bs=1k 2>/dev/null"
    docker("exec", cluster.master, "sh", "-c", fill, check=False)
    with cluster.client() as client:
        wait_until(lambda: client.master().read_only_reason, "the master says that it accepts nothing")
        assert "is full" in client.master().read_only_reason
        before = client.get(work.job_id)
        assert not before.state.ended
        answer = docker("exec", cluster.master, "windrow", "health", "--master=localhost:8470", check=False)
        assert "not serving" in answer
        docker("exec", cluster.master, "rm", "/state/filler", "/state/filler2")
        wait_until(lambda: not client.master().read_only_reason, "the master goes on")
    work.check()
    assert restarts(cluster.master) == 0
