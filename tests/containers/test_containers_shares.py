"""Projects that share a cluster: what each gets, and that nothing is lost by it, whoever dies meanwhile."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import pytest
from container_cluster import Cluster, Work, wait_until
from windrow import Client
from windrow.common.queue_settings import Bounds, QueueSettings

from benchmarks.water_filling import Project, fair_shares

pytestmark = pytest.mark.timeout(300, func_only=True)

SLOTS = 8
"""Of the four agents together."""

HALF_A_GPU = "resources: {gpus_per_worker: 0.5}"


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    """A client that sets queues; in the end none has settings, and no job is open."""
    with cluster.client() as made:
        yield made
        for job in made.list_jobs():
            if not job.state.ended:
                made.cancel(job.job_id)
        made.queues.set({}, only=True)


def endless(cluster: Cluster, name: str) -> Work:
    """A job that takes minutes. Its pauses are longer than what a slow machine takes for a mini-batch."""
    return Work(cluster, name, items=3000, pause_s=0.3)


def ended(client: Client, work: Work) -> int:
    return client.get(work.job_id).items.ended


def fair(client: Client, projects: Iterable[str]) -> dict[str, float]:
    found = {queue.name: queue.fair_slots for queue in client.queues.list().queues}
    return {name: found.get(name, 0.0) for name in projects}


def workers(client: Client, project: str) -> int:
    return client.queues.get(project).workers


def test_projects_have_what_an_independent_script_says_that_they_should_have(client: Client, cluster: Cluster) -> None:
    client.queues.set(
        {
            "owed": QueueSettings(cluster=Bounds(3.0)),
            "heavy": QueueSettings(2.0),
            "bound": QueueSettings(5.0, cluster=Bounds(0.0, 1.0)),
            "last": QueueSettings(priority=-1),
        }
    )
    for name in ("owed", "heavy", "bound", "last"):
        endless(cluster, f"fair-{name}").submit(name)
    should = fair_shares(
        SLOTS,
        {
            "owed": Project(999, quota=3.0),
            "heavy": Project(999, 2.0),
            "bound": Project(999, 5.0, limit=1.0),
            "last": Project(999, priority=-1),
        },
    )
    wait_until(lambda: fair(client, should) == pytest.approx(should, abs=0.01), f"the shares are {should}")
    for name, share in should.items():
        # A part of a slot is one for a part of the time.
        wait_until(lambda name=name, share=share: abs(workers(client, name) - share) < 1, f"{name} has {share}")  # type: ignore[misc]


def test_weights_are_the_proportion_in_which_mini_batches_run(client: Client, cluster: Cluster) -> None:
    client.queues.set({"heavy": QueueSettings(3.0), "light": QueueSettings()})
    heavy, light = (endless(cluster, name).submit(name) for name in ("heavy", "light"))
    wait_until(lambda: (workers(client, "heavy"), workers(client, "light")) == (6, 2), "they have three to one")
    before = ended(client, heavy), ended(client, light)
    wait_until(lambda: ended(client, light) >= before[1] + 60, "the light one goes on")
    after = ended(client, heavy), ended(client, light)
    assert after[0] - before[0] == pytest.approx(3 * (after[1] - before[1]), rel=0.3)


def test_who_goes_first_goes_first_and_the_others_lose_nothing(client: Client, cluster: Cluster) -> None:
    client.queues.set({"urgent": QueueSettings(priority=10)})
    usual = Work(cluster, "usual", items=160, pause_s=0.5).submit("usual")
    wait_until(lambda: workers(client, "usual") == SLOTS, "the usual job has all")
    urgent = Work(cluster, "urgent", items=40, pause_s=0.05).submit("urgent")
    urgent.check_rows()
    assert not usual.job().state.ended
    job = usual.check_rows()
    assert not job.steps[0].failed_attempts, "what ran was finished"


def test_small_jobs_end_beside_a_huge_one_of_their_project(client: Client, cluster: Cluster) -> None:
    huge = endless(cluster, "huge").submit()
    wait_until(lambda: ended(client, huge), "the huge job has begun")
    small = [Work(cluster, f"small-{number}", items=4, pause_s=0.1).submit() for number in range(10)]
    for work in small:
        work.check_rows()
    assert not huge.job().state.ended and not huge.job().steps[0].failed_attempts


def test_a_quota_is_had_while_it_is_of_use_and_others_have_it_else(client: Client, cluster: Cluster) -> None:
    client.queues.set({"owed": QueueSettings(cluster=Bounds(4.0)), "greedy": QueueSettings(9.0)})
    greedy = endless(cluster, "greedy").submit("greedy")
    wait_until(lambda: workers(client, "greedy") == SLOTS, "what nobody else uses")
    owed = Work(cluster, "owed", items=200, pause_s=0.05).submit("owed")
    wait_until(lambda: workers(client, "owed") >= 4, "the quota")
    owed.check_rows()
    wait_until(lambda: workers(client, "greedy") == SLOTS, "all of it again")
    assert not greedy.job().steps[0].failed_attempts


def test_whoever_dies_while_shares_change_hands_nothing_is_lost(client: Client, cluster: Cluster) -> None:
    works = [Work(cluster, f"storm-{name}", items=600, pause_s=0.05).submit(name) for name in ("a", "b", "c")]

    def change(first: str) -> None:
        """One has all, and the others a quota of one slot."""
        client.queues.set(
            {name: QueueSettings(priority=5 * (name == first), cluster=Bounds(1.0)) for name in ("a", "b", "c")}
        )

    kills: list[Callable[[], None]] = [
        lambda: cluster.kill_process(cluster.master, "-m windrow_master --listen"),
        lambda: cluster.kill_process(cluster.agents[1], "-m windrow_agent"),
        lambda: cluster.destroy(cluster.agents[2]),
    ]
    turns = itertools.cycle("abc")
    for kill in kills:
        change(next(turns))
        now = sum(ended(client, work) for work in works)
        wait_until(lambda now=now: sum(ended(client, work) for work in works) > now + 30, "work goes on")  # type: ignore[misc]
        change(next(turns))
        kill()
    cluster.up(4)
    for work in works:
        work.check()


@contextmanager
def agent_with_a_gpu(cluster: Cluster) -> Iterator[None]:
    """One agent more, which is told that it has a GPU."""
    name = f"{cluster.project}-gpu"
    options = ("--master=master:8470", "--folder=/var/lib/windrow/agent", f"--user={cluster.user}", "--gpus=1")
    before = {node.node_id for node in cluster.nodes()}
    cluster.compose("run", "-d", "--name", name, "agent", "agent", *options)
    cluster.wait_ready(cluster.scale + 1)
    (node_id,) = {node.node_id for node in cluster.nodes()} - before
    try:
        yield
    finally:
        cluster.destroy(name)
        with cluster.client() as client:
            client.remove_node(node_id, force=True)


GPU_SCRIPT = """\
import os, time
def run(mini_batch):
    time.sleep(0.1)
    return [os.path.basename(path) + " " + os.environ["CUDA_VISIBLE_DEVICES"] for path in mini_batch]
"""


def test_two_jobs_have_half_a_gpu_each(client: Client, cluster: Cluster) -> None:
    with agent_with_a_gpu(cluster):
        jobs = [
            Work(cluster, f"half-{number}", items=40, script=GPU_SCRIPT, settings=HALF_A_GPU).submit()
            for number in range(2)
        ]
        wait_until(lambda: all(ended(client, work) for work in jobs), "both run")
        assert not any(work.job().state.ended for work in jobs), "at the same time"
        for work in jobs:
            assert work.wait().state == "completed"
            assert work.output() == "".join(f"{number:05d} 0\n" for number in range(40))
