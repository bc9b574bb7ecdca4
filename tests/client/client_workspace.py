"""A small job in a folder of its own, and the `windrow` command run for real on it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import windrow
import windrow_command

DEADLINE_S = 180.0
MAIN = "from windrow.cli import main; main()"

SCRIPT = """
import os
import time

def init():
    pass

def run(mini_batch):
    rows = []
    for path in mini_batch:
        name = os.path.basename(path)
        text = open(path).read().strip()
        gate = os.environ.get("GATE")
        while text == "wait" and gate and not os.path.exists(gate):
            time.sleep(0.005)
        if text == "raise":
            raise ValueError("this item is bad: " + name)
        rows.append(name + " " + text)
    return rows
"""

JOB = """
type: pipeline
{name}
inputs:
  data:
    type: uri_folder
    path: ./data
outputs:
  rows:
    type: uri_file
    path: ./out/rows.txt
jobs:
  score:
    type: parallel
    inputs:
      data: ${{{{parent.inputs.data}}}}
    outputs:
      rows: ${{{{parent.outputs.rows}}}}
    input_data: ${{{{inputs.data}}}}
    mini_batch_size: "{mini_batch_size}"
    error_threshold: {error_threshold}
    max_concurrency_per_instance: {workers}
    environment_variables:
      GATE: {gate}
    retry_settings:
      max_retries: {max_retries}
      timeout: 60
    task:
      type: run_function
      code: ./code
      entry_script: score.py
      append_row_to: ${{{{outputs.rows}}}}
"""


class Workspace:
    """A job file, its script and data; `gate` is a file for which items whose content is `wait` wait."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.gate = folder / "gate"
        self.state = folder / ".windrow"
        self.job_file = folder / "job.yml"
        self.rows = folder / "out" / "rows.txt"
        self._started: set[int] = set()
        (folder / "code").mkdir()
        (folder / "data").mkdir()
        (folder / "code" / "score.py").write_text(SCRIPT)

    def write(self, contents: list[str], **settings: Any) -> None:
        """One file an item; `settings` of the job file."""
        for number, content in enumerate(contents):
            (self.folder / "data" / f"item{number:03d}.txt").write_text(content)
        values = {"name": "", "mini_batch_size": 1, "error_threshold": -1, "workers": 2, "max_retries": 0}
        self.job_file.write_text(JOB.format(**{**values, **settings}, gate=self.gate))

    def expected(self, contents: list[str]) -> str:
        """The output of an undisturbed run."""
        return "".join(f"item{number:03d}.txt {text}\n" for number, text in enumerate(contents) if text != "raise")

    def environment(self, **extra: str) -> dict[str, str]:
        """Without what this test process was told about masters."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("WINDROW_")}
        return {**kept, "TMPDIR": "/tmp", **extra}

    def run(self, *arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
        """The command, to its end."""
        return windrow_command.windrow(
            *arguments, cwd=self.folder, environment=self.environment(**extra), timeout=DEADLINE_S
        )

    def start(self, *arguments: str, **extra: str) -> subprocess.Popen[str]:
        """The command, going on."""
        process = subprocess.Popen(
            [sys.executable, "-c", MAIN, *arguments],
            cwd=self.folder,
            env=self.environment(**extra),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.add(process.pid)
        return process

    def processes(self) -> list[psutil.Process]:
        """Everything that runs for this workspace: by its folder in the command line, or by its state folder's lock."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.pid != os.getpid() and self._is_ours(process):
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return found

    def pid_of(self, module: str) -> int | None:
        """The live process of a role."""
        for process in self.processes():
            try:
                if module in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                    return process.pid
            except psutil.NoSuchProcess:
                continue
        return None

    def _is_ours(self, process: psutil.Process) -> bool:
        command = process.cmdline()
        if str(self.folder) in " ".join(command):
            return True
        if "windrow_agent" not in command:
            return False
        # Its command line does not name our folder, and only root may ask where it runs: it is a child of ours, or was,
        # and then its settings name the folder.
        if any(parent.pid in self._started for parent in (process, *process.parents())):
            return True
        try:
            return str(self.folder) in Path(command[-1]).read_text()
        except OSError:
            return False  # it has ended, or is somebody else's


@contextlib.contextmanager
def served_master(workspace: Workspace, datastore: Path, state: Path | None = None) -> Iterator[str]:
    """A master, started by the command as an operator would, that sees one datastore; its address. `state`: unless it
    is beside the datastore, since they are to be apart."""
    state = state or Path(f"{datastore}-state")
    listen = ("--listen", "127.0.0.1:0", "--datastore", f"default={datastore}")
    master = workspace.start("master", "--state", str(state), *listen)
    try:
        assert master.stdout is not None
        ready = json.loads(master.stdout.readline())
        assert ready["ready"]
        yield str(ready["address"])
    finally:
        _terminate(master)


@contextlib.contextmanager
def served_cluster(workspace: Workspace, datastore: Path) -> Iterator[str]:
    """The same with an agent, `one`, of two slots; whatever still runs for the workspace at the end is killed."""
    try:
        with served_master(workspace, datastore) as address:
            options = ("--folder", "agent-folder", "--slots", "2", "--node-id", "one")
            agent = workspace.start("agent", "--master", address, *options)
            try:
                with windrow.Client(address) as client:
                    wait_until(lambda: any(node.state == "ready" for node in client.list_nodes()), "the node is ready")
                yield address
            finally:
                _terminate(agent)
    finally:
        for left in workspace.processes():
            left.kill()


def _terminate(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=DEADLINE_S)


def wait_until(condition: Callable[[], Any], what: str, seconds: float = DEADLINE_S) -> Any:
    """What the condition returns once it is true."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.01)
    return value


def end(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Its output when it has ended by itself."""
    return process.communicate(timeout=DEADLINE_S)


def kill(pid: int) -> None:
    """kill -9."""
    os.kill(pid, signal.SIGKILL)
