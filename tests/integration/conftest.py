"""Fixtures of the integration tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cluster_commands import ServedCluster
from embedded_run import EmbeddedRun, wait_until
from served import Served

Make = Callable[..., EmbeddedRun]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Makes runs; at the end none of their processes may be left."""
    made: list[EmbeddedRun] = []

    def make_run(script: str, files: int = 4, *, size: int = 1, settings: str = "") -> EmbeddedRun:
        made.append(EmbeddedRun(tmp_path / f"job{len(made)}", script, files, size=size, settings=settings))
        return made[-1]

    yield make_run
    for run in made:
        if run.process is not None and run.process.poll() is None:
            run.process.kill()
            run.process.communicate()
        wait_until(lambda run=run: not run.strays(), f"no stray process: {run.strays()}")  # type: ignore[misc]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ServedCluster]:
    """A served master; its agents are started by the test."""
    made = ServedCluster(tmp_path)
    try:
        made.start_master()
        yield made
    finally:
        made.end()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A served master, whose datastore is a folder of its own, and nothing else."""
    (tmp_path / "there" / "store").mkdir(parents=True)
    processes = Served(tmp_path / "there", tmp_path / "there" / "store")
    processes.start_master()
    yield processes
    processes.close()


@pytest.fixture
def memory_group() -> Iterator[Path]:
    """A cgroup of this process's own (version 1 or 2) with little memory and no swap; making one needs root."""
    parent = Path("/sys/fs/cgroup")
    limit, procs = "memory.max", "cgroup.procs"
    if (parent / "memory").is_dir():
        parent, limit = parent / "memory", "memory.limit_in_bytes"
    group = parent / f"windrow-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError:
        pytest.skip("needs a cgroup of its own")
    try:
        try:
            (group / limit).write_text(str(400 << 20))
        except OSError:
            pytest.skip("needs the memory controller")
        yield group
    finally:
        wait_until(lambda: not (group / procs).read_text().strip(), "the group is empty")
        group.rmdir()
