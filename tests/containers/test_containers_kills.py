"""Processes that are killed in the middle of a job: the output is what it would have been, and nobody is charged."""

from __future__ import annotations

import os

import pytest
from container_cluster import Cluster, Work, processes, restarts, wait_until

pytestmark = pytest.mark.timeout(300, func_only=True)

AGENT, WORKER, MASTER = "-m windrow_agent", r"launch\.py", "-m windrow_master --listen"


def test_an_agent_is_killed(cluster: Cluster) -> None:
    work = Work(cluster, "agent-killed").submit().wait_done(0.2)
    victim = cluster.agents[0]
    before = restarts(victim)
    cluster.kill_process(victim, AGENT)
    work.check()
    assert restarts(victim) == before + 1
    assert victim in [node.node_id for node in cluster.nodes()], "a container that is restarted is the same node"


def test_two_agents_are_killed_at_once(cluster: Cluster) -> None:
    work = Work(cluster, "two-agents-killed").submit().wait_done(0.2)
    for victim in cluster.agents[:2]:
        cluster.kill_process(victim, AGENT)
    work.check()


def test_a_worker_is_killed(cluster: Cluster) -> None:
    work = Work(cluster, "worker-killed").submit().wait_done(0.2)
    number = next(number for number, line in processes(cluster.agents[1]) if "launch.py" in line)
    os.kill(number, 9)
    # Whether the mini-batch had begun decides whether there was a crash at all; it has a budget of its own.
    job = work.check(may_crash=True)
    assert job.steps[0].failed_attempts.get("crash", 0) <= 1


def test_the_master_is_killed(cluster: Cluster) -> None:
    work = Work(cluster, "master-killed").submit().wait_done(0.2)
    before = restarts(cluster.master)
    done = work.job().items.ok
    cluster.kill_process(cluster.master, MASTER)
    wait_until(lambda: restarts(cluster.master) == before + 1, "Docker starts the master again")
    work.check()
    assert done > 0


def test_the_master_and_an_agent_are_killed_together(cluster: Cluster) -> None:
    work = Work(cluster, "master-and-agent-killed").submit().wait_done(0.2)
    victim = cluster.agents[2]
    cluster.kill_process(cluster.master, MASTER)
    cluster.kill_process(victim, AGENT)
    work.check()


def test_a_container_of_an_agent_is_killed_and_replaced(cluster: Cluster) -> None:
    work = Work(cluster, "container-killed").submit().wait_done(0.2)
    victim = cluster.agents[3]
    cluster.destroy(victim)
    job = work.wait()
    assert job.state == "completed"
    cluster.up(4)
    work.check()
    assert victim not in [node.node_id for node in cluster.nodes()], "a container that was replaced is a new node"
