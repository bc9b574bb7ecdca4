"""A cluster in containers, from the docker-compose.yml that users start. It runs for the length of a measurement."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

import windrow
from windrow.rpc.contexts import access_from_json

from benchmarks.programs import ROOT
from benchmarks.waiting import wait_until


def compose_command() -> list[str] | None:
    """The command of Compose: `docker compose`, else `docker-compose`; None: neither can be used."""
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) and not subprocess.call(
            [*command, "ps"], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ):
            return command
    return None


class Cluster:
    """A cluster in a Compose project of its own. Its context removes everything at the end. The images must be built
    already."""

    def __init__(self, folder: Path, agents: int) -> None:
        self.data = folder / "data"
        self.data.mkdir()
        self._agents = agents
        self._project = f"windrow-bench-{os.getpid()}"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self._environment = {
            **os.environ,
            "WINDROW_DATA": str(self.data),
            "WINDROW_PORT": str(port),
            "WINDROW_SLOTS": "2",
            "WINDROW_AGENTS": str(self._agents),
        }
        self.up_s = 0.0
        """Seconds from `up` to the registration of the last agent."""

    def __enter__(self) -> Cluster:
        begun = time.time()
        try:
            self.compose("up", "-d", "--no-build")
            exported = self.compose("run", "--rm", "-T", "client", "context", "export")
            self.client = windrow.Client(access=access_from_json(exported[exported.index("{") :]), patience_s=60)
            wait_until("all agents are ready", self.all_ready)
            self.up_s = self._last_registered() - begun
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.compose("down", "-v", "-t", "15")

    def compose(self, *arguments: str) -> str:
        """Run Compose; return its output. Raises subprocess.CalledProcessError."""
        command = [*(compose_command() or ["docker", "compose"]), "-p", self._project, *arguments]
        return subprocess.check_output(command, cwd=ROOT, env=self._environment, text=True, stderr=subprocess.DEVNULL)

    def all_ready(self) -> bool:
        """Whether all agents are registered and connected."""
        nodes = list(self.client.list_nodes())
        return len(nodes) == self._agents and all(node.state == "ready" for node in nodes)

    def containers(self, service: str) -> list[str]:
        """The ids of the containers of a service."""
        return self.compose("ps", "-q", service).split()

    def kill(self, service: str) -> None:
        """Kill the process of a service's first container with SIGKILL. The restart policy starts it again."""
        container = self.containers(service)[0]
        docker("exec", "--user", "1000", container, "sh", "-c", "kill -9 -1")

    def _last_registered(self) -> float:
        lines = self.compose("logs", "--no-color", "master").splitlines()
        records = [json.loads(line[line.index("{") :]) for line in lines if '"node registered"' in line]
        stamps = [str(record["timestamp"]).rstrip("Z") for record in records]
        return max(_seconds(stamp) for stamp in stamps)


def docker(*arguments: str) -> str:
    """Run docker; return what it prints. What it kills may take its command along."""
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)
    return done.stdout


def _seconds(stamp: str) -> float:
    from datetime import UTC, datetime

    return datetime.fromisoformat(stamp).replace(tzinfo=UTC).timestamp()
