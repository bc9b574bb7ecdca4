"""Agents of a served master: each runs scripts in the Python that its own command or environment says."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from compatibility_job import DEADLINE_S, WINDROW, CompatibilityJob
from foreign_environments import Environments
from windrow_command import windrow

SCRIPT = "import sys\n\ndef run(mini_batch):\n    return [sys.prefix for _ in mini_batch]\n"


class Served:
    """A master on loopback and one agent, in the folder of a job, which is also the datastore. The master's state and
    token are beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._address = f"127.0.0.1:{probe.getsockname()[1]}"
        self._private = Path(f"{folder}-private")
        self._private.mkdir()
        self._token = self._private / "join.token"
        self._token.write_text("sesame\n")
        self._token.chmod(0o600)

    def start_master(self) -> None:
        listen = ("--listen", self._address, "--datastore", f"here={self.folder}")
        guards = ("--join-token-file", str(self._token))
        self._start("master", "master", "--state", str(self._private / "master-state"), *listen, *guards)
        self._until(lambda: '"ready": true' in (self.folder / "master.log").read_text(), "the master serves")

    def start_agent(self, *options: str, **environment: str) -> None:
        join = ("--folder", "agent-folder", "--join-token-file", str(self._token), "--slots", "1")
        self._start("agent", "agent", *join, *options, **environment)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command, to its end."""
        return windrow(*arguments, cwd=self.folder, environment=self._environment(), timeout=DEADLINE_S)

    def close(self) -> None:
        """The agent first, then the master."""
        for process in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait()

    def _environment(self, **more: str) -> dict[str, str]:
        left_out = ("VIRTUAL_ENV", "CONDA_PREFIX")
        kept = {k: v for k, v in os.environ.items() if k not in left_out and not k.startswith(("WINDROW_", "PYTHON"))}
        return {**kept, "WINDROW_MASTER": self._address, **more}

    def _start(self, name: str, *arguments: str, **environment: str) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            command = [WINDROW, *arguments]
            variables = self._environment(**environment)
            process = subprocess.Popen(command, cwd=self.folder, env=variables, stdout=log, stderr=log)
        self._processes.append(process)

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < end, what
            time.sleep(0.01)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    fleet = Served(tmp_path)
    try:
        yield fleet
    finally:
        fleet.close()


@pytest.mark.parametrize("chosen_by", ["--python", "VIRTUAL_ENV", "CONDA_PREFIX"])
def test_an_agent_uses_its_own_active_environment(
    job: CompatibilityJob, served: Served, environments: Environments, chosen_by: str
) -> None:
    python = environments.bare()
    prefix = python.parents[1]
    job.write("data/a", "")
    job.write("code/score.py", SCRIPT)
    job.write_job("uri_folder", f"{job.folder}/data", rows=f"{job.folder}/rows.txt")
    served.start_master()
    if chosen_by == "--python":
        served.start_agent("--python", str(python), VIRTUAL_ENV="/not/there")
    else:
        served.start_agent(**{chosen_by: str(prefix)})
    # What is active where the job is submitted does not matter.
    created = served.run("job", "create", "job.yml", "--name", "served", "--stream")
    assert created.returncode == 0, created.stdout + created.stderr
    assert (job.folder / "rows.txt").read_text() == f"{prefix}\n"
