from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from s3_server import Proxy, S3Server, proxy_before
from storage_job import StorageJob

# For `planner_process`.
sys.path.insert(0, str(Path(__file__).parent.parent / "planning"))


@pytest.fixture(scope="session")
def server() -> Iterator[S3Server]:
    """One S3 server for all tests of a process; each test has keys of its own."""
    server = S3Server()
    yield server
    server.stop()


@pytest.fixture
def proxy(server: S3Server) -> Iterator[Proxy]:
    with proxy_before(server) as proxy:
        yield proxy


@pytest.fixture
def job(server: S3Server, tmp_path: Path) -> Iterator[StorageJob]:
    job = StorageJob(server, tmp_path)
    yield job
    job.stop()
