"""Networks that are cut, slow or lossy, and processes that stand still, in the middle of a job."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from container_cluster import Cluster, Work, inspect_address, restarts, wait_until
from container_engine import docker

pytestmark = pytest.mark.timeout(300, func_only=True)


def in_network_of(container: str, *command: str) -> str | None:
    """Run a command of this machine in a container's network; what it says, or None when it fails."""
    number = docker("inspect", "-f", "{{.State.Pid}}", container).strip()
    command = ("nsenter", "-t", number, "-n", *command)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


def interface_of(container: str) -> str:
    """The name of its one network interface; it changes when it is plugged in again."""
    links = in_network_of(container, "ip", "-o", "link", "show", "type", "veth")
    assert links is not None
    (name,) = [line.split(": ")[1].partition("@")[0] for line in links.splitlines()]
    return name


def need_cables() -> None:
    """Skip where this machine cannot reach into a container's network."""
    if os.geteuid() != 0 or shutil.which("nsenter") is None or shutil.which("ip") is None:
        pytest.skip("needs root, nsenter and ip to pull a container's network cable")


@contextmanager
def cable_pulled(container: str) -> Iterator[None]:
    """Nothing gets through, and nobody is told."""
    interface = interface_of(container)
    assert in_network_of(container, "ip", "link", "set", interface, "down") is not None
    try:
        yield
    finally:
        assert in_network_of(container, "ip", "link", "set", interface, "up") is not None


def silent_s(cluster: Cluster, name: str) -> float:
    """How long the master has not heard of a node; infinite when it has given it up."""
    for node in cluster.nodes():
        if node.node_id == name and node.state != "lost":
            return node.silent_s or 0.0
    return float("inf")


def is_healthy(container: str) -> bool:
    """An agent says that it is connected to a master."""
    command = ("windrow", "health", "--folder=/var/lib/windrow/agent")
    return "not serving" not in docker("exec", container, *command, check=False)


def test_an_agent_is_cut_off_for_less_than_its_lease(cluster: Cluster) -> None:
    need_cables()
    work = Work(cluster, "short-cut").submit().wait_done(0.2)
    victim = cluster.agents[0]
    with cable_pulled(victim):
        wait_until(lambda: silent_s(cluster, victim) > 2.5, "the agent is silent")
    job = work.check()
    assert "node_lost" not in job.steps[0].failed_attempts, "a stall of 3 s costs no lease"


def test_an_agent_is_cut_off_for_longer_than_its_lease(cluster: Cluster) -> None:
    work = Work(cluster, "long-cut", items=4000).submit().wait_done(0.1)
    victim = cluster.agents[1]
    cluster.disconnect(victim)
    wait_until(lambda: silent_s(cluster, victim) == float("inf"), "the agent is given up")
    cluster.connect(victim, "agent")
    work.check()
    assert restarts(victim) == 0 or is_healthy(victim)


def test_the_master_is_cut_off(cluster: Cluster) -> None:
    work = Work(cluster, "master-cut").submit().wait_done(0.2)
    master = cluster.master
    cluster.disconnect(master)
    wait_until(lambda: not any(map(is_healthy, cluster.agents)), "no agent is connected to a master")
    cluster.connect(master, "master")
    work.check()


def test_a_pulled_cable_of_the_master_for_3_seconds_costs_nothing(cluster: Cluster) -> None:
    need_cables()
    work = Work(cluster, "master-stall").submit().wait_done(0.2)
    with cable_pulled(cluster.master):
        ends = time.monotonic() + 3.0
        wait_until(lambda: time.monotonic() > ends, "the fault has lasted 3 s")
    job = work.check()
    assert "node_lost" not in job.steps[0].failed_attempts, "what nobody could say counts against nobody"


def test_links_that_are_slow_and_lossy(cluster: Cluster) -> None:
    need_cables()
    if shutil.which("tc") is None or shutil.which("iptables") is None:
        pytest.skip("needs tc and iptables")
    work = Work(cluster, "lossy", items=1000)
    loss = ("OUTPUT", "-m", "statistic", "--mode", "random", "--probability", "0.05", "-j", "DROP")
    slow = ("root", "tbf", "rate", "2mbit", "burst", "16k", "latency", "300ms")
    delayed = ("root", "netem", "delay", "60ms", "20ms")
    victims = cluster.agents[:3]
    for victim in victims:
        if in_network_of(victim, "iptables", "-A", *loss) is None:
            pytest.skip("this kernel loses no packets on demand")
        # netem delays, where the kernel has it; a token bucket, which all have, does so under load.
        queue = ("tc", "qdisc", "add", "dev", interface_of(victim))
        assert in_network_of(victim, *queue, *delayed) is not None or in_network_of(victim, *queue, *slow) is not None
    try:
        work.submit().check()
    finally:
        for victim in victims:
            in_network_of(victim, "iptables", "-D", *loss)
            in_network_of(victim, "tc", "qdisc", "del", "dev", interface_of(victim), "root")


def test_an_agent_that_stood_still_delivers_late_and_is_refused(cluster: Cluster) -> None:
    work = Work(cluster, "paused", items=4000).submit().wait_done(0.1)
    zombie = cluster.agents[2]
    docker("pause", zombie)
    try:
        wait_until(lambda: silent_s(cluster, zombie) == float("inf"), "the agent is given up")
    finally:
        docker("unpause", zombie)
    work.check()


def test_the_master_comes_back_at_a_new_address(cluster: Cluster) -> None:
    work = Work(cluster, "new-address").submit().wait_done(0.2)
    master = cluster.master
    before = inspect_address(master, cluster.network)
    cluster.disconnect(master)
    # Whoever takes the old address must not be mistaken for the master.
    squatter = docker(
        *("run", "-d", "--rm", "--network", cluster.network, "--entrypoint", "sleep", "windrow-master", "600")
    ).strip()
    try:
        assert inspect_address(squatter, cluster.network) == before
        cluster.connect(master, "master")
        assert inspect_address(master, cluster.network) != before
        work.check()
    finally:
        docker("rm", "-f", squatter)
