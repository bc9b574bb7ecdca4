"""Container tests: one engine, images built once a session, one cluster that most tests share.

They are skipped, with the reason, where no Docker engine answers, and fail there when WINDROW_REQUIRE_DOCKER=1.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from container_cluster import Cluster, kept
from container_engine import EngineMissing, build_images, need_engine

AGENTS = 4


@pytest.fixture(scope="session")
def images() -> None:
    """The images under test."""
    try:
        need_engine()
        build_images()
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
