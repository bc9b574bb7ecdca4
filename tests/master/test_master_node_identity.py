"""Nodes prove who they are, reach only what they were offered, and are nobody once they are lost or removed."""

from __future__ import annotations

import itertools
import secrets
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from served_tls import SecureMaster, wait_until, write_job
from windrow import Client
from windrow.rpc import errors
from windrow.rpc.v1 import (
    agent_service_pb2,
    agent_service_pb2_grpc,
    artifact_service_pb2,
    artifact_service_pb2_grpc,
    asset_service_pb2,
    node_pb2,
    run_files_pb2,
    work_pb2,
)

CALL_S = 90.0
_names = (f"n{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureMaster]:
    with SecureMaster(tmp_path_factory.mktemp("master")).serving() as serving:
        yield serving


class Joined(NamedTuple):
    """A node as an agent of its own knows it."""

    name: str
    incarnation: str
    secret: str
    credential: str

    @property
    def metadata(self) -> list[tuple[str, str]]:
        return [("windrow-credential", self.credential)]


class Peer:
    """Calls as any program could make them."""

    def __init__(self, master: SecureMaster, channel: grpc.Channel) -> None:
        self.master = master
        self.agents = agent_service_pb2_grpc.AgentServiceStub(channel)
        self.artifacts = artifact_service_pb2_grpc.ArtifactServiceStub(channel)

    def join(self, name: str, *, secret: str = "", incarnation: str = "", token: str = "", **request: Any) -> Joined:
        """Register. Raises grpc.RpcError."""
        incarnation = incarnation or secrets.token_hex(16)
        metadata = [("authorization", f"Bearer {token or self.master.token('join-token')}")]
        metadata += [("windrow-secret", secret)] if secret else []
        asked = agent_service_pb2.RegisterRequest(node_id=name, node_incarnation=incarnation, **request)
        answer = self.agents.Register(asked, metadata=metadata, timeout=CALL_S)
        return Joined(name, incarnation, secret, answer.node_credential)

    def work(self, node: Joined) -> Any:
        """Open a Work stream that holds nothing. It stays open until the channel is closed."""
        ended = threading.Event()

        def requests() -> Iterator[agent_service_pb2.WorkRequest]:
            yield agent_service_pb2.WorkRequest(hello=agent_service_pb2.WorkHello())
            ended.wait(CALL_S)

        call = self.agents.Work(requests(), metadata=node.metadata, timeout=CALL_S)
        call.add_callback(ended.set)
        return call

    def beat(self, node: Joined) -> None:
        """Say that a node lives."""
        self.agents.Heartbeat(agent_service_pb2.HeartbeatRequest(), metadata=node.metadata, timeout=CALL_S)

    def push(self, node: Joined, step_id: int, content: bytes = b"x") -> None:
        """Send a piece of a log."""
        chunk = agent_service_pb2.LogChunk(
            step_id=step_id, kind=agent_service_pb2.LOG_KIND_STDOUT, process_number=0, offset=0, content=content
        )
        request = agent_service_pb2.PushLogsRequest(chunks=[chunk])
        self.agents.PushLogs(request, metadata=node.metadata, timeout=CALL_S)

    def keep(self, node: Joined, step_id: int, *messages: run_files_pb2.KeepFilesRequest, model: str = "") -> None:
        """Hand in what a script would."""
        head = run_files_pb2.KeepFilesHead(run=run_files_pb2.RunOfScript(step_id=step_id))
        if model:
            head.model.kind, head.model.name = asset_service_pb2.ASSET_KIND_MODEL, model
        requests = iter([run_files_pb2.KeepFilesRequest(head=head), *messages])
        self.agents.KeepFiles(requests, metadata=node.metadata, timeout=CALL_S)

    def logged(self, node: Joined, step_id: int, *, of_job: bool = False) -> bytes:
        """What a script gets of what its run has logged."""
        request = run_files_pb2.ReadLoggedRequest(run=run_files_pb2.RunOfScript(step_id=step_id, of_job=of_job))
        answers = self.agents.ReadLogged(request, metadata=node.metadata, timeout=CALL_S)
        return b"".join(answer.rows for answer in answers)

    def fetch(self, node: Joined, digest: str) -> bytes:
        """Download an artifact."""
        request = artifact_service_pb2.DownloadArtifactRequest(digest=digest)
        answers = self.artifacts.DownloadArtifact(request, metadata=node.metadata, timeout=CALL_S)
        return b"".join(answer.chunk for answer in answers)


@pytest.fixture
def peer(master: SecureMaster) -> Iterator[Peer]:
    with master.channel() as channel:
        yield Peer(master, channel)


@pytest.fixture
def client(master: SecureMaster) -> Iterator[Client]:
    with Client(access=master.access) as client:
        yield client


def refused(call: Any, *arguments: Any, **more: Any) -> tuple[str, str]:
    """The reason and the message of a call that is refused."""
    with pytest.raises(grpc.RpcError) as caught:
        call(*arguments, **more)
    failure = errors.read_failure(caught.value)
    return failure.reason, failure.message


def new() -> tuple[str, str]:
    """A name and a secret that no other test has."""
    return next(_names), secrets.token_hex(32)


def test_what_is_listed_of_a_node_takes_it_not_over(peer: Peer) -> None:
    """Anybody with a join token may know its name and its incarnation."""
    name, secret = new()
    node = peer.join(name, secret=secret)
    for stranger in (
        {"secret": secrets.token_hex(32), "replaced_incarnation": node.incarnation},
        {"secret": secrets.token_hex(32), "incarnation": node.incarnation},
        {"replaced_incarnation": node.incarnation},
        {"incarnation": node.incarnation},
    ):
        reason, message = refused(peer.join, name, **stranger)
        assert reason == errors.NODE_ALREADY_LIVE and "secret" in message and "--node-id" in message
    peer.beat(node)


def test_an_agent_that_restarts_takes_its_own_place_at_once(peer: Peer) -> None:
    name, secret = new()
    first = peer.join(name, secret=secret)
    second = peer.join(name, secret=secret, replaced_incarnation=first.incarnation)
    peer.beat(second)
    assert refused(peer.beat, first)[0] == errors.CREDENTIAL_INVALID


def test_a_node_stays_known_when_its_master_restarts(tmp_path: Path) -> None:
    master, (name, secret) = SecureMaster(tmp_path), new()
    with master.serving(), master.channel() as channel:
        node = Peer(master, channel).join(name, secret=secret)
    with master.serving(), master.channel() as channel:
        peer = Peer(master, channel)
        reason, _ = refused(peer.join, name, secret=secrets.token_hex(32), replaced_incarnation=node.incarnation)
        assert reason == errors.NODE_ALREADY_LIVE
        peer.beat(peer.join(name, secret=secret, incarnation=node.incarnation))
    assert not [path for path in master.state.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]


def test_the_credential_of_a_lost_node_is_good_for_nothing(peer: Peer, client: Client) -> None:
    name, secret = new()
    node = peer.join(name, secret=secret)
    wait_until(lambda: name not in {one.node_id for one in client.list_nodes()}, "the silent node is lost")
    for call in (peer.beat, lambda node: peer.push(node, 1), lambda node: peer.fetch(node, "sha256")):
        assert refused(call, node)[0] in (errors.CREDENTIAL_INVALID, errors.CLIENT_TOKEN_INVALID)
    peer.beat(peer.join(name, secret=secret))


def test_a_node_reaches_only_the_steps_that_it_was_offered(peer: Peer, client: Client, master: SecureMaster) -> None:
    job = client.submit(write_job(master.data / "offered"))
    (step,) = client.get(job.job_id).steps
    digest = client.document(job.job_id)["steps"][0]["code_digest"]
    stranger, guessed = peer.join(next(_names)), agent_service_pb2.HeldStep(step_id=step.step_id, identity=1)
    for call in (
        lambda: peer.push(stranger, step.step_id, b"not mine"),
        lambda: peer.fetch(stranger, digest),
        lambda: peer.push(peer.join(next(_names), held_steps=[guessed]), step.step_id),
        lambda: peer.keep(stranger, step.step_id),
        lambda: peer.keep(stranger, step.step_id, model="theirs"),
        lambda: peer.agents.ListModels(
            run_files_pb2.ListModelsRequest(run=run_files_pb2.RunOfScript(step_id=step.step_id)),
            metadata=stranger.metadata,
            timeout=CALL_S,
        ),
        lambda: peer.agents.FindData(
            run_files_pb2.FindDataRequest(run=run_files_pb2.RunOfScript(step_id=step.step_id), name="any"),
            metadata=stranger.metadata,
            timeout=CALL_S,
        ),
        lambda: peer.agents.ListDatastores(
            run_files_pb2.ListDatastoresRequest(run=run_files_pb2.RunOfScript(step_id=step.step_id)),
            metadata=stranger.metadata,
            timeout=CALL_S,
        ),
        lambda: peer.logged(stranger, step.step_id),
        lambda: peer.logged(stranger, step.step_id, of_job=True),
    ):
        assert refused(call)[0] == errors.STEP_NOT_OFFERED
    worker = peer.join(next(_names))
    stream = peer.work(worker)
    spec: work_pb2.StepSpec | None = None
    for response in stream:
        peer.beat(worker)
        if response.steps:
            spec = response.steps[0]
            break
    assert spec is not None and spec.step_id == step.step_id
    assert peer.fetch(worker, digest)
    peer.push(worker, step.step_id, b"mine")
    message = run_files_pb2.KeepFilesRequest
    for name in ("../out", "/etc/out", "a//b", "a/..", "\0", "a" * 300, "a.windrow-partial"):
        assert refused(peer.keep, worker, step.step_id, message(name=name, chunk=b"x"))[0] == errors.REQUEST_INVALID
        assert refused(peer.keep, worker, step.step_id, message(name=name), model="m")[0] == errors.REQUEST_INVALID
    assert refused(peer.keep, worker, step.step_id, message(chunk=b"of no file"))[0] == errors.REQUEST_INVALID
    two = (message(name="a", chunk=b"1"), message(name="b", chunk=b"2"))
    assert refused(peer.keep, worker, step.step_id, *two, model="m")[0] == errors.REQUEST_INVALID
    assert refused(peer.keep, worker, step.step_id, two[0], model="no name")[0] == errors.ASSET_INVALID
    assert not list(client.registry.list("model")) and not list((master.data / ".models").glob("*"))
    peer.keep(worker, step.step_id, message(name="kept/a", chunk=b"1"), message(chunk=b"2"))
    peer.keep(worker, step.step_id, two[0], model="m")
    assert [model.version for model in client.registry.list("model")] == ["1"]
    logs = list(client.logs(job.job_id))
    assert [path for path, _ in logs if path.endswith("/user/files/kept/a")]
    assert [path for path, _ in logs if "stdout" in path] and b"not mine" not in b"".join(
        itertools.chain.from_iterable(client.read_log(job.job_id, path) for path, _ in logs)
    )
    client.tag(job.job_id, {"of": "the job"})
    client.tag(job.job_id, {"of": "the step"}, step=step.name)
    assert b'"the step"' in peer.logged(worker, step.step_id).replace(b'""', b'"')
    assert b'"the job"' in peer.logged(worker, step.step_id, of_job=True).replace(b'""', b'"')
    # After a restart of the master, the identity of a step proves that a master has offered it.
    held = agent_service_pb2.HeldStep(step_id=spec.step_id, identity=spec.identity)
    peer.push(peer.join(next(_names), held_steps=[held]), step.step_id)
    client.cancel(job.job_id)
    stream.cancel()


def test_a_connected_node_is_removed_by_force_only(peer: Peer, client: Client) -> None:
    name, secret = new()
    node = peer.join(name, secret=secret)
    stream = peer.work(node)
    wait_until(
        lambda: name in {one.node_id for one in client.list_nodes() if one.state == "ready"}, "the node is connected"
    )
    with pytest.raises(Exception, match=f"windrow node remove {name} --force"):
        client.remove_node(name)
    peer.beat(node)
    client.remove_node(name, force=True)
    list(stream)  # until it has ended
    assert refused(peer.beat, node)[0] == errors.CREDENTIAL_INVALID
    assert refused(peer.push, node, 1)[0] == errors.CREDENTIAL_INVALID
    assert name not in {one.node_id for one in client.list_nodes()}


def test_a_node_whose_join_token_was_revoked_stays_until_it_is_removed(peer: Peer, client: Client) -> None:
    (name, secret), token = new(), client.tokens.create_join(f"rack-{next(_names)}")
    node = peer.join(name, secret=secret, token=token[1])
    client.tokens.revoke(token[0].name)
    peer.beat(peer.join(name, secret=secret, token=token[1], incarnation=node.incarnation))
    for other in ({"secret": secrets.token_hex(32)}, {"secret": secret}, {}):
        reason, message = refused(peer.join, next(_names), token=token[1], **other)
        assert reason == errors.JOIN_TOKEN_INVALID and "was revoked" in message and "--join-token-file" in message
    client.remove_node(name, force=True)
    assert refused(peer.join, name, secret=secret, token=token[1])[0] == errors.JOIN_TOKEN_INVALID
    # The secret alone, which a script of the same user may read, admits nobody.
    assert refused(peer.join, name, secret=secret, token="none")[0] == errors.JOIN_TOKEN_INVALID


def test_a_lost_node_comes_back_by_its_secret_until_it_is_removed(peer: Peer, client: Client) -> None:
    """A short break of the network must not cost a cluster the nodes that an expired token has admitted."""
    (name, secret), (token, text) = new(), client.tokens.create_join(f"rack-{next(_names)}")

    def lose() -> None:
        wait_until(lambda: name not in {one.node_id for one in client.list_nodes()}, "the silent node is lost")

    peer.join(name, secret=secret, token=text)
    client.tokens.revoke(token.name)
    lose()
    reason, _ = refused(peer.join, name, secret=secrets.token_hex(32), token=text)
    assert reason == errors.JOIN_TOKEN_INVALID
    peer.beat(peer.join(name, secret=secret, token=text))
    lose()
    client.remove_node(name)
    assert refused(peer.join, name, secret=secret, token=text)[0] == errors.JOIN_TOKEN_INVALID


def test_a_join_token_admits_as_many_nodes_as_it_says(peer: Peer, client: Client) -> None:
    (first, secret), (second, other) = new(), new()
    token, text = client.tokens.create_join(f"rack-{next(_names)}", uses=2)
    for _ in range(3):
        peer.join(first, secret=secret, token=text, incarnation="i")
    # One that is refused for another reason uses nothing up.
    assert refused(peer.join, first, secret=other, token=text)[0] == errors.NODE_ALREADY_LIVE
    peer.join(second, secret=other, token=text)
    reason, message = refused(peer.join, next(_names), secret=secrets.token_hex(32), token=text)
    assert reason == errors.JOIN_TOKEN_INVALID and "is used up" in message
    assert [one.uses_left for one in client.tokens.list() if one.name == token.name] == [0]
    peer.join(first, secret=secret, token=text, incarnation="i")


def test_a_join_token_that_has_expired_admits_nobody_new(peer: Peer, client: Client) -> None:
    name, secret = new()
    _, text = client.tokens.create_join(f"rack-{next(_names)}", expires=timedelta(seconds=1))
    node = None

    def expired() -> bool:
        nonlocal node
        try:
            node = peer.join(name, secret=secret, token=text)
        except grpc.RpcError:
            return True
        return "has expired" in str(_refusal(peer, text))

    wait_until(expired, "the token has expired")
    if node is not None:
        peer.beat(peer.join(name, secret=secret, token=text, incarnation=node.incarnation))


def _refusal(peer: Peer, token: str) -> str:
    try:
        peer.join(next(_names), token=token)
    except grpc.RpcError as error:
        return errors.read_failure(error).message
    return ""


def test_nodes_are_listed_without_their_secrets() -> None:
    fields = {field.name for field in node_pb2.Node.DESCRIPTOR.fields}
    assert not [name for name in fields if "secret" in name or "credential" in name]
