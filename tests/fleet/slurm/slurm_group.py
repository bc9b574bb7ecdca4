"""A group of a fleet on a cluster of the tests: its provider, and commands that stand for agents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from asked_group import STAYS, AskedGroup
from slurm_cluster import SlurmCluster, wait_for
from windrow.fleet.provider import AgentCommand, Request, Seen, Shape, State
from windrow.fleet.providers.slurm import SlurmProvider
from windrow.fleet.providers.slurm.settings import SlurmSettings

PREFIX = "fleet-group-0a1b2c-"
TELLS = (
    *("python3", "-c"),
    "import signal, time\n"
    "signal.signal(signal.SIGTERM, lambda *_: print('told', flush=True))\n"
    "print('begun', flush=True)\n"
    "while True: time.sleep(0.1)",
)
"""Stays, and prints when it is sent SIGTERM."""


class Group(AskedGroup):
    """A provider with what the tests ask of it."""

    def __init__(self, cluster: SlurmCluster, folder: Path, **settings: Any) -> None:
        self.cluster = cluster
        self.logs = folder / "logs"
        self.settings = SlurmSettings(log_folder=str(self.logs))._replace(**settings)
        self.provider = self.new_provider()
        self._count = 0

    def new_provider(self) -> SlurmProvider:
        """What a fleet that starts anew has."""
        return SlurmProvider(self.settings, PREFIX)

    def request(self, arguments: tuple[str, ...] = STAYS, **given: Any) -> Request:
        """A request with a new name: one slot, 100 MB, an hour."""
        self._count += 1
        request = Request(f"{PREFIX}x{self._count}", Shape(1, 100 * 1024**2), 3600.0, AgentCommand(arguments, {}))
        return request._replace(**given)

    def wait(self, name: str, state: State) -> Seen:
        """An allocation, once it is in a state."""
        wait_for(f"{name} is {state.value}", lambda: self.must_see(name).state is state, 120)
        return self.must_see(name)

    def wait_for_line(self, name: str, line: str) -> None:
        """Wait until an agent has printed a line."""
        log = self.logs / f"{name}.log"
        wait_for(f"{log} has {line}", lambda: log.exists() and line in log.read_text().splitlines(), 120)
