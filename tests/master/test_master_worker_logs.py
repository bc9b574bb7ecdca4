"""Log increments of agents on the master's disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from windrow.rpc.log_paths import place_of
from windrow.rpc.v1 import agent_service_pb2 as pb
from windrow.rpc.v1 import job_service_pb2 as pb_jobs
from windrow_master.reports.node_folders import REGISTER, read_register, write_register
from windrow_master.reports.worker_logs import WorkerLogs
from windrow_master.rpc.log_selection import select_logs

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


def test_what_is_just_being_written_is_no_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    rename = os.rename

    def listing(partial: str, target: str) -> None:
        request = pb_jobs.ListLogsRequest()
        seen.extend(path for path, _ in select_logs(request, tmp_path, None, ()))  # type: ignore[arg-type]
        assert Path(partial).exists()
        rename(partial, target)

    monkeypatch.setattr(os, "rename", listing)
    step = tmp_path / "score"
    step.mkdir()
    (step / "readme.txt").write_text("")
    write_register(step / REGISTER, {NODE: [FIRST]})
    assert seen == ["score/readme.txt"]
    assert read_register(step / REGISTER) == {NODE: [FIRST]}


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


@pytest.mark.parametrize(
    ("kind", "number", "place"),
    [
        (pb.LOG_KIND_PROCESS, 7, "sys/node/node-1/process007.txt"),
        (pb.LOG_KIND_RUNTIME_ERROR, 7, "sys/error/node-1/process007.txt"),
        (pb.LOG_KIND_PROFILE, 1234, "sys/node/node-1/process1234.profile"),
        (pb.LOG_KIND_NODE_RESOURCES, 0, "sys/perf/node-1/node_resource_usage.csv"),
        (pb.LOG_KIND_NODE_DISKS, 0, "sys/perf/node-1/node_disk_usage.csv"),
        (pb.LOG_KIND_PROCESS_RESOURCES, 0, "sys/perf/node-1/processes_resource_usage.csv"),
        (pb.LOG_KIND_PROCESS_LIST, 29_616_666, "sys/perf/node-1/os/2026042403/processes_06"),
    ],
)
def test_each_kind_of_log_has_its_place(tmp_path: Path, kind: pb.LogKind.ValueType, number: int, place: str) -> None:
    logs(tmp_path).append(NODE, FIRST, [pb.LogChunk(step_id=1, kind=kind, process_number=number, content=b"text")])
    assert (tmp_path / place).read_bytes() == b"text"
    assert str(place_of(kind, NODE, number)) == place


def test_a_kind_of_log_of_a_later_agent_is_left_out(tmp_path: Path) -> None:
    later = max(pb.LogKind.values()) + 1
    logs(tmp_path).append(NODE, FIRST, [pb.LogChunk(step_id=1, kind=later, content=b"text")])  # type: ignore[arg-type]
    assert [path.name for path in tmp_path.rglob("*")] == ["nodes.json"]


def test_logs_beyond_a_job_s_bound_are_left_out_with_a_notice(tmp_path: Path) -> None:
    step = tmp_path / "logs" / "score"

    def master() -> WorkerLogs:
        return WorkerLogs(lambda step_id: step, budget=100)

    written = master()
    written.append(NODE, FIRST, [chunk(0, b"x" * 40)])
    stdout = step / "user" / "stdout" / "node-1" / "process000.stdout.txt"
    assert stdout.read_bytes() == b"x" * 40
    # nodes.json counts as well: it is one of the job's logs.
    written.append(NODE, FIRST, [chunk(40, b"y" * 40), chunk(80, b"z" * 40)])
    first = stdout.read_bytes()
    assert first.startswith(b"x" * 40) and b"z" not in first
    assert first.endswith(b"later lines are left out]\n") and b"100 bytes" in first
    # Neither a repetition, nor more of it, nor a later master says so again.
    written.append(NODE, FIRST, [chunk(80, b"z" * 40), chunk(120, b"z" * 400)])
    master().append(NODE, FIRST, [chunk(520, b"z" * 400)])
    assert stdout.read_bytes() == first
    # What the master has already may come again.
    written.append(NODE, FIRST, [chunk(0, b"x" * 40)])
    assert stdout.read_bytes() == first
