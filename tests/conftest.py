"""For all tests: signals mean what they mean, a disk that is small enough to be full, and who runs beside whom.

A shell starts a background command with SIGINT ignored, and nohup one with SIGHUP ignored; every process below inherits
that, and CI runners start tests so.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

UNMOUNT_S = 90.0
FIRST = ("containers", "interpreters", "packaging", "compatibility")
"""Folders whose tests wait for containers, downloads and builds: they begin first, beside the others."""
LAST = ("core", "reference", "spec", "tables", "worker")
"""Folders whose files take seconds: they come last, so that no long file runs alone at the end."""

signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
# No test goes to the master that its user has a context for.
os.environ["XDG_CONFIG_HOME"] = "/nonexistent"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long waits begin first, short tests come last; otherwise the order is random (pytest-randomly, before)."""

    def place(item: pytest.Item) -> int:
        folder = item.path.relative_to(Path(__file__).parent).parts[0]
        return FIRST.index(folder) if folder in FIRST else len(FIRST) + (folder in LAST)

    items.sort(key=place)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Where something failed, how to have the same order of tests again."""
    seed = config.getoption("randomly_seed", None)
    if seed is not None and (terminalreporter.stats.get("failed") or terminalreporter.stats.get("error")):
        terminalreporter.write_line(f"The order of the tests was random; the same again: make test SEED={seed}")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With several test processes, each takes a whole file; one takes all container tests, which share a cluster. The
    tests of other Pythons share nothing, and take minutes."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith("tests/interpreters/"):
                return nodeid
            return "containers" if nodeid.startswith("tests/containers/") else super()._split_scope(nodeid)

    return Scheduling(config, log)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MB; its mount needs root. Unmounted as soon as no process has a file there any more."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0 or subprocess.call(["mount", "-t", "tmpfs", "-o", "size=24m", "none", folder]) != 0:
        pytest.skip("needs root and mount")
    yield folder
    deadline = time.monotonic() + UNMOUNT_S
    while subprocess.call(["umount", folder], stderr=subprocess.DEVNULL) != 0:
        assert time.monotonic() < deadline, f"{folder} is still in use after {UNMOUNT_S} s"
        time.sleep(0.01)
