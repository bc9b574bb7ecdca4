"""A served master and agents on loopback, by the commands that an operator types."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

from embedded_run import JOB, WINDROW, wait_until
from served import strays
from windrow_command import windrow

FILES = 80
SCRIPT = (
    "import os, time\n"
    "def run(mini_batch):\n"
    "    while 'GATE' in os.environ and not os.path.exists(os.environ['GATE']):\n"
    "        time.sleep(0.01)\n"
    "    end = time.monotonic() + float(os.environ.get('PAUSE', '0.05'))\n"
    "    while time.monotonic() < end and not os.path.exists(os.environ.get('HURRY', '')):\n"
    "        time.sleep(0.01)\n"
    "    return [os.path.basename(path) for path in mini_batch]\n"
)
EXPECTED = "".join(f"f{number:05d}\n" for number in range(FILES))


class ServedCluster:
    """Commands run in one folder, which is also the datastore. The master's state and tokens are beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output = folder / "out.txt"
        # Its name begins like the folder's, so that whoever looks for processes of the folder finds the master.
        self.private = Path(f"{folder}-private")
        self.private.mkdir()
        self.state = self.private / "master-state"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        (folder / "code").mkdir()
        (folder / "code" / "entry.py").write_text(SCRIPT)
        (folder / "data").mkdir()
        for number in range(FILES):
            (folder / "data" / f"f{number:05d}").write_text("")
        (folder / "job.yml").write_text(JOB.format(size=1, settings=""))
        for name in ("right", "wrong"):
            self.token_file(name).write_text(f"{name}\n")
            self.token_file(name).chmod(0o600)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"

    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("WINDROW_")}
        return {**kept, "WINDROW_MASTER": self.address}

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command, to its end."""
        return windrow(*arguments, cwd=self.folder, environment=self.environment())

    def start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        """A command that goes on; what it says is in `<name>.log`."""
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [WINDROW, *arguments], cwd=self.folder, env=self.environment(), stdout=log, stderr=log
            )
        return self.processes[name]

    def start_master(self) -> None:
        self.start(
            "master",
            *("master", "--state", str(self.state), "--listen", self.address),
            *("--datastore", f"here={self.folder}", "--join-token-file", str(self.token_file("right"))),
        )
        wait_until(lambda: '"ready": true' in self.said("master"), "the master serves")

    def start_agent(self, name: str, *more: str) -> None:
        self.start(name, *self.agent(name, "right"), "--slots", "2", *more)
        wait_until(lambda: self.node(name).get("state") == "ready", f"node {name} is ready")

    def agent(self, name: str, token: str) -> list[str]:
        file = str(self.token_file(token))
        return ["agent", "--folder", f"folder-{name}", "--node-id", name, "--join-token-file", file]

    def token_file(self, name: str) -> Path:
        return self.private / f"{name}.token"

    def said(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def node(self, name: str) -> dict[str, Any]:
        listed = self.run("node", "list", "--format", "json")
        nodes = json.loads(listed.stdout) if listed.returncode == 0 else []
        return next((node for node in nodes if node["node_id"] == name), {})

    def job(self, name: str) -> dict[str, Any]:
        shown = self.run("job", "show", name, "--format", "json")
        assert shown.returncode == 0, shown.stderr
        found: dict[str, Any] = json.loads(shown.stdout)
        return found

    def done(self, name: str) -> int:
        return int(self.job(name)["steps"][0]["mini_batches"]["succeeded"])

    def create(self, name: str, *more: str) -> None:
        created = self.run("job", "create", "job.yml", "--name", name, *more)
        assert created.returncode == 0, created.stderr
        assert created.stdout.strip() == name

    def check_done(self, name: str) -> dict[str, Any]:
        """Follow a job to its good end; returns its step."""
        followed = self.run("job", "stream", name)
        assert followed.returncode == 0, followed.stdout + followed.stderr
        assert f"Output: {self.output}" in followed.stdout.splitlines()[-1]
        assert self.output.read_text() == EXPECTED
        (step,) = self.job(name)["steps"]
        assert step["items"] == {"total": FILES, "ok": FILES, "failed": 0, "cancelled": 0, "taken_over": 0}
        found: dict[str, Any] = step
        return found

    def end(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(45)
            if process.poll() is None:
                process.kill()
                process.wait()
        wait_until(lambda: not strays(self.folder), f"no stray process: {strays(self.folder)}")
