"""The planner over a store: the first mini-batch before the listing has ended, and no page listed twice."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import threading
import urllib.parse
from pathlib import Path
from typing import Any

import pytest
from s3_server import BUCKET, Exchange, Proxy, S3Server, clean_environment

OBJECTS = 2500
HEAD = struct.Struct("<II")


@pytest.fixture(scope="module")
def prefix(server: S3Server) -> str:
    """Three pages of objects, in folders whose names sort otherwise as texts than as paths."""
    names = [f"{folder}/{number:04d}" for folder in ("a", "a-b", "a b") for number in range(OBJECTS // 3)]
    for name in names:
        server.put(f"planning/{name}", "x")
    return f"s3://{BUCKET}/planning"


class Planner:
    """A planner process over a store."""

    def __init__(self, proxy: Proxy, folder: Path, address: str, checkpoint: Any) -> None:
        request = {
            "step_folder": str(folder),
            "input": {"type": "uri_folder", "path": address, "mode": "ro_mount"},
            "mini_batch_size": 7,
            "partition_keys": [],
            "checkpoint": checkpoint,
            "datastores": {},
            "roots": None,
            "rank_mini_batch_count": 0,
            "file_format": None,
            "mini_batch_rows": None,
            "exact_row_index": False,
            "rows_folder": None,
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "windrow_master.planning"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=clean_environment(proxy.url, folder),
        )
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()

    def message(self) -> dict[str, Any] | None:
        """The next group; None at the end."""
        assert self.process.stdout is not None
        head = self.process.stdout.read(HEAD.size)
        if len(head) < HEAD.size:
            return None
        lengths = HEAD.unpack(head)
        message: dict[str, Any] = json.loads(self.process.stdout.read(lengths[0]))
        self.process.stdout.read(lengths[1])
        return message

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()


def plan(proxy: Proxy, folder: Path, address: str, checkpoint: Any = None) -> dict[str, Any]:
    """Plan to the end; the last checkpoint."""
    planner = Planner(proxy, folder, address, checkpoint)
    while (message := planner.message()) is not None:
        checkpoint = message["to"]
    planner.kill()
    return dict(checkpoint)


def names_in(folder: Path) -> list[str]:
    return [item.partition("\n")[0] for item in (folder / "recipes").read_text().split("\0")[:-1]]


def test_a_planner_that_is_killed_goes_on_where_it_was(proxy: Proxy, tmp_path: Path, prefix: str) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    end = plan(proxy, whole, prefix)
    names = names_in(whole)
    assert names == sorted(names, key=lambda name: name.split("/")) and len(names) == OBJECTS // 3 * 3
    first = Planner(proxy, parts, prefix, None)
    message = first.message()
    assert message is not None
    first.kill()
    proxy.requests.clear()
    assert plan(proxy, parts, prefix, message["to"])["mini_batches"] == end["mini_batches"]
    assert (parts / "recipes").read_bytes() == (whole / "recipes").read_bytes()
    # The first page is not asked for again.
    after = message["to"]["position"]["frontier"]["name"].partition("\n")[0]
    listed = [urllib.parse.unquote_plus(request) for request in proxy.requests if "list-type" in request]
    assert after and any(after in request for request in listed)
    assert not [
        request for request in listed if "prefix=planning/a/&" in f"{request}&" and "start-after" not in request
    ]


def test_the_first_mini_batch_comes_before_the_listing_has_ended(proxy: Proxy, tmp_path: Path, prefix: str) -> None:
    let_go = threading.Event()

    def fault(exchange: Exchange) -> None:
        if "list-type" in exchange.path and "continuation-token" in exchange.path:
            let_go.wait(60)

    proxy.fault = fault
    planner = Planner(proxy, tmp_path, prefix, None)
    message = planner.message()
    assert message is not None and message["count"] and not message["to"]["done"]
    let_go.set()
    while (following := planner.message()) is not None:
        message = following
    planner.kill()
    assert message["to"]["done"] and message["to"]["items"] == OBJECTS // 3 * 3
