"""The audit log: what is changed is written down, with who did it, and nobody can push it out."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import grpc
import pytest
from served_tls import SecureMaster, joining, wait_until, write_job
from windrow import Client
from windrow.errors import RequestRefused
from windrow.rpc.contexts import Access
from windrow.rpc.v1 import (
    agent_service_pb2,
    agent_service_pb2_grpc,
    artifact_service_pb2,
    artifact_service_pb2_grpc,
)
from windrow_master.identity import audit
from windrow_master.identity.audit import AuditLog


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_changes_are_written_down_and_refusals_are_not(tmp_path: Path) -> None:
    master = SecureMaster(tmp_path)
    job_file = write_job(master.data)
    with master.serving(), Client(access=master.access) as client, master.channel() as channel:
        _, secret = client.tokens.create("ci", "submit", project="vision")
        with Client(access=Access(master.address, master.ca, secret)) as ci:
            job = ci.submit(job_file)
            for _ in range(20):
                with pytest.raises(RequestRefused):
                    ci.cordon_node("n1")
            ci.cancel(job.job_id)
            assert [one.deleted for one in ci.prune(keep_last=0, dry_run=True)] == [False]
            assert [one.deleted for one in ci.prune(keep_last=0)] == [True]
        agents = agent_service_pb2_grpc.AgentServiceStub(channel)
        request = agent_service_pb2.RegisterRequest(node_id="n1", node_incarnation="1")
        node_secret = "5" * 64
        metadata = [*joining(master), ("windrow-secret", node_secret)]
        agents.Register(request, metadata=metadata)
        with pytest.raises(grpc.RpcError):
            agents.Register(request, metadata=joining(master))
        client.cordon_node("n1")
        client.remove_node("n1", force=True)
        client.tokens.revoke("ci")
        list(client.list_jobs())
    file = master.state / "audit.jsonl"
    lines = [line for line in lines_of(file) if not line["call"].startswith("ArtifactService/")]
    assert [
        (line["who"], line["role"], line["project"], line["call"], line["on"], line["result"]) for line in lines
    ] == [
        ("setup", "admin", "", "TokenService/CreateToken", {"name": "ci", "role": 2, "project": "vision"}, "done"),
        ("ci", "submit", "vision", "JobService/SubmitJob", lines[1]["on"], "done"),
        ("ci", "submit", "vision", "JobService/CancelJob", lines[2]["on"], "done"),
        ("ci", "submit", "vision", "JobService/PruneJobs", {"job_id": job.job_id}, "done"),
        ("setup-join", "none", "", "AgentService/Register", {"node_id": "n1"}, "done"),
        ("setup", "admin", "", "JobService/CordonNode", {"node_id": "n1", "cordoned": True}, "done"),
        ("setup", "admin", "", "JobService/RemoveNode", {"node_id": "n1", "force": True}, "done"),
        ("setup", "admin", "", "TokenService/RevokeToken", {"name": "ci"}, "done"),
    ]
    assert all(line["on"]["job_id"] == job.job_id for line in lines[1:3])
    assert all(line["time"].endswith("+00:00") and "127.0.0.1" in line["peer"] for line in lines)
    assert not file.stat().st_mode & 0o077
    text = file.read_text()
    assert not [one for one in (secret, node_secret, master.token("client-token")) if one in text]
    refused = [json.loads(line) for line in master.log().splitlines() if '"a call was refused"' in line]
    cordons = [line for line in refused if line["method"].endswith("CordonNode")]
    assert 0 < len(cordons) <= 10 and cordons[0]["token"] == "ci" and cordons[0]["reason"] == "ROLE_MISSING"


def test_a_master_outlives_clients_that_leave_in_the_middle_of_a_change(tmp_path: Path) -> None:
    master = SecureMaster(tmp_path)
    job_file = write_job(tmp_path / "elsewhere")
    with master.serving(), Client(access=master.access) as client:
        job = client.submit(job_file)
        (given,) = client.document(job.job_id)["steps"][0]["inputs"].values()
        digest = Path(given["path"]).relative_to(master.data / "uploads").parts[0]
        with master.channel(master.token("client-token")) as channel:
            artifacts = artifact_service_pb2_grpc.ArtifactServiceStub(channel)
            for _ in range(100):
                placing = artifacts.PlaceData(artifact_service_pb2.PlaceDataRequest(digest=digest))
                assert next(placing).path
                placing.cancel()
        assert client.cancel(job.job_id).state.ended
        assert master.process.poll() is None


async def noted(log: AuditLog, *names: str) -> None:
    for name in names:
        log.note(who=name)
    await log.close()


def test_a_full_file_makes_room_and_the_oldest_go(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    for number in range(6):
        asyncio.run(noted(AuditLog(file, bytes_max=1, kept=3), f"n{number}"))
    assert not file.exists()
    found = [[line["who"] for line in lines_of(tmp_path / f"audit.jsonl.{number}")] for number in (1, 2, 3)]
    assert found == [["n5"], ["n4"], ["n3"]]
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"audit.jsonl.{number}" for number in (1, 2, 3)]


def test_a_line_that_broke_off_spoils_no_other(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    file.write_text('{"who": "bro')
    asyncio.run(noted(AuditLog(file), "whole"))
    assert [json.loads(line)["who"] for line in file.read_text().splitlines()[1:]] == ["whole"]


def test_lines_wait_while_the_disk_takes_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "LINES_WAITING_MAX", 2)
    file = tmp_path / "folder" / "audit.jsonl"

    async def run() -> None:
        log = AuditLog(file)
        await noted(log, "a", "b", "c")  # the folder is missing
        file.parent.mkdir()
        await noted(log, "d")

    asyncio.run(run())
    assert lines_of(file)[-1] == {"lines_lost": 2}
    assert [line["who"] for line in lines_of(file)[:-1]] == ["c", "d"]


def test_a_line_is_on_the_disk_soon(tmp_path: Path) -> None:
    master = SecureMaster(tmp_path)
    with master.serving(), Client(access=master.access) as client:
        client.tokens.create("ci", "view")
        wait_until(lambda: lines_of(master.state / "audit.jsonl"), "the line is there while the master runs")
