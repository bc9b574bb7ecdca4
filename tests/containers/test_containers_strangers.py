"""Whoever should not: refused, logged, nothing changed."""

from __future__ import annotations

import hashlib
import io
import secrets
import socket
import tarfile
import tempfile

import grpc
import pytest
from container_access import (
    CALL_S,
    channel_of,
    failure_of,
    nothing_changes,
    token_of,
)
from container_cluster import Cluster, Work
from container_engine import docker
from windrow import Client
from windrow.errors import MasterUnreachable, MasterUntrusted, RequestRefused
from windrow.rpc import errors
from windrow.rpc.contexts import Access
from windrow.rpc.v1 import (
    agent_service_pb2,
    agent_service_pb2_grpc,
    artifact_service_pb2,
    artifact_service_pb2_grpc,
    job_service_pb2,
    job_service_pb2_grpc,
)
from windrow.spec import build_effective, load_job
from windrow.transfer.upload import FileSource, upload_artifact
from windrow_master.setup.authority import Authority

pytestmark = pytest.mark.timeout(300, func_only=True)


@pytest.mark.parametrize("brings", ["nothing", "a wrong token", "the join token"])
def test_who_brings_no_client_token_submits_nothing(cluster: Cluster, brings: str) -> None:
    tokens = {"nothing": "", "a wrong token": secrets.token_hex(32), "the join token": token_of(cluster, "join-token")}
    with (
        nothing_changes(cluster, "a call was refused", "JobService/SubmitJob"),
        channel_of(cluster, tokens[brings]) as channel,
    ):
        jobs = job_service_pb2_grpc.JobServiceStub(channel)
        request = job_service_pb2.SubmitJobRequest(request_id="r", document=b"{}")
        refused = failure_of(lambda: jobs.SubmitJob(request, timeout=CALL_S))
        assert (refused.code, refused.reason) == (grpc.StatusCode.UNAUTHENTICATED, errors.CLIENT_TOKEN_INVALID)
        listed = failure_of(lambda: jobs.ListJobs(job_service_pb2.ListJobsRequest(), timeout=CALL_S))
        assert listed.reason == errors.CLIENT_TOKEN_INVALID
        uploads = artifact_service_pb2_grpc.ArtifactServiceStub(channel)
        piece = artifact_service_pb2.UploadArtifactRequest(digest="0" * 64, length=1 << 20, chunk=bytes(1 << 20))
        assert failure_of(lambda: uploads.UploadArtifact(iter([piece]), timeout=CALL_S)).reason == (
            errors.CLIENT_TOKEN_INVALID
        )


@pytest.mark.parametrize("brings", ["nothing", "the client token"])
def test_who_brings_no_join_token_becomes_no_node(cluster: Cluster, brings: str) -> None:
    token = token_of(cluster, "client-token") if brings == "the client token" else ""
    with nothing_changes(cluster, "JOIN_TOKEN_INVALID"), channel_of(cluster, token) as channel:
        request = agent_service_pb2.RegisterRequest(node_id="intruder", node_incarnation="1")
        agents = agent_service_pb2_grpc.AgentServiceStub(channel)
        assert failure_of(lambda: agents.Register(request, timeout=CALL_S)).reason == errors.JOIN_TOKEN_INVALID
        beat = agent_service_pb2.HeartbeatRequest()
        invented = (("windrow-credential", token or "0" * 64),)
        assert failure_of(lambda: agents.Heartbeat(beat, timeout=CALL_S, metadata=invented)).reason == (
            errors.CREDENTIAL_INVALID
        )


def test_plain_text_is_not_answered(cluster: Cluster) -> None:
    with nothing_changes(cluster, "Handshake failed"):
        with (
            pytest.raises(MasterUnreachable, match="If it uses TLS"),
            Client(access=Access(f"127.0.0.1:{cluster.port}"), patience_s=0.5) as client,
        ):
            client.master()
        with socket.create_connection(("127.0.0.1", cluster.port), CALL_S) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"HTTP" not in plain.recv(1000)


def test_a_master_of_another_authority_is_not_talked_to(cluster: Cluster) -> None:
    other = Authority.make().certificate_pem.decode()
    # The client hangs up before it has said anything: there is nothing to log.
    with (
        nothing_changes(cluster),
        pytest.raises(MasterUntrusted, match="another authority"),
        Client(access=cluster.access._replace(ca=other), patience_s=CALL_S) as client,
    ):
        client.master()


def test_messages_that_are_too_large(cluster: Cluster) -> None:
    with channel_of(cluster, cluster.access.token) as channel:
        jobs = job_service_pb2_grpc.JobServiceStub(channel)
        with nothing_changes(cluster, "a request was dropped", "JobService/SubmitJob"):
            # gRPC refuses it before anything of ours has seen it.
            request = job_service_pb2.SubmitJobRequest(request_id="r", document=bytes(65 << 20))
            refused = failure_of(lambda: jobs.SubmitJob(request, timeout=CALL_S))
            assert refused.code == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert refused.message.startswith("SERVER: ")
        with nothing_changes(cluster, "a request was refused", "The job document has"):
            request = job_service_pb2.SubmitJobRequest(request_id="r", document=bytes(5 << 20))
            assert failure_of(lambda: jobs.SubmitJob(request, timeout=CALL_S)).reason == errors.LIMIT_REACHED
        uploads = artifact_service_pb2_grpc.ArtifactServiceStub(channel)
        with nothing_changes(cluster, "a request was refused", "A chunk of"):
            chunk = bytes((1 << 20) + 1)
            piece = artifact_service_pb2.UploadArtifactRequest(digest="1" * 64, length=2 << 20, chunk=chunk)
            refused = failure_of(lambda: uploads.UploadArtifact(iter([piece]), timeout=CALL_S))
            assert refused.reason == errors.REQUEST_INVALID
        with nothing_changes(cluster, "a request was refused", "The request is too large"):
            piece = artifact_service_pb2.UploadArtifactRequest(digest="1" * 64, length=3 << 20, chunk=bytes(3 << 20))
            refused = failure_of(lambda: uploads.UploadArtifact(iter([piece]), timeout=CALL_S))
            assert refused.reason == errors.REQUEST_INVALID


@pytest.mark.parametrize(
    ("what", "planted"),
    [
        ("input 'data'", ("/data/outside", "/etc")),
        ("input 'data'", ("/data/outside", "/data/../windrow")),
        ("output 'rows'", ("rows: {type: uri_folder}", "rows: {type: uri_folder, path: /state/rows}")),
    ],
)
def test_a_path_outside_the_datastores(cluster: Cluster, what: str, planted: tuple[str, str]) -> None:
    work = Work(cluster, "outside", items=1)
    try:
        text = work.file.read_text()
        assert planted[0] in text
        work.file.write_text(text.replace(*planted))
        with (
            nothing_changes(cluster, "a request was refused", "is outside the datastores"),
            pytest.raises(RequestRefused, match="is outside the datastores") as caught,
        ):
            work.submit()
        assert what in str(caught.value)
    finally:
        remove(work)


def remove(work: Work) -> None:
    """Take a job's folders away, so that its name is free again."""
    for folder in (work.folder, work.cluster.data / work.folder.name):
        for path in sorted(folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        folder.rmdir()


def archive_of(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    """A tar, as no client of ours makes it."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for info, content in members:
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def linked(name: str, target: str, kind: bytes) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


MARK = "windrow-was-here"
ENTRY = (tarfile.TarInfo("entry.py"), b"def run(mini_batch):\n    return list(mini_batch)\n")
HOSTILE = {
    "up": [(tarfile.TarInfo(f"../{MARK}"), b"x")],
    "absolute": [(tarfile.TarInfo(f"/tmp/{MARK}"), b"x")],
    "link": [(linked("out", "/tmp", tarfile.SYMTYPE), b""), (tarfile.TarInfo(f"out/{MARK}"), b"x")],
    "hard-link": [(linked(MARK, "/windrow/ca.pem", tarfile.LNKTYPE), b"")],
}


def test_archives_of_code_that_reach_outside(cluster: Cluster) -> None:
    work = Work(cluster, "traversal", items=4)
    loaded = load_job(work.file, (), embedded=False)
    with cluster.client() as client:
        submitted = {}
        for name, members in HOSTILE.items():
            with tempfile.TemporaryFile() as archive:
                archive.write(archive_of(ENTRY, *members))
                archive.seek(0)
                digest = hashlib.file_digest(archive, "sha256").hexdigest()
                upload_artifact(client.connection, digest, FileSource(archive))
            job = build_effective(loaded, dict.fromkeys(loaded.code_folders.values(), digest), name=f"traversal-{name}")
            submitted[name] = client.submit_effective(job).job_id
        for name, job_id in submitted.items():
            ended = client.wait(job_id, timeout_s=240, check=False)
            assert ended.state == "failed"
            assert "the code archive is refused" in ended.message, (name, ended.message)
    for container in [*cluster.agents, cluster.master]:
        found = docker("exec", container, "find", "/", "-not", "-path", "/proc/*", "-name", f"*{MARK}*", check=False)
        assert found == "", container
    assert not list(cluster.data.rglob(f"*{MARK}*"))
    cluster.wait_ready(cluster.scale)
