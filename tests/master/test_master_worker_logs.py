"""Log increments of agents on the master's disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from windrow.rpc.v1 import agent_service_pb2 as pb
from windrow_master.reports.worker_logs import WorkerLogs

NODE, FIRST, SECOND = "node-1", "aaaa", "bbbb"


def chunk(offset: int, content: bytes) -> pb.LogChunk:
    return pb.LogChunk(step_id=1, kind=pb.LOG_KIND_STDOUT, process_number=0, offset=offset, content=content)


def logs(folder: Path) -> WorkerLogs:
    return WorkerLogs(lambda step_id: folder if step_id == 1 else None)


def test_increments_are_written_where_they_belong(tmp_path: Path) -> None:
    written = logs(tmp_path)
    written.append(NODE, FIRST, [chunk(0, b"one\n"), chunk(4, b"two\n"), chunk(0, b"one\n")])
    written.append(NODE, SECOND, [chunk(0, b"other\n")])
    stdout = tmp_path / "user" / "stdout"
    assert (stdout / "node-1" / "process000.stdout.txt").read_bytes() == b"one\ntwo\n"
    assert (stdout / "node-1.2" / "process000.stdout.txt").read_bytes() == b"other\n"
    # A later master puts them into the same folders.
    logs(tmp_path).append(NODE, SECOND, [chunk(6, b"more\n")])
    assert (stdout / "node-1.2" / "process000.stdout.txt").read_bytes() == b"other\nmore\n"


def test_a_short_write_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, offset: pwrite(descriptor, data[:3], offset))
    logs(tmp_path).append(NODE, FIRST, [chunk(0, b"more than three bytes\n")])
    assert (tmp_path / "user/stdout/node-1/process000.stdout.txt").read_bytes() == b"more than three bytes\n"


@pytest.mark.parametrize("content", ["", "{", "\0\0\0"])
def test_a_damaged_list_of_nodes_stops_no_logs(tmp_path: Path, content: str) -> None:
    (tmp_path / "nodes.json").write_text(content)
    logs(tmp_path).append(NODE, FIRST, [chunk(0, b"one\n")])
    assert (tmp_path / "user/stdout/node-1/process000.stdout.txt").read_bytes() == b"one\n"
