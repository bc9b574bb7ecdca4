"""A served master, and the program of a fleet whose agents are processes of this machine, by an operator's commands."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import windrow
from cluster_commands import ServedCluster
from embedded_run import wait_until
from windrow.fleet.provider import Seen
from windrow.fleet.providers.process import Processes, Settings
from windrow.sdk.fleet import Allocation, Fleet, FleetGroup

FILE = """\
name: site
groups:
  local:
    provider: {provider}
    pool: {pool}
    slots: 2
    max: {most}
    min: {least}
    exit_idle: {exit_idle}
    agent: {{join_token_file: {token}, folder: {agents}, options: [--drain-grace, "5"]}}
    process: {{folder: {state}}}
"""


class FleetOfProcesses(ServedCluster):
    """Its file is fleet.yml; what the provider knows of processes is in `known`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.known = self.private / "fleet"
        self.agents = folder / "agents"
        self.agents.mkdir()
        self.write()

    def write(
        self, provider: str = "process", pool: str = "", most: int = 3, least: int = 0, exit_idle: str = "5s"
    ) -> None:
        """Write the fleet's file."""
        (self.folder / "fleet.yml").write_text(
            FILE.format(
                provider=provider,
                pool=pool,
                most=most,
                least=least,
                exit_idle=exit_idle,
                token=self.token_file("right"),
                agents=self.agents,
                state=self.known,
            )
        )

    def start_fleet(self, name: str = "fleet") -> subprocess.Popen[bytes]:
        """Start the program of the fleet, and wait until the master has heard it."""
        started = self.start(name, "fleet", "run", "fleet.yml")
        who = f"process {started.pid}"
        wait_until(lambda: self.fleet() is not None and who in str(self.fleet()), f"{who} has the fleet")
        return started

    def client(self) -> windrow.Client:
        """A client of the master."""
        return windrow.Client(self.address, patience_s=60)

    def fleet(self) -> Fleet | None:
        """The fleet with its allocations, as the master has it; None if it does not know it."""
        with self.client() as client:
            if all(one.name != "site" for one in client.fleets.list()):
                return None
            return client.fleets.get("site")

    def group(self) -> FleetGroup:
        """The group of the fleet."""
        fleet = self.fleet()
        assert fleet is not None
        (group,) = fleet.groups
        return group

    def allocations(self, wanted: Callable[[Allocation], bool] = lambda one: True) -> list[Allocation]:
        """The allocations of the fleet."""
        fleet = self.fleet()
        assert fleet is not None and fleet.allocations is not None
        return [one for one in fleet.allocations if wanted(one)]

    def live(self) -> list[Allocation]:
        """Those that have not ended."""
        return self.allocations(lambda one: not one.has_ended)

    def seen(self) -> list[Seen]:
        """What there is on this machine, by whatever group."""
        return list(Processes(Settings(self.known), "").allocations())

    def alive(self) -> list[Seen]:
        """Those that live on this machine."""
        return [one for one in self.seen() if not one.state.has_ended]

    def agent_pids(self, name: str = "") -> list[int]:
        """The processes of its agents, or of one of them."""
        keepers = [one.engine_id.rpartition(" ")[2] for one in self.alive() if one.engine_id and name in ("", one.name)]
        found = []
        for keeper in keepers:
            try:
                found += map(int, Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split())
            except OSError:
                continue
        return found

    def table(self) -> dict[str, Any]:
        """The fleet's group, as `windrow fleet list` tells it."""
        listed = self.run("fleet", "list", "--format", "json")
        assert listed.returncode == 0, listed.stderr
        (fleet,) = json.loads(listed.stdout)
        (group,) = fleet["groups"]
        found: dict[str, Any] = group
        return found

    def end(self) -> None:
        """End everything: no agent outlives its test."""
        for name, process in self.processes.items():
            if name.startswith("fleet"):
                process.terminate()
                process.wait(60)
        provider = Processes(Settings(self.known), "")
        for seen in provider.allocations():
            provider.cancel(seen, only_queued=False)
        wait_until(lambda: not self.alive(), "the agents have ended")
        super().end()
