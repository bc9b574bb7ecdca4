"""A real Ray cluster of several nodes on this machine, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from installed_packages import is_installed

NEEDS_RAY = pytest.mark.skipif(not is_installed("ray"), reason="Ray is not installed: pip install ray")


class RayCluster:
    """A cluster by Ray's own utility, in a process of its own: this one would be ended with the cluster. Its first
    node has no room: nothing is started on it.
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("ray_nodes.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # So long it waits for its own parts, on a machine that has much else to do.
            env={**os.environ, "RAY_raylet_start_wait_time_s": "300"},
            start_new_session=True,
        )
        self.address = self._read()

    def add_node(self, cpus: int) -> str:
        """Add a node with room for `cpus`; its id."""
        return self.tell("add", str(cpus))

    def kill_node(self, node: str) -> None:
        """End all of a node at once, without notice."""
        self.tell("kill", node)

    def actors(self) -> list[dict[str, Any]]:
        """All actors that there have been, those that have ended too: name, node, pid and state of each."""
        found: list[dict[str, Any]] = json.loads(self.tell("actors", "all"))
        return found

    def tell(self, *words: str) -> str:
        """Have the cluster's process do something; its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(words) + "\n")
        self._process.stdin.flush()
        return self._read()

    def end(self) -> None:
        """End all nodes."""
        if self._process.poll() is None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()

    def _read(self) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("> "):
                return line[2:].strip()
        raise AssertionError("the process of the cluster has ended")
