"""A master that is served over TLS, with tokens, as a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
from windrow.rpc.contexts import Access
from windrow_master.setup.__main__ import set_up

DEADLINE_S = 180.0
JOB = """
type: pipeline
jobs:
  work:
    type: parallel
    inputs: {data: {type: uri_folder, path: ./data}}
    outputs: {out: {type: uri_file}}
    input_data: ${{inputs.data}}
    mini_batch_size: "1"
    task:
      type: run_function
      code: ./code
      entry_script: entry.py
      append_row_to: ${{outputs.out}}
"""


def write_job(folder: Path) -> Path:
    """A job file for one item, with its code and data beside it."""
    (folder / "data").mkdir(parents=True, exist_ok=True)
    (folder / "code").mkdir(exist_ok=True)
    (folder / "data" / "one").write_text("")
    (folder / "code" / "entry.py").write_text("def run(mini_batch):\n    return mini_batch\n")
    file = folder / "job.yml"
    file.write_text(JOB)
    return file


class SecureMaster:
    """Its folder holds what `windrow setup` makes (`keys`), its state, and its datastore (`data`)."""

    def __init__(self, folder: Path, days: int = 90, *options: str) -> None:
        """`days`: for which its certificate is good. `options`: more of `windrow master`."""
        self._options = options
        self.keys, self.state, self.data = folder / "keys", folder / "state", folder / "data"
        self.data.mkdir()
        set_up(self.keys, ["localhost"], days, None)
        self._log = folder / "master.stderr"
        self.address = ""

    def command(self, listen: str = "127.0.0.1:0") -> list[str]:
        """What starts it."""
        files = {name: f"{self.keys}/master/{name}" for name in ("tls.pem", "join-token", "client-token")}
        return [
            *(sys.executable, "-m", "windrow_master", f"--state={self.state}", f"--listen={listen}"),
            *(f"--datastore=default={self.data}", f"--tls-file={files['tls.pem']}"),
            *(f"--join-token-file={files['join-token']}", f"--client-token-file={files['client-token']}"),
            *self._options,
        ]

    @contextmanager
    def serving(self, listen: str = "127.0.0.1:0") -> Iterator[SecureMaster]:
        """While it runs."""
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                self.command(listen), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env={**os.environ}
            )
        self.process = process
        assert process.stdout is not None
        with process.stdout:
            try:
                self.address = json.loads(process.stdout.readline())["address"].replace("0.0.0.0", "127.0.0.1")
                yield self
            finally:
                process.terminate()
                process.wait(DEADLINE_S)

    def token(self, name: str) -> str:
        """`join-token` or `client-token`."""
        return (self.keys / "authority" / name).read_text()

    @property
    def ca(self) -> str:
        """What vouches for it."""
        return (self.keys / "client" / "ca.pem").read_text()

    @property
    def access(self) -> Access:
        """A client's."""
        return Access(self.address, self.ca, self.token("client-token"))

    @property
    def port(self) -> str:
        """Where it listens."""
        return self.address.rpartition(":")[2]

    @contextmanager
    def channel(self, token: str = "", *options: tuple[str, Any]) -> Iterator[grpc.Channel]:
        """A connection that brings any token, or none."""
        credentials = grpc.ssl_channel_credentials(self.ca.encode())
        if token:
            credentials = grpc.composite_channel_credentials(credentials, grpc.access_token_call_credentials(token))
        with grpc.secure_channel(self.address, credentials, options=list(options)) as channel:
            yield channel

    def log(self) -> str:
        """What it has said so far."""
        return self._log.read_text()

    def lines_after(self, length: int, count: int = 1) -> list[dict[str, Any]]:
        """What it has said after the first `length` characters, once that is `count` lines: it answers first."""

        def whole_lines() -> list[str]:
            said = self.log()[length:].splitlines(keepends=True)
            return [line for line in said if line.endswith("\n")]

        wait_until(lambda: len(whole_lines()) >= count, f"{count} lines in the log")
        return [json.loads(line) for line in whole_lines()]


def joining(master: SecureMaster) -> list[tuple[str, str]]:
    """What an agent brings to Register."""
    return [("authorization", f"Bearer {master.token('join-token')}")]


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, f"not within {DEADLINE_S} s: {what}"
        time.sleep(0.02)


def windrow_of(master: SecureMaster, *arguments: str, token: str) -> subprocess.CompletedProcess[str]:
    """A command with a token."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WINDROW_")}
    file = master.data / f"token-{threading.get_ident()}-{time.monotonic_ns()}"
    file.write_text(token)
    more = {
        "WINDROW_MASTER": master.address,
        "WINDROW_CA_FILE": str(master.keys / "client" / "ca.pem"),
        "WINDROW_TOKEN_FILE": str(file),
    }
    command = [sys.executable, "-c", "from windrow.cli import main; main()", *arguments]
    return subprocess.run(
        command, env=kept | more, cwd=master.data, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
