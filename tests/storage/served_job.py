"""A served master with datastores, and agents, all with the credentials of the test's store."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from s3_server import clean_environment
from storage_job import StorageJob


class Served:
    """Its datastores: a folder, named `default` unless another name is given, and `lake`, the test's own keys below
    `lake/`. For `with`."""

    def __init__(self, job: StorageJob, folder: Path, default: str = "default") -> None:
        self.environment = clean_environment(job.endpoint, job.home)
        self._folder = folder
        self._stack = contextlib.ExitStack()
        self.before: list[str] = []
        """The words before the command of an agent."""
        shared = folder / "shared"
        shared.mkdir()
        master = self._start(
            "windrow_master",
            f"--state={folder / 'state'}",
            "--listen=127.0.0.1:0",
            f"--datastore={default}={shared}",
            f"--datastore=lake={job.url}/lake",
            stdout=subprocess.PIPE,
        )
        assert master.stdout is not None
        with master.stdout:
            self.address: str = json.loads(master.stdout.readline())["address"]

    def start_agent(self, name: str, slots: int = 1, **more: Any) -> subprocess.Popen[bytes]:
        """Start an agent, with more settings of its configuration; its folder has its name."""
        config = self._folder / f"{name}.json"
        settings = {
            "folder": str(self._folder / name),
            "master_addresses": [self.address],
            "node_id": name,
            "slots": slots,
            **more,
        }
        config.write_text(json.dumps(settings))
        return self._start("windrow_agent", "--config", str(config), before=self.before)

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(
        self, module: str, *arguments: str, before: Sequence[str] = (), **options: Any
    ) -> subprocess.Popen[bytes]:
        command = [*before, sys.executable, "-m", module, *arguments]
        process = subprocess.Popen(command, env=self.environment, **options)

        def stop() -> None:
            process.send_signal(signal.SIGTERM)
            process.wait(30)

        self._stack.callback(stop)
        return process
