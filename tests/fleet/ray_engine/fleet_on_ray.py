"""A served master, and the program of a fleet whose agents are actors of a Ray cluster on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from cluster_commands import ServedCluster
from embedded_run import WINDROW, wait_until
from fleet_chaos import FleetInChaos
from ray_cluster import RayCluster
from windrow.fleet.provider import Seen, State, Unreachable
from windrow.fleet.providers.ray.ray_provider import RayProvider
from windrow.fleet.providers.ray.settings import RaySettings

FILE = """\
name: site
groups:
  local:
    provider: ray
    slots: {slots}
    max: {most}
    exit_idle: 5s
    agent: {{command: {command}, join_token_file: {token}, folder: {agents}, options: [--drain-grace, "5"]}}
    ray: {{address: "{address}"}}
"""


class FleetOnRay(FleetInChaos):
    """Its agents are held by actors; each node of the cluster has room for one."""

    def __init__(self, folder: Path, ray: RayCluster, *, slots: int, most: int) -> None:
        self.ray = ray
        self.slots = slots
        self.most = most
        self.nodes: list[str] = []
        self._provider = RayProvider(RaySettings(ray.address), "site-local-")
        super().__init__(folder)

    def write(self, **_: object) -> None:
        """Write the fleet's file."""
        (self.folder / "fleet.yml").write_text(
            FILE.format(
                slots=self.slots,
                most=self.most,
                command=json.dumps([WINDROW]),
                token=self.token_file("right"),
                agents=self.agents,
                address=self.ray.address,
            )
        )

    def add_node(self) -> None:
        """Add a node with room for an agent."""
        self.nodes.append(self.ray.add_node(self.slots))

    def kill_node(self, node: str) -> None:
        """A node loses its power: nobody there has time to say anything."""
        pids = []
        for one in self.ray.actors():
            if one["node"] == node and one["state"] == "ALIVE":
                self.taken.add(one["name"])
                self.killed.add(one["name"])
                pids += [one["pid"], *_children(one["pid"])]
        for pid in pids:
            _signal(pid, signal.SIGSTOP)
        self.nodes.remove(node)
        self.ray.kill_node(node)
        for pid in pids:
            _signal(pid, signal.SIGKILL)

    def node_of(self, name: str) -> str:
        """The node of an actor that lives."""
        (node,) = (one["node"] for one in self.ray.actors() if one["name"] == name and one["state"] == "ALIVE")
        return node

    def seen(self) -> list[Seen]:
        """What the cluster has."""
        found: list[Seen] = []

        def has_answered() -> bool:
            with contextlib.suppress(Unreachable):
                found[:] = self._provider.allocations()
                return True
            return False

        wait_until(has_answered, "Ray answers")
        return found

    def running(self) -> list[str]:
        """Actors that have started their agents."""
        return [one.name for one in self.seen() if one.state is State.STARTED]

    def created(self) -> list[str]:
        """All actors of the fleet that there have been."""
        return [one["name"] for one in self.ray.actors()]

    def actors(self) -> list[str]:
        """Those that live, or wait for room."""
        return [one["name"] for one in self.ray.actors() if one["state"] != "DEAD"]

    def happens(self) -> Mapping[str, Callable[[random.Random], None]]:
        """What happens to nodes, to actors and to agents."""
        return {
            "kill-node": self._replace_node,
            "kill-actor": partial(self._kill, "actor"),
            "kill-agent": partial(self._kill, "agent"),
        }

    def _replace_node(self, dice: random.Random) -> None:
        """A node loses its power, and another one comes."""
        self.kill_node(dice.choice(self.nodes))
        self.add_node()

    def _kill(self, what: str, dice: random.Random) -> None:
        victim = self.chosen(dice)
        if victim is None:
            return
        self.taken.add(victim)
        self.killed.add(victim)
        actors = [one["pid"] for one in self.ray.actors() if one["name"] == victim and one["state"] == "ALIVE"]
        agents = [agent for actor in actors for agent in _children(actor)]
        for pid in actors if what == "actor" else agents:
            _signal(pid, signal.SIGKILL)

    def end(self) -> None:
        """End everything: no agent outlives its test."""
        for name, process in self.processes.items():
            if name.startswith("fleet") and process.poll() is None:
                process.terminate()
                process.wait(60)
        for seen in self.alive():
            with contextlib.suppress(Unreachable):
                self._provider.cancel(seen, only_queued=False)
        try:
            wait_until(lambda: not self.alive(), "the agents have ended")
            ServedCluster.end(self)
        finally:
            self._provider._side._end()


def _signal(pid: int, number: int) -> None:
    # It may have ended meanwhile.
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _children(pid: int) -> list[int]:
    found = []
    # It may have ended meanwhile.
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found
