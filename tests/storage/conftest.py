from __future__ import annotations

import functools
import http.server
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    """A web server with one file, `some file.txt`; it does not know of ranges."""
    folder = tmp_path / "web"
    folder.mkdir()
    (folder / "some file.txt").write_text("from the web")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()
