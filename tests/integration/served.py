"""A real master and real agents, started and killed one by one: what `windrow run` does, taken apart for tests."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import windrow
from embedded_run import DEADLINE_S, wait_until


class Served:
    """Processes over one state folder.

    On a unix socket in a short path, as `windrow run` has it; or, where there is a datastore, served on loopback.
    """

    def __init__(self, folder: Path, datastore: Path | None = None) -> None:
        self.folder = folder
        self.datastore = datastore
        self.datastore_name = "default"
        self.state = folder / "state"
        self.sockets = Path(tempfile.mkdtemp(prefix="windrow-test-"))
        self.address = f"unix:{self.sockets}/master" if datastore is None else "127.0.0.1:0"
        self.master: subprocess.Popen[bytes] | None = None
        self.agents: dict[str, subprocess.Popen[bytes]] = {}
        self.before: list[str] = []
        """What stands before the commands of processes that are started from now on."""
        self.environment: dict[str, str] = dict(os.environ)
        """Of processes that are started from now on."""
        self.program = ["-m", "windrow_master"]
        """What Python runs as a master."""
        self.agent = ["-m", "windrow_agent"]
        """What Python runs as an agent."""

    def start_master(self, *options: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start a master and wait until it serves (or is dead: a crash point may lie before that)."""
        log = (self.folder / "master.stderr").open("ab")
        kind = "--embedded" if self.datastore is None else f"--datastore={self.datastore_name}={self.datastore}"
        self.master = subprocess.Popen(
            [
                *self.before,
                sys.executable,
                *self.program,
                kind,
                f"--state={self.state}",
                f"--listen={self.address}",
                *options,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**self.environment, **environment},
        )
        log.close()
        assert self.master.stdout is not None
        readable, _, _ = select.select([self.master.stdout], [], [], DEADLINE_S)
        assert readable, f"the master said nothing within {DEADLINE_S} s"
        with self.master.stdout:
            line = self.master.stdout.readline()
        assert not line or json.loads(line)["ready"]
        if line:
            self.address = json.loads(line)["address"]
        return self.master

    def start_agent(self, node_id: str, **settings: Any) -> subprocess.Popen[bytes]:
        """Start an agent."""
        folder = self.folder / f"agent-{node_id}"
        folder.mkdir(exist_ok=True)
        config = folder / "config.json"
        config.write_text(
            json.dumps(
                {"folder": str(folder), "master_addresses": [self.address], "node_id": node_id, "slots": 2}
                | {"drain_grace_s": 2.0, **settings}
            )
        )
        log = (self.folder / f"agent-{node_id}.stderr").open("ab")
        agent = subprocess.Popen(
            [*self.before, sys.executable, *self.agent, "--config", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=self.environment,
        )
        log.close()
        self.agents[node_id] = agent
        return agent

    def kill_master(self) -> None:
        """SIGKILL."""
        assert self.master is not None
        self.master.kill()
        self.master.wait(DEADLINE_S)

    def wait_master_killed(self) -> None:
        """Wait until the master has killed itself at its crash point."""
        assert self.master is not None
        assert self.master.wait(DEADLINE_S) == -signal.SIGKILL, "the master ended, but not at its crash point"

    def client(self) -> windrow.Client:
        """A client of the master."""
        return windrow.Client(self.address, patience_s=DEADLINE_S)

    def close(self) -> None:
        """End everything."""
        processes = [*self.agents.values(), *([self.master] if self.master is not None else [])]
        for process in processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            if process.poll() is None:
                process.kill()
                process.wait()
        shutil.rmtree(self.sockets)
        wait_until(lambda: not strays(self.folder), f"no stray process: {strays(self.folder)}")


def strays(folder: Path) -> list[str]:
    """Command lines of live processes that name a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if str(folder) in line:
                    found.append(line)
    return found
