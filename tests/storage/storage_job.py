"""A folder with a job over data in storage, and the `windrow run` processes started there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from s3_server import BUCKET, Gate, Proxy, S3Server, clean_environment

WINDROW = str(Path(sys.executable).with_name("windrow"))
DEADLINE_S = 180.0

JOB = """\
type: pipeline
jobs:
  score:
    type: parallel
    mini_batch_size: "{size}"
    input_data: ${{{{inputs.data}}}}
    inputs:
      data: {data}
      {inputs}
    outputs:
      rows: {rows}
      {outputs}
    {settings}
    task:
      type: run_function
      code: ./code
      entry_script: entry.py
      program_arguments: >-
        {arguments}
      append_row_to: ${{{{outputs.rows}}}}
"""

CONTENTS = """\
import os

def run(mini_batch):
    rows = []
    for path in mini_batch:
        with open(path) as file:
            rows.append(os.path.basename(path) + "=" + file.read())
    return rows
"""

TABLE = """\
def run(table):
    return table.assign(double=table["number"] * 2)
"""

WITH_OUT = """\
import argparse, os

def init():
    global out
    parser = argparse.ArgumentParser()
    parser.add_argument("--out")
    out = parser.parse_known_args()[0].out
"""
"""The beginning of scripts that write into an output of their own, `out`; what `init()` does more may follow."""


def wait_until(condition: Callable[[], bool], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Wait until a condition holds; fail with `what` when it does not in time."""
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, f"not within {deadline_s} s: {what}"
        time.sleep(0.01)


class StorageJob:
    """`prefix`: where the test's own keys begin."""

    def __init__(self, server: S3Server, folder: Path) -> None:
        self.server = server
        self.folder = folder / "job"
        self.home = folder / "home"
        self.prefix = f"{os.getpid()}-{folder.name}"
        self.endpoint = server.url
        self.state = self.folder / ".windrow"
        self.rows = self.folder / "rows.txt"
        self.environment: dict[str, str | None] = {}
        self.before: list[str] = []
        """A command that starts another one, and its options."""
        self._processes: list[subprocess.Popen[str]] = []
        (self.folder / "code").mkdir(parents=True)
        self.home.mkdir()

    @property
    def url(self) -> str:
        """The address of the test's own keys."""
        return f"s3://{BUCKET}/{self.prefix}"

    def put(self, name: str, body: bytes | str) -> None:
        """Store an object among the test's own."""
        self.server.put(f"{self.prefix}/{name}", body)

    def hold(self, proxy: Proxy, method: str, key_end: str = "") -> Gate:
        """Reach the server by way of the proxy, which holds such requests back; they are waited for."""
        gate = proxy.fault = Gate(method, key_end)
        self.endpoint = proxy.url
        self.environment["WINDROW_STORAGE_READ_TIMEOUT"] = "600"
        return gate

    def write(
        self,
        script: str,
        data: str,
        *,
        size: int | str = 1,
        settings: str = "",
        rows: str = "{type: uri_file, path: ./rows.txt}",
        inputs: str = "",
        outputs: str = "",
        arguments: str = "--keep 1",
    ) -> None:
        """Write the job; `data`, `rows`: as in the job file."""
        (self.folder / "code" / "entry.py").write_text(script)
        text = JOB.format(
            data=data, size=size, settings=settings, rows=rows, inputs=inputs, outputs=outputs, arguments=arguments
        )
        (self.folder / "job.yml").write_text(text)

    def start(self, *options: str, file: str = "job.yml") -> subprocess.Popen[str]:
        """Start `windrow run job.yml`, or another file."""
        environment = clean_environment(self.endpoint, self.home)
        for name, value in self.environment.items():
            environment.pop(name, None)
            if value is not None:
                environment[name] = value
        process = subprocess.Popen(
            [*self.before, WINDROW, "run", file, "--no-progress", *options],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self._processes.append(process)
        return process

    def run(self, *options: str, file: str = "job.yml") -> tuple[int, str]:
        """Run it to its end: exit code, and what was printed."""
        process = self.start(*options, file=file)
        text, _ = process.communicate(timeout=DEADLINE_S)
        return process.returncode, text

    def run_well(self, *options: str) -> bytes:
        """Run it; it has to succeed. The rows."""
        code, text = self.run(*options)
        assert code == 0, text + self.agent_log()
        return self.rows.read_bytes()

    def agent_log(self) -> str:
        """What the agent wrote down."""
        log = self.state / "agent" / "agent.log"
        return log.read_text() if log.exists() else ""

    def fetch_processes(self) -> list[int]:
        """The fetch processes that the agent has started, oldest first."""
        lines = [json.loads(line) for line in self.agent_log().splitlines()]
        return [line["pid"] for line in lines if line.get("event", line.get("message")) == "fetch process started"]

    def stop(self) -> None:
        """End what still runs."""
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                try:
                    process.communicate(timeout=10)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.communicate()
