"""The profile `fleet` of docker-compose.yml: agents come as the queue needs them, and leave."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from container_cluster import Cluster, Work, logs_kept, wait_gone, wait_until
from container_engine import REPOSITORY, docker
from windrow.fleet.providers.docker.container import ALLOCATION, PROJECT

pytestmark = pytest.mark.timeout(600, func_only=True)

AGENTS = 4
ON_ALL = f"mini_batch_error_threshold: 0\n    resources: {{instance_count: {AGENTS}, min_nodes: {AGENTS}}}"


class FleetCluster(Cluster):
    """A Compose project with no agents but those of its fleet."""

    def __init__(self, folder: Path, project: str) -> None:
        folder.mkdir(exist_ok=True)
        file = folder / "fleet.yml"
        as_shipped = (REPOSITORY / "docker" / "fleet.yml").read_text()
        assert "exit_idle: 1min" in as_shipped
        file.write_text(as_shipped.replace("exit_idle: 1min", "exit_idle: 20s"))
        super().__init__(folder, project, WINDROW_AGENTS="0", WINDROW_FLEET_FILE=str(file))

    def with_fleet(self, *arguments: str) -> str:
        return self.compose("--profile", "fleet", *arguments).stdout

    def of_the_fleet(self, *states: str) -> list[str]:
        """Ids of the fleet's containers in these states, running ones by default."""
        labels = [f"label={PROJECT}={self.project}", f"label={ALLOCATION}"]
        wanted = [*labels, *(f"status={state}" for state in states or ("running",))]
        return docker("ps", "-aq", *(part for one in wanted for part in ("--filter", one))).split()

    def remove(self) -> None:
        self.with_fleet("down", "--remove-orphans", "-v", "-t", "15")


@pytest.fixture
def project(images: None, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[FleetCluster]:
    made = FleetCluster(tmp_path / "one", f"windrow-fleet-{os.getpid()}")
    try:
        with logs_kept(made, request):
            made.with_fleet("up", "-d", "--no-build")
            yield made
    finally:
        made.remove()


def test_agents_come_for_a_job_and_leave_and_killed_ones_are_replaced(project: FleetCluster) -> None:
    assert project.of_the_fleet() == []
    work = Work(project, "scaled", items=300, pause_s=0.1, settings=ON_ALL).submit()
    wait_until(lambda: len(project.of_the_fleet()) == AGENTS, f"{AGENTS} agents have come")
    work.wait_done(0.1)
    victims = set(project.of_the_fleet())
    docker("kill", *victims)
    wait_until(lambda: set(project.of_the_fleet()) - victims, "another agent has come for the killed ones")
    work.check_rows()
    wait_gone(project.of_the_fleet, "an agent of the fleet that has nothing to do")
    assert set(project.of_the_fleet("exited")) >= victims, "how they ended can be looked up for some time"


def test_a_killed_fleet_finds_its_agents_again_and_asks_for_no_more(project: FleetCluster) -> None:
    work = Work(project, "found-again", items=600, pause_s=0.1, settings=ON_ALL).submit()
    wait_until(lambda: len(project.of_the_fleet()) == AGENTS, f"{AGENTS} agents have come")
    before = set(project.of_the_fleet())
    (fleet,) = project.containers("fleet")
    project.kill_process(fleet, r"bin/windrow fleet run")
    work.check_rows()
    assert set(project.of_the_fleet("running", "exited")) == before
    assert f"{AGENTS}" in project.windrow("fleet", "list")


def test_two_projects_on_one_engine_have_fleets_of_their_own_and_nothing_is_left_of_one(
    project: FleetCluster, tmp_path: Path
) -> None:
    other = FleetCluster(tmp_path / "two", f"windrow-fleet-{os.getpid()}-two")
    try:
        other.with_fleet("up", "-d", "--no-build")
        wait_until(lambda: "local" in other.windrow("fleet", "list"), "its fleet is there")
        work = Work(project, "own", items=300, pause_s=0.1, settings=ON_ALL).submit()
        wait_until(lambda: len(project.of_the_fleet()) == AGENTS, f"{AGENTS} agents have come")
        work.check_rows()
        shown = other.windrow("fleet", "list").splitlines()
        (line,) = [one for one in shown if "local" in one]
        assert line.split()[3:8] == ["0"] * 5, shown
    finally:
        other.remove()
    project.remove()
    assert docker("ps", "-aq", "--filter", f"label={PROJECT}={project.project}") == ""
    assert docker("network", "ls", "-q", "--filter", f"label={PROJECT}={project.project}") == ""
