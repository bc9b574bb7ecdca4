"""Who may call what on a master that is served over TLS; what it and its callers say of keys and certificates."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from served_tls import DEADLINE_S, SecureMaster, joining
from windrow import Client
from windrow.common.journal import REPEATED_TIMES
from windrow.errors import MasterUnreachable, MasterUntrusted
from windrow.rpc import errors
from windrow.rpc.contexts import Access
from windrow.rpc.server_tls import server_credentials
from windrow.rpc.v1 import (
    agent_service_pb2,
    agent_service_pb2_grpc,
    artifact_service_pb2,
    artifact_service_pb2_grpc,
    job_service_pb2,
    job_service_pb2_grpc,
)
from windrow_master.setup.__main__ import WrongStage, set_up
from windrow_master.setup.authority import Authority

CALL_S = 90.0
HEALTH = [sys.executable, "-c", "from windrow.cli import main; main()", "health"]


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureMaster]:
    """One for all tests that only ask."""
    with SecureMaster(tmp_path_factory.mktemp("master")).serving() as serving:
        yield serving


@pytest.fixture
def quiet(tmp_path: Path) -> Iterator[SecureMaster]:
    """One that nobody has asked for anything: what is refused often is only counted in the log."""
    with SecureMaster(tmp_path).serving() as serving:
        yield serving


@pytest.fixture
def credential(master: SecureMaster) -> str:
    """Of a node that has just registered: one that is silent is lost after seconds."""
    with master.channel() as channel:
        request = agent_service_pb2.RegisterRequest(node_id=f"n{secrets.token_hex(4)}", node_incarnation="1")
        agents = agent_service_pb2_grpc.AgentServiceStub(channel)
        return agents.Register(request, metadata=joining(master), timeout=CALL_S).node_credential


def call(channel: grpc.Channel, method: str, metadata: list[tuple[str, str]]) -> str:
    """How a call ends: "" well, else the reason, else the code."""
    jobs = job_service_pb2_grpc.JobServiceStub(channel)
    artifacts = artifact_service_pb2_grpc.ArtifactServiceStub(channel)
    agents = agent_service_pb2_grpc.AgentServiceStub(channel)
    health = health_pb2_grpc.HealthStub(channel)
    reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
    asked = reflection_pb2.ServerReflectionRequest(list_services="")
    again = {"metadata": metadata, "timeout": CALL_S}
    calls: dict[str, Callable[[], Any]] = {
        # one to one, one to many, many to one, many to many
        "GetMaster": lambda: jobs.GetMaster(job_service_pb2.GetMasterRequest(), **again),
        "SubmitJob": lambda: jobs.SubmitJob(job_service_pb2.SubmitJobRequest(), **again),
        "WatchJob": lambda: next(jobs.WatchJob(job_service_pb2.WatchJobRequest(job_id="none"), **again)),
        "UploadArtifact": lambda: artifacts.UploadArtifact(iter([]), **again),
        "Reflection": lambda: next(reflection.ServerReflectionInfo(iter([asked]), **again)),
        "StatData": lambda: artifacts.StatData(artifact_service_pb2.StatDataRequest(path=b"/"), **again),
        "PlaceData": lambda: next(artifacts.PlaceData(artifact_service_pb2.PlaceDataRequest(), **again)),
        "GetArtifact": lambda: artifacts.GetArtifact(artifact_service_pb2.GetArtifactRequest(), **again),
        "DownloadArtifact": lambda: next(
            artifacts.DownloadArtifact(artifact_service_pb2.DownloadArtifactRequest(), **again)
        ),
        "Register": lambda: agents.Register(agent_service_pb2.RegisterRequest(node_id="n2"), **again),
        "Heartbeat": lambda: agents.Heartbeat(agent_service_pb2.HeartbeatRequest(), **again),
        "Work": lambda: list(agents.Work(iter([]), **again)),
        "Health": lambda: health.Check(health_pb2.HealthCheckRequest(), **again),
        "WatchHealth": lambda: next(health.Watch(health_pb2.HealthCheckRequest(), **again)),
        "nothing": lambda: channel.unary_unary("/windrow.rpc.v1.JobService/NoSuchMethod")(b"", **again),
    }
    try:
        calls[method]()
    except grpc.RpcError as error:
        failure = errors.read_failure(error)
        return failure.reason or failure.code.name
    return ""


REFUSED = errors.CLIENT_TOKEN_INVALID
JOIN, UNKNOWN_NODE = errors.JOIN_TOKEN_INVALID, errors.CREDENTIAL_INVALID
TABLE = {
    # What a call is told that comes with nothing (or with what is wrong), with the client token, with a credential.
    "GetMaster": (REFUSED, "", REFUSED),
    "SubmitJob": (REFUSED, "REQUEST_ID_INVALID", REFUSED),
    "WatchJob": (REFUSED, errors.JOB_UNKNOWN, REFUSED),
    "UploadArtifact": (REFUSED, errors.DIGEST_INVALID, REFUSED),
    "Reflection": (REFUSED, "", REFUSED),
    "StatData": (REFUSED, errors.PATH_OUTSIDE, REFUSED),
    "PlaceData": (REFUSED, errors.ARTIFACT_MISSING, REFUSED),
    "GetArtifact": (REFUSED, "", errors.STEP_NOT_OFFERED),
    "DownloadArtifact": (REFUSED, errors.ARTIFACT_MISSING, errors.STEP_NOT_OFFERED),
    "Register": (JOIN, JOIN, JOIN),
    "Heartbeat": (UNKNOWN_NODE, UNKNOWN_NODE, ""),
    "Work": (UNKNOWN_NODE, UNKNOWN_NODE, ""),
    "Health": ("", "", ""),
    "WatchHealth": ("", "", ""),
    "nothing": ("UNIMPLEMENTED", "UNIMPLEMENTED", "UNIMPLEMENTED"),
}


@pytest.mark.parametrize("method", TABLE)
def test_who_may_call_what(master: SecureMaster, credential: str, method: str) -> None:
    stranger, client, node = TABLE[method]
    token = master.token("client-token")
    join = master.token("join-token")
    brought = {
        "nothing": ([], stranger),
        "a wrong token": ([("authorization", "Bearer wrong")], stranger),
        "the join token": (
            [("authorization", f"Bearer {join}")],
            errors.NODE_INVALID if stranger == JOIN else stranger,
        ),
        "another scheme": ([("authorization", token)], stranger),
        "half of it": ([("authorization", f"Bearer {token[:-1]}")], stranger),
        "a wrong credential": ([("windrow-credential", "wrong")], stranger),
        "the client token as credential": ([("windrow-credential", token)], stranger),
        "a credential as client token": ([("authorization", f"Bearer {credential}")], stranger),
        "the client token": ([("authorization", f"Bearer {token}")], client),
        "a credential": ([("windrow-credential", credential)], node),
    }
    with master.channel() as channel:
        told = {what: call(channel, method, metadata) for what, (metadata, _) in brought.items()}
    assert told == {what: expected for what, (_, expected) in brought.items()}


def test_a_request_without_the_token_is_refused_before_it_is_read(master: SecureMaster) -> None:
    """Its sender may be anybody: nobody fills the master's memory."""
    with master.channel("wrong", ("grpc.max_send_message_length", -1)) as channel:
        request = job_service_pb2.SubmitJobRequest(request_id="r", document=bytes(80 << 20))
        with pytest.raises(grpc.RpcError) as caught:
            job_service_pb2_grpc.JobServiceStub(channel).SubmitJob(request, timeout=CALL_S)
    assert errors.read_failure(caught.value).reason == REFUSED


def test_a_strangers_registration_is_not_read_and_said_in_the_log(quiet: SecureMaster) -> None:
    length = len(quiet.log())
    with quiet.channel("wrong", ("grpc.max_send_message_length", -1)) as channel:
        request = agent_service_pb2.RegisterRequest(node_id="n" * (80 << 20))
        with pytest.raises(grpc.RpcError) as caught:
            agent_service_pb2_grpc.AgentServiceStub(channel).Register(request, timeout=CALL_S)
    assert errors.read_failure(caught.value).reason == JOIN
    (line,) = quiet.lines_after(length)
    assert line["event"] == "a call was refused" and JOIN in str(line) and len(str(line)) < 1000


def test_what_a_job_may_not_is_in_the_log(quiet: SecureMaster) -> None:
    length = len(quiet.log())
    with quiet.channel(quiet.token("client-token"), ("grpc.max_send_message_length", -1)) as channel:
        jobs = job_service_pb2_grpc.JobServiceStub(channel)
        with pytest.raises(grpc.RpcError):  # nobody is suspicious for asking after a job: there is no line of it
            jobs.GetJob(job_service_pb2.GetJobRequest(job_id="none"), timeout=CALL_S)
        for document, reason in ((b"{}", errors.JOB_INVALID), (bytes(65 << 20), "")):
            request = job_service_pb2.SubmitJobRequest(request_id="r", document=document)
            with pytest.raises(grpc.RpcError) as caught:
                jobs.SubmitJob(request, timeout=CALL_S)
            assert errors.read_failure(caught.value).reason == reason
    refused, dropped = quiet.lines_after(length, 2)
    assert refused["event"] == "a request was refused" and "The job document is not valid" in refused["reason"]
    assert "a request was dropped" in dropped["event"]
    assert all(
        "JobService/SubmitJob" in line["method"] and "ipv4:127.0.0.1" in line["peer"] for line in (refused, dropped)
    )


def test_an_upload_from_a_laptop_is_nothing_to_warn_of(quiet: SecureMaster) -> None:
    """A client asks whether the master sees its folder; where it does not, the folder is uploaded."""
    length = len(quiet.log())
    with quiet.channel(quiet.token("client-token")) as channel, pytest.raises(grpc.RpcError) as caught:
        artifact_service_pb2_grpc.ArtifactServiceStub(channel).StatData(
            artifact_service_pb2.StatDataRequest(path=b"/home/ann/data"), timeout=CALL_S
        )
    assert errors.read_failure(caught.value).reason == errors.PATH_OUTSIDE
    (line,) = quiet.lines_after(length)
    assert line["level"] == "info" and "/home/ann/data" in line["reason"]


def test_a_stranger_cannot_fill_the_log(quiet: SecureMaster) -> None:
    length = len(quiet.log())
    with quiet.channel("wrong") as channel:
        jobs = job_service_pb2_grpc.JobServiceStub(channel)
        for _ in range(100):
            with pytest.raises(grpc.RpcError):
                jobs.ListJobs(job_service_pb2.ListJobsRequest(), timeout=CALL_S)
    lines = quiet.lines_after(length, REPEATED_TIMES)
    assert [line["event"] for line in lines] == ["a call was refused"] * REPEATED_TIMES
    assert "are counted" in lines[-1]["next"]


def test_no_secret_is_in_the_log_or_on_a_command_line(master: SecureMaster) -> None:
    log, line = master.log() + (master.state / "master.log").read_text(), " ".join(master.command())
    for name in ("join-token", "client-token"):
        assert master.token(name) not in log + line


# The file of key and certificates.


def key_and_certificate(*names: str, days: int = 10) -> tuple[Authority, bytes, bytes]:
    """An authority, and a key and a certificate by it."""
    authority = Authority.make()
    pem = authority.issue(list(names or ("localhost", "127.0.0.1")), days)
    cut = pem.index(b"-----BEGIN CERTIFICATE")
    return authority, pem[:cut], pem[cut:]


def bad_tls_files() -> dict[str, bytes]:
    """What no server can use."""
    _, key, certificate = key_and_certificate()
    _, other, _ = key_and_certificate()
    lines = certificate.splitlines(keepends=True)
    return {
        "empty": b"",
        "no PEM": b"secret",
        "the key alone": key,
        "the certificate alone": certificate,
        "two keys": key + other + certificate,
        "another key": other + certificate,
        "a damaged certificate": key + lines[0] + b"AAAA\n" + lines[-1],
        "a damaged key": b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n" + certificate,
    }


@pytest.mark.parametrize("content", bad_tls_files().values(), ids=bad_tls_files())
def test_a_tls_file_of_no_use_is_explained(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "tls.pem"
    file.write_bytes(content)
    with pytest.raises(OSError, match=r"The TLS file .*tls\.pem .*windrow setup"):
        server_credentials(file)


def test_a_master_does_not_start_without_a_certificate_or_with_one_token_for_all(tmp_path: Path) -> None:
    made = SecureMaster(tmp_path)
    tls = made.keys / "master" / "tls.pem"
    good = tls.read_bytes()
    tls.unlink()
    tls.write_bytes(bad_tls_files()["another key"])
    told = refused_start(made)
    assert "The TLS file" in told and "does not match its first certificate" in told
    tls.write_bytes(good)
    token = made.keys / "master" / "client-token"
    token.unlink()
    token.write_text(made.token("join-token") + "\n")
    told = refused_start(made)
    assert "is also the join token" in told
    assert made.token("join-token") not in told


def refused_start(made: SecureMaster) -> str:
    done = subprocess.run(made.command(), capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    return done.stderr


def test_an_authority_is_replaced_without_a_restart_and_both_are_trusted_meanwhile(tmp_path: Path) -> None:
    master = SecureMaster(tmp_path)

    def stage(name: str) -> str:
        set_up(master.keys, [], 90, None, new_authority=name)
        return master.ca

    def trusts(ca: str) -> bool:
        """Whether a client with these certificates gets an answer. Each one connects anew."""
        try:
            with Client(access=Access(master.address, ca, master.token("client-token")), patience_s=CALL_S) as client:
                return client.master().incarnation == 1
        except MasterUntrusted:
            return False

    with master.serving():
        old = master.ca
        with pytest.raises(WrongStage, match="begin"):
            stage("switch")
        both = stage("begin")
        assert both.count("BEGIN CERTIFICATE") == 2 and both.startswith(old)
        assert trusts(old) and trusts(both)
        with pytest.raises(WrongStage, match="switch"):
            stage("finish")
        switched = stage("switch")
        assert trusts(both) and trusts(switched) and not trusts(old)
        with pytest.raises(WrongStage, match="finish"):
            stage("begin")
        new = stage("finish")
        assert new.count("BEGIN CERTIFICATE") == 1 and new in both
        assert trusts(new) and trusts(both) and not trusts(old)
    assert sorted(path.name for path in (master.keys / "authority").iterdir()) == [
        "authority.pem",
        "client-token",
        "join-token",
        "tls.pem",
    ]


def test_a_renewed_certificate_is_taken_and_a_bad_one_is_not(tmp_path: Path) -> None:
    with SecureMaster(tmp_path).serving() as master, Client(access=master.access, patience_s=CALL_S) as early:
        early.master()
        place = master.keys / "master" / "tls.pem"
        for content in bad_tls_files().values():
            replace(place, content)
            length = len(master.log())
            with Client(access=master.access, patience_s=CALL_S) as client:
                client.master()
            said = [line["event"] for line in master.lines_after(length)]
            assert "the renewed TLS file cannot be used; the previous one stays in use" in said
        place.unlink()
        with Client(access=master.access, patience_s=CALL_S) as client:
            client.master()
        (master.keys / "authority" / "tls.pem").unlink()
        set_up(master.keys, ["another.example"], 90, None)
        with Client(access=master.access, patience_s=CALL_S) as client:
            client.master()
        assert "the TLS file was renewed" in master.log()
        early.master()


def replace(place: Path, content: bytes) -> None:
    partial = place.with_suffix(".partial")
    partial.write_bytes(content)
    partial.replace(place)


# What callers say of a handshake that failed.


@contextmanager
def server(credentials: grpc.ServerCredentials | None) -> Iterator[int]:
    """A port on which some gRPC server answers."""
    running = grpc.server(futures.ThreadPoolExecutor(1))
    port = running.add_secure_port("[::]:0", credentials) if credentials else running.add_insecure_port("[::]:0")
    running.start()
    try:
        yield port
    finally:
        running.stop(None).wait()


def told_by_client(address: str, ca: str) -> str:
    with pytest.raises(MasterUntrusted) as caught, Client(access=Access(address, ca), patience_s=CALL_S) as client:
        client.master()
    return str(caught.value)


def told_by_health(address: str, ca_file: Path) -> str:
    environment = {**os.environ, "WINDROW_CA_FILE": str(ca_file)}
    done = subprocess.run(
        [*HEALTH, "--master", address], env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 5, done.stderr
    return done.stderr


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("expired", "Check this machine's clock. If it is right, renew the certificate: run `windrow setup` again"),
        ("other authority", "is not the master that you know: its certificate was issued by another authority"),
        ("other name", "is not valid for '127.0.0.1'. Use one of its names, or add this one: `windrow setup --name"),
        ("plain", "does not speak TLS"),
    ],
)
def test_why_a_handshake_failed(tmp_path: Path, fault: str, words: str) -> None:
    names = ["other.example"] if fault == "other name" else ["127.0.0.1"]
    authority, key, certificate = key_and_certificate(*names, days=0 if fault == "expired" else 10)
    trusted = (Authority.make() if fault == "other authority" else authority).certificate_pem
    (tmp_path / "ca.pem").write_bytes(trusted)
    credentials = None if fault == "plain" else grpc.ssl_server_credentials([(key, certificate)])
    with server(credentials) as port:
        address = f"127.0.0.1:{port}"
        assert words in told_by_client(address, trusted.decode())
        assert words in told_by_health(address, tmp_path / "ca.pem")


MANY_CLOSED = """\
import sys
from windrow import Client
from windrow.rpc.contexts import Access
from windrow.errors import MasterUnreachable, MasterUntrusted

address, ca = sys.argv[1:]
found = set()
for _ in range(2000):
    try:
        with Client(access=Access(address, ca, "token"), patience_s=0) as client:
            client.master()
    except (MasterUntrusted, MasterUnreachable) as error:  # the latter where a busy machine cuts a handshake off
        found.add(type(error))
        continue
    sys.exit("it was trusted")
print("all are closed" if MasterUntrusted in found else "none got so far")
"""


def test_a_client_that_has_not_got_through_can_be_closed(master: SecureMaster) -> None:
    stranger = Authority.make().certificate_pem.decode()
    done = subprocess.run(
        [sys.executable, "-c", MANY_CLOSED, master.address, stranger],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == "all are closed\n", done.stderr[-2000:]


def test_a_name_in_brackets_is_told_as_setup_takes_it() -> None:
    authority, key, certificate = key_and_certificate("other.example")
    with server(grpc.ssl_server_credentials([(key, certificate)])) as port:
        assert "windrow setup --name ::1`" in told_by_client(f"[::1]:{port}", authority.certificate_pem.decode())


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_plain_text_to_a_master_with_tls(master: SecureMaster, host: str) -> None:
    with (
        pytest.raises(MasterUnreachable, match="If it uses TLS"),
        Client(access=Access(f"{host}:{master.port}"), patience_s=0.2) as client,
    ):
        client.master()


# Health.
