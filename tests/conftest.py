"""For all tests: signals mean what they mean, a disk that is small enough to be full, and who runs beside whom.

A shell starts a background command with SIGINT ignored, and nohup one with SIGHUP ignored; every process below inherits
that, and CI runners start tests so.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

UNMOUNT_S = 90.0
OF_THE_SHARED_CLUSTER = "tests/containers, of the shared cluster"
"""The longest block of tests. It begins first, and its process makes the images; those of other Pythons, which need
none, begin beside it. Later blocks find the images made."""
SHARING = tuple(f"test_containers_{name}.py" for name in ("jobs", "kills", "network", "secrets", "setup", "strangers"))
"""Files whose tests share a cluster; others of tests/containers have clusters of their own, or none."""
SECONDS = Path(__file__).with_name("seconds.json")
"""How long each block of tests took that takes long, as `make test PYTEST=--record-seconds` has noted it."""
NOTED_S = 5.0
"""Shorter blocks are not noted."""
LAST = ("core", "reference", "spec", "tables", "worker")
"""Folders whose files take seconds: of what is not noted, they come last."""

signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
# No test goes to the master that its user has a context for.
os.environ["XDG_CONFIG_HOME"] = "/nonexistent"


def pytest_addoption(parser: pytest.Parser) -> None:
    told = f"note in tests/{SECONDS.name} how long blocks of tests take"
    parser.addoption("--record-seconds", action="store_true", help=told)


def block_of(nodeid: str) -> str:
    """What one test process takes as a whole: a file; but all tests of the shared cluster are one block, and tests that
    share nothing and take minutes are one each."""
    file = nodeid.partition("::")[0]
    if _folder(nodeid) == "interpreters" or file.endswith("/test_containers_documentation.py"):
        return nodeid
    return OF_THE_SHARED_CLUSTER if Path(file).name in SHARING else file


def _folder(nodeid: str) -> str:
    return Path(nodeid).parts[1]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long blocks begin first, so that none runs alone at the end; otherwise the order is random (pytest-randomly,
    before)."""
    seconds: dict[str, float] = json.loads(SECONDS.read_text())

    def place(item: pytest.Item) -> tuple[int, float, bool]:
        block, folder = block_of(item.nodeid), _folder(item.nodeid)
        first = (block == OF_THE_SHARED_CLUSTER, folder == "interpreters", True).index(True)
        return first, -seconds.get(block, 0.0), folder in LAST

    items.sort(key=place)


class _Seconds:
    """How long the blocks of this test run take, as the process hears that hands them out."""

    def __init__(self) -> None:
        self._taken: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        block = block_of(report.nodeid)
        self._taken[block] = self._taken.get(block, 0.0) + report.duration

    def pytest_sessionfinish(self) -> None:
        known = {**json.loads(SECONDS.read_text()), **self._taken}
        # A block is a file, one of its tests, or that of the shared cluster. Files may be gone.
        there = {block: taken for block, taken in known.items() if self._is_there(block)}
        long = {block: round(taken) for block, taken in sorted(there.items()) if taken >= NOTED_S}
        SECONDS.write_text(json.dumps(long, indent=2) + "\n")

    def _is_there(self, block: str) -> bool:
        return block == OF_THE_SHARED_CLUSTER or (SECONDS.parents[1] / block.partition("::")[0]).exists()


def pytest_configure(config: pytest.Config) -> None:
    """Where that is asked for, note how long blocks take: of several processes, the one that hands them out does."""
    if config.getoption("--record-seconds") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Seconds())


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A failure is named at once: a whole run takes long, and may be ended before its summary."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        print(f" {report.nodeid} failed", file=sys.__stderr__, flush=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Where something failed, how to have the same order of tests again."""
    seed = config.getoption("randomly_seed", None)
    if seed is not None and (terminalreporter.stats.get("failed") or terminalreporter.stats.get("error")):
        terminalreporter.write_line(f"The order of the tests was random; the same again: make test SEED={seed}")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Each test process takes a whole block."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return block_of(nodeid)

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
