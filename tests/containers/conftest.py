"""Container tests: one engine, images built once a test run, one cluster that most tests share.

They are skipped, with the reason, where no Docker engine answers, and fail there when WINDROW_REQUIRE_DOCKER=1.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator

import pytest
from container_cluster import Cluster, kept
from container_engine import EngineMissing, build_images, need_engine

AGENTS = 4


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The images under test: the first process of a test run that needs them makes them, and others wait for it."""
    try:
        need_engine()
        # What lies above the folders of all processes of a test run, which xdist gives a name.
        run = os.environ.get("PYTEST_XDIST_TESTRUNUID", "")
        with (tmp_path_factory.getbasetemp().parent / "images").open("a+") as made:
            fcntl.flock(made, fcntl.LOCK_EX)
            made.seek(0)
            if not run or run not in made.read():
                build_images()
                made.write(run)
    except EngineMissing as error:
        if os.environ.get("WINDROW_REQUIRE_DOCKER") == "1":
            pytest.fail(f"WINDROW_REQUIRE_DOCKER=1, and container tests cannot run: {error}")
        pytest.skip(f"container tests cannot run: {error}")


@pytest.fixture(scope="session")
def shared_cluster(images: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One cluster for the whole session: tests leave it as they found it."""
    cluster = Cluster(tmp_path_factory.mktemp("cluster"), f"windrow-test-{os.getpid()}")
    try:
        yield cluster
    finally:
        cluster.down(volumes=True)


@pytest.fixture
def cluster(shared_cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The shared cluster, with four agents that are ready."""
    yield from kept(shared_cluster, request, AGENTS)
