"""A fleet in a real Ray cluster, with a real master and agents: nodes and programs are killed while jobs run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from embedded_run import check_words, wait_until
from fleet_chaos import MOST, TIMEOUT_S, Chaos
from fleet_on_ray import FleetOnRay
from ray_cluster import NEEDS_RAY, RayCluster

pytestmark = [NEEDS_RAY, pytest.mark.timeout(900, func_only=True)]

PAUSE_S = 5
"""Of a mini-batch: a job of them wants three agents."""


@pytest.fixture
def ray() -> Iterator[RayCluster]:
    """A cluster without room."""
    made = RayCluster()
    try:
        yield made
    finally:
        made.end()


@pytest.fixture
def site(tmp_path: Path, ray: RayCluster, request: pytest.FixtureRequest) -> Iterator[FleetOnRay]:
    """A master that serves; the test starts the fleet's program."""
    slots, most = getattr(request, "param", (1, 3))
    made = FleetOnRay(tmp_path, ray, slots=slots, most=most)
    made.taken, made.killed = set(), set()
    try:
        made.start_master()
        yield made
    finally:
        made.end()


def test_a_cluster_is_killed_node_by_node_and_the_output_is_exact(site: FleetOnRay) -> None:
    hurry, variables = site.folder / "hurry", "jobs.score.environment_variables"
    site.add_node()
    site.add_node()
    site.start_fleet()
    assert site.live() == [] and site.actors() == []
    site.create("nightly", "--set", f"{variables}.PAUSE={PAUSE_S}", "--set", f"{variables}.HURRY={hurry}")
    wait_until(lambda: sum(one.is_busy for one in site.live()) == 2, "each node has an agent that works")
    wait_until(lambda: {one.state for one in site.live()} == {"queued", "started"}, "a third one waits for room")
    assert {one.name for one in site.live()} == set(site.actors()) == {one.engine_id for one in site.live()}
    assert {one.node_id for one in site.live() if one.is_busy} == set(site.running())
    listed = site.run("fleet", "list")
    awaited = "The engine lets 1 wait: It waits for a node of the Ray cluster with enough free: CPU 1."
    check_words(listed.stdout, ["site", "local", "ray", "0-3", awaited])
    for number, node in enumerate(tuple(site.nodes)):
        (victim,) = (name for name in site.running() if site.node_of(name) == node)
        site.kill_node(node)
        wait_until(lambda name=victim: name not in [one.name for one in site.live()], "its end is known")
        (lost,) = site.allocations(lambda one, name=victim: one.name == name)
        assert (lost.state, lost.reason) == ("preempted", "Its node has left the cluster.")
        wait_until(
            lambda: sorted(one.state for one in site.live()) == ["queued", "queued", "started"], "another is asked for"
        )
        # The program is killed while actors wait for room, and its job in Ray has ended with it.
        program = site.processes["fleet" if number == 0 else f"fleet-{number}"]
        program.kill()
        program.wait()
        site.add_node()
        wait_until(lambda: len(site.running()) == 2, "an actor that waited has room")
        site.start_fleet(f"fleet-{number + 1}")
        wait_until(lambda: sum(one.is_busy for one in site.live()) == 2, "the agents work")
        assert len(site.actors()) <= 3
    hurry.touch()
    step = site.check_done("nightly")
    assert (set(step["failed_attempts"]) - {"node_lost"}, step["retries"]) == (set(), 0)
    wait_until(lambda: site.live() == [] and not site.actors(), "the agents have left")
    # None was asked for twice, none was forgotten.
    assert sorted(site.created()) == sorted(one.name for one in site.allocations())
    ended = {one.name: one.state for one in site.allocations()}
    assert {ended[name] for name in site.taken} == {"preempted"}
    others = {state for name, state in ended.items() if name not in site.taken}
    assert others <= {"completed", "cancelled", "lost"}
    # Ray queues an actor that waits at one of its nodes: it goes with that node.
    assert not any(one.join_time for one in site.allocations(lambda one: one.state == "lost"))


@pytest.mark.skipif("WINDROW_FLEET_EVENTS" not in os.environ, reason="takes minutes: set WINDROW_FLEET_EVENTS")
@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("site", [(2, MOST)], indirect=True)
def test_jobs_are_right_whatever_happens_to_ray_while_they_run(site: FleetOnRay) -> None:
    for _ in range(MOST):
        site.add_node()
    Chaos(site).run()
