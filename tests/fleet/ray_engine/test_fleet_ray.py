"""The provider of Ray keeps the contract of providers, in a real Ray cluster of several nodes on this machine."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ray_cluster import NEEDS_RAY, RayCluster
from windrow.fleet import provider_kit
from windrow.fleet.provider import AgentCommand, Refused, Request, Seen, Shape, State, Unreachable
from windrow.fleet.providers.ray import ray_provider
from windrow.fleet.providers.ray.ray_provider import RayProvider
from windrow.fleet.providers.ray.settings import RaySettings

pytestmark = [
    NEEDS_RAY,
    pytest.mark.timeout(600, func_only=True),
]

DEADLINE_S = 180.0
STAYS = ("sleep", "3600")
CPUS = 2
"""Of each node, but for the first."""


class Group:
    """A group of its own, with its provider."""

    def __init__(self, address: str) -> None:
        self.prefix = f"test-{secrets.token_hex(4)}-"
        self.settings = RaySettings(address)
        self.provider = RayProvider(self.settings, self.prefix)

    def request(self, *words: str, shape: Shape | None = None, **environment: str) -> Request:
        name = f"{self.prefix}x{secrets.token_hex(4)}"
        return Request(name, shape or Shape(1), None, AgentCommand(words, environment))

    def only(self) -> Seen:
        (seen,) = self.provider.allocations()
        return seen

    def until(self, state: State) -> Seen:
        until(lambda: self.only().state is state, lambda: f"{state} has come, not {self.only()}")
        return self.only()


def until(condition: Callable[[], object], what: Callable[[], str]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.1)


def end_side(provider: RayProvider) -> None:
    provider._side._end()


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    made = RayCluster()
    try:
        for _ in range(2):
            made.add_node(CPUS)
        yield made
    finally:
        made.end()


@pytest.fixture
def group(cluster: RayCluster) -> Iterator[Group]:
    made = Group(cluster.address)
    yield made
    for seen in made.provider.allocations():
        made.provider.cancel(seen, only_queued=False)
    until(lambda: all(seen.state.has_ended for seen in made.provider.allocations()), lambda: "all have ended")
    end_side(made.provider)


@pytest.mark.parametrize("check", provider_kit.CHECKS, ids=lambda check: check.__name__)
def test_ray_keeps_the_contract_of_providers(cluster: RayCluster, check: Callable[[provider_kit.Engine], None]) -> None:
    made: list[RayProvider] = []

    def make(prefix: str) -> RayProvider:
        made.append(RayProvider(RaySettings(cluster.address), prefix))
        return made[-1]

    try:
        check(provider_kit.Engine(make=make, waiting=Shape(CPUS + 1), wait_s=DEADLINE_S))
    finally:
        for provider in made:
            end_side(provider)


def test_agents_live_on_when_the_fleet_and_its_job_in_ray_have_ended(group: Group, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    group.provider.submit(group.request("sh", "-c", f"echo $$ > {file}; exec sleep 3600"))
    group.until(State.STARTED)
    until(lambda: file.exists() and file.read_text().strip(), lambda: "its agent runs")
    side = group.provider._side._process
    assert side is not None
    os.kill(side.pid, signal.SIGKILL)
    side.wait()
    assert group.only().state is State.STARTED
    os.kill(int(file.read_text()), 0)


SLOW = """\
import pathlib, runpy, sys, time
import ray
side, gate, made = sys.argv.pop(1), pathlib.Path(sys.argv.pop(1)), ray.remote
def remote(actor):
    gate.with_suffix(".reached").touch()
    while not gate.exists():
        time.sleep(0.01)
    return made(actor)
ray.remote = remote
runpy.run_path(side, run_name="__main__")
"""
"""The side of the cluster, which is slow to make an actor."""


def test_what_a_killed_program_is_still_submitting_is_found_by_the_next(group: Group, tmp_path: Path) -> None:
    request, gate = group.request(*STAYS), tmp_path / "gate"
    told = {"name": request.name, "arguments": STAYS, "environment": {}, "cpus": 1, "gpus": 0, "memory": 0}
    words = [sys.executable, "-c", SLOW, str(ray_provider._RAY_SIDE), str(gate)]
    side = subprocess.Popen(
        [*words, group.settings.address, group.settings.namespace], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    try:
        assert side.stdin is not None
        side.stdin.write(json.dumps({"call": "submit", **told, "resources": {}}).encode() + b"\n")
        # Its program has been killed.
        side.stdin.close()
        until(gate.with_suffix(".reached").exists, lambda: "it submits")
        assert group.provider.allocations() == []
        gate.touch()
        assert side.wait(DEADLINE_S) == 0
        assert group.until(State.STARTED).name == request.name
    finally:
        side.kill()
        side.wait()


def test_a_killed_node_takes_its_agents_away_and_no_others(cluster: RayCluster, group: Group, tmp_path: Path) -> None:
    node = cluster.add_node(CPUS)
    file = tmp_path / "pid"
    stays = group.request(*STAYS)
    group.provider.submit(stays)
    group.until(State.STARTED)
    # Two that take all of a node: one of them is on the new one, or on one of the others.
    words = ("sh", "-c", f"echo $$ > {file}.$$; exec sleep 3600")
    for _ in range(2):
        group.provider.submit(group.request(*words, shape=Shape(CPUS)))
    until(
        lambda: [seen.state for seen in group.provider.allocations()] == [State.STARTED] * 3, lambda: "all have started"
    )
    fates = {told["name"]: told["fate"] for told in group.provider._side.call("list_all", prefix=group.prefix)}
    taken = {name for name, fate in fates.items() if fate == f"started {node}"}
    cluster.kill_node(node)
    until(
        lambda: {seen.name for seen in group.provider.allocations() if seen.state.has_ended} == taken,
        lambda: f"{taken} have ended, of {group.provider.allocations()}",
    )
    for seen in group.provider.allocations():
        if seen.name in taken:
            assert (seen.state, seen.reason) == (State.PREEMPTED, "Its node has left the cluster.")
    assert taken, "the new node had an agent"


def test_a_killed_actor_takes_its_agent_along_and_is_told(group: Group, tmp_path: Path) -> None:
    file = tmp_path / "pids"
    group.provider.submit(group.request("sh", "-c", f"echo $$ $PPID > {file}; exec sleep 3600"))
    group.until(State.STARTED)
    until(lambda: file.exists() and file.read_text().strip(), lambda: "its agent runs")
    agent, actor = map(int, file.read_text().split())
    os.kill(actor, signal.SIGKILL)
    seen = group.until(State.FAILED)
    assert seen.reason == "Its actor was killed."
    until(lambda: ended(agent), lambda: "the agent has ended, too")


def ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except OSError:
        return True


def test_variables_and_words_arrive_and_the_last_ones_are_told(group: Group) -> None:
    group.provider.submit(group.request("sh", "-c", 'echo "$WHO $1"; exit 3', "sh", "a b", WHO="it's me"))
    seen = group.until(State.FAILED)
    assert seen.reason == "Its process ended with exit code 3."
    assert group.provider.why(seen) == "Its process ended with exit code 3.\nit's me a b"


def test_what_a_cluster_has_no_room_for_waits_and_says_what_is_free(group: Group) -> None:
    group.provider.submit(group.request(*STAYS, shape=Shape(1, memory_bytes=3 << 29, gpus=1)))
    seen = group.only()
    awaited = "It waits for a node of the Ray cluster with enough free: CPU 1, GPU 1, memory 1.6 GB."
    assert (seen.state, seen.reason) == (State.QUEUED, awaited)
    assert group.provider.why(seen).startswith(f"{awaited} Free in all its nodes together: CPU ")
    assert group.provider.cancel(seen, only_queued=True)
    assert group.only().state is State.CANCELLED


def test_allocations_that_have_ended_are_forgotten_in_the_end(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    group.provider.submit(group.request("true"))
    group.until(State.COMPLETED)
    monkeypatch.setattr(ray_provider, "KEPT_S", -1.0)
    assert group.provider.allocations() == []
    after = RayProvider(group.settings, group.prefix)
    assert after.allocations() == []
    end_side(after)


def test_groups_of_the_same_name_in_other_namespaces_are_others(group: Group) -> None:
    request = group.request(*STAYS)
    group.provider.submit(request)
    group.until(State.STARTED)
    other = RayProvider(group.settings._replace(namespace="other"), group.prefix)
    try:
        assert other.allocations() == []
        other.submit(request)
        assert [seen.name for seen in other.allocations()] == [request.name]
        assert other.cancel(other.allocations()[0], only_queued=False)
        until(lambda: all(seen.state.has_ended for seen in other.allocations()), lambda: "the other one has ended")
        assert group.only().state is State.STARTED
    finally:
        end_side(other)


def test_a_name_is_used_once(group: Group) -> None:
    request = group.request(*STAYS)
    group.provider.submit(request)
    with pytest.raises(Refused, match="already"):
        group.provider.submit(request)


def test_a_cluster_that_is_gone_is_no_cluster_without_agents() -> None:
    cluster = RayCluster()
    group = Group(cluster.address)
    assert group.provider.allocations() == []
    cluster.end()
    with pytest.raises(Unreachable, match="The Ray cluster"):
        group.provider.allocations()
    with pytest.raises(Unreachable, match="The Ray cluster"):
        group.provider.submit(group.request(*STAYS))
    end_side(group.provider)


def test_a_python_without_ray_says_so() -> None:
    lacking = RayProvider(RaySettings("127.0.0.1:1", python="/usr/bin/python3"), "f-g-")
    with pytest.raises(Unreachable, match="No module named 'ray'"):
        lacking.allocations()
