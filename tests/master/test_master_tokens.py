"""Named tokens: what each role and project allows, and when a token begins and ceases to be good."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from served_tls import SecureMaster, wait_until, windrow_of, write_job
from windrow import Client
from windrow.errors import NotFound, RequestRefused, WindrowError
from windrow.rpc import errors
from windrow.rpc.contexts import Access
from windrow.rpc.v1 import (
    agent_service_pb2,
    artifact_service_pb2,
    asset_service_pb2,
    fleet_service_pb2,
    job_service_pb2,
    job_service_pb2_grpc,
    queue_service_pb2,
    token_service_pb2,
)
from windrow.spec.effective.job import EffectiveJob
from windrow_master.identity.needs import NEEDS, Who
from windrow_master.store.records import Role

CALL_S = 90.0
ROLES = ("view", "submit", "operate", "admin")


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureMaster]:
    with SecureMaster(tmp_path_factory.mktemp("master")).serving() as serving:
        yield serving


@pytest.fixture(scope="module")
def tokens(master: SecureMaster) -> dict[str, str]:
    """One of each role, and one of each role but admin for the project vision."""
    with admin(master) as client:
        made = {role: client.tokens.create(role, role)[1] for role in ROLES}
        for role in ROLES[:-1]:
            made[f"vision-{role}"] = client.tokens.create(f"vision-{role}", role, project="vision")[1]
    return made


def admin(master: SecureMaster) -> Client:
    return Client(access=master.access)


def client_of(master: SecureMaster, token: str) -> Client:
    return Client(access=Access(master.address, master.ca, token))


def submit(client: Client, master: SecureMaster) -> Any:
    """A job that waits for nodes, of which there are none."""
    return client.submit(write_job(master.data / "job"))


def reason_of(master: SecureMaster, token: str, method: str) -> tuple[str, str]:
    """How an empty call ends: its reason, or its code, and its message; "" if it goes well."""
    with master.channel() as channel:
        # Every method takes a stream of requests as it takes one.
        call = channel.stream_stream(method, request_serializer=bytes, response_deserializer=bytes)
        try:
            next(iter(call(iter([b""]), metadata=[("authorization", f"Bearer {token}")], timeout=CALL_S)), None)
        except grpc.RpcError as error:
            failure = errors.read_failure(error)
            return failure.reason or failure.code.name, failure.message
    return "", ""


CLIENTS = sorted(method for method, need in NEEDS.items() if need.who in (Who.CLIENT, Who.CLIENT_OR_NODE))


def every_method() -> dict[str, bool]:
    """The methods that the protocol has, and the standard ones that a master serves: whether they stream."""
    modules = (
        *(agent_service_pb2, artifact_service_pb2, asset_service_pb2, fleet_service_pb2, job_service_pb2),
        *(queue_service_pb2, token_service_pb2),
    )
    found = {
        f"/{service.full_name}/{method.name}": method.client_streaming or method.server_streaming
        for module in modules
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    health = {f"/grpc.health.v1.Health/{name}": False for name in ("Check", "List", "Watch")}
    return found | health | {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": True}


def test_every_call_has_its_needs_and_those_of_clients_that_last_end_with_their_token() -> None:
    streams = every_method()
    assert NEEDS.keys() == streams.keys()
    assert {method for method in CLIENTS if streams[method]} == {method for method in CLIENTS if NEEDS[method].lasts}


@pytest.mark.parametrize("method", CLIENTS)
def test_a_role_may_call_what_needs_it_or_less(master: SecureMaster, tokens: dict[str, str], method: str) -> None:
    need = NEEDS[method]
    for name, token in tokens.items():
        role = Role[name.removeprefix("vision-").upper()]
        reason, message = reason_of(master, token, method)
        if role < need.role:
            assert reason == errors.ROLE_MISSING, name
            words = (
                f"needs the role {need.role.name.lower()}",
                repr(name),
                f"has the role {role.name.lower()}",
                "admin",
            )
            assert all(word in message for word in words), message
        elif need.all_projects and name.startswith("vision-"):
            assert reason == errors.PROJECT_MISSING, name
            assert "for all projects" in message and "vision" in message
        else:
            assert reason not in (errors.ROLE_MISSING, errors.PROJECT_MISSING, errors.CLIENT_TOKEN_INVALID), name


@pytest.mark.parametrize("method", [method for method, need in NEEDS.items() if need.who in (Who.NODE, Who.JOINING)])
def test_no_client_is_a_node(master: SecureMaster, tokens: dict[str, str], method: str) -> None:
    assert reason_of(master, tokens["admin"], method)[0] in (errors.CREDENTIAL_INVALID, errors.JOIN_TOKEN_INVALID)


def test_a_project_is_all_that_its_token_sees_and_changes(master: SecureMaster, tokens: dict[str, str]) -> None:
    with client_of(master, tokens["vision-submit"]) as vision, client_of(master, tokens["submit"]) as other:
        mine, theirs = submit(vision, master), submit(other, master)
        assert (mine.project, mine.submitter) == ("vision", "vision-submit")
        assert (theirs.project, theirs.submitter) == ("default", "submit")
        assert mine.to_dict()["project"] == "vision" and mine.to_dict()["submitter"] == "vision-submit"
        assert {job.project for job in vision.list_jobs()} == {"vision"}
        assert {job.project for job in other.list_jobs()} >= {"vision", "default"}
        for ask in (
            vision.get,
            vision.cancel,
            vision.retry,
            vision.delete,
            vision.explain,
            lambda job: vision.tag(job, {"a": "b"}),
            lambda job: list(vision.logs(job)),
            lambda job: next(vision.progress(job)),
            lambda job: list(vision.mini_batches(job)),
            vision.document,
            vision.report,
            lambda job: list(vision.read_log(job, "work/a.log")),
            lambda job: list(vision.open_rows(job).read()),
        ):
            with pytest.raises(WindrowError, match=r"no job named .* project vision only"):
                ask(theirs.job_id)
        # Names belong to all projects: what is told of a taken one is the same, whoever has it.
        told = {}
        for taken in (mine, theirs):
            with pytest.raises(
                RequestRefused, match="is taken: a job of this master has it, and all projects"
            ) as caught:
                vision.submit(write_job(master.data / "job"), name=taken.job_id)
            told[taken.project] = str(caught.value).replace(taken.job_id, "")
        assert told["vision"] == told["default"]
        vision.tag(mine.job_id, {"a": "b"}, properties={"c": None})
        assert [(tag.name, tag.value, tag.is_property) for tag in vision.tags(mine.job_id)] == [
            ("a", "b", False),
            ("c", None, True),
        ]
        assert other.tags(theirs.job_id) == []
        assert other.get(theirs.job_id).state == "running"
        assert other.cancel(theirs.job_id).state.ended
        effective = EffectiveJob.from_json(json.dumps(vision.document(mine.job_id)).encode())
        takes_over = effective._replace(
            steps=tuple(step._replace(resume_from=theirs.job_id) for step in effective.steps)
        )
        with pytest.raises(WindrowError, match="to be taken over, in the project vision"):
            vision.submit_effective(takes_over)
        assert vision.cancel(mine.job_id).state.ended
        old = {one.job_id for one in vision.prune(keep_last=0, dry_run=True)}
        assert mine.job_id in old and theirs.job_id not in old
        assert theirs.job_id in {one.job_id for one in other.prune(keep_last=0, dry_run=True)}


def test_a_token_works_and_ceases_to_work_at_once(master: SecureMaster) -> None:
    with admin(master) as client:
        _, secret = client.tokens.create("short", "view")
        with client_of(master, secret) as holder:
            assert holder.master().incarnation == 1
            client.tokens.revoke("short")
            with pytest.raises(RequestRefused, match=r"'short' was revoked.*windrow context add"):
                holder.master()
        with pytest.raises(NotFound, match="windrow token list"):
            client.tokens.revoke("short")
        assert "short" not in {token.name for token in client.tokens.list()}
        # The name is free again, and the revoked secret stays what it is.
        client.tokens.create("short", "view")
        with client_of(master, secret) as holder, pytest.raises(RequestRefused, match="was revoked"):
            holder.master()
        client.tokens.revoke("short")


@pytest.mark.parametrize("how", ["revoked", "expired"])
def test_calls_that_last_end_with_their_token(master: SecureMaster, tokens: dict[str, str], how: str) -> None:
    with client_of(master, tokens["submit"]) as client:
        job = submit(client, master)
    lifetime = timedelta(seconds=5) if how == "expired" else None
    with admin(master) as client:
        _, secret = client.tokens.create(f"watcher-{how}", "view", expires=lifetime)
        with master.channel(secret) as channel:
            jobs = job_service_pb2_grpc.JobServiceStub(channel)
            watching = jobs.WatchJob(job_service_pb2.WatchJobRequest(job_id=job.job_id), timeout=CALL_S)
            assert next(watching).job.job_id == job.job_id
            if how == "revoked":
                client.tokens.revoke(f"watcher-{how}")
            with pytest.raises(grpc.RpcError) as ended:
                for _ in watching:
                    pass
        assert ended.value.code() != grpc.StatusCode.DEADLINE_EXCEEDED  # type: ignore[attr-defined]
        client.cancel(job.job_id)


def test_a_token_is_stored_as_a_digest_and_its_last_use_is_told(tmp_path: Path) -> None:
    master = SecureMaster(tmp_path)
    with master.serving(), admin(master) as client:
        _, secret = client.tokens.create("ci", "submit", project="vision", expires=timedelta(days=30))
        (token,) = [one for one in client.tokens.list() if one.name == "ci"]
        assert token.last_use_time is None and token.expire_time is not None and token.create_time is not None
        assert (token.expire_time - token.create_time).days == 30
        with client_of(master, secret) as holder:
            holder.master()
        (token,) = [one for one in client.tokens.list() if one.name == "ci"]
        assert token.last_use_time is not None
    assert not [path for path in master.state.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    assert secret not in master.log()
    with master.serving(), admin(master) as client, client_of(master, secret) as holder:
        (again,) = [one for one in client.tokens.list() if one.name == "ci"]
        assert again == token
        holder.master()


def test_the_tokens_of_files_are_imported_and_their_files_followed(tmp_path: Path) -> None:
    """Clusters of today keep working; `windrow setup --new-tokens` needs no restart."""
    from windrow_master.setup.__main__ import set_up

    master = SecureMaster(tmp_path)
    with master.serving(), admin(master) as client:
        assert [(one.name, one.kind, one.role) for one in client.tokens.list()] == [
            ("setup", "client", "admin"),
            ("setup-join", "join", ""),
        ]
        before = master.token("client-token")
        set_up(master.keys, ["localhost"], 90, None, new_tokens=True)
        wait_until(lambda: "was read again" in master.log(), "the files were read again")
        assert master.token("client-token") != before
        with admin(master) as renewed:
            wait_until(lambda: _works(renewed), "the new token works")
            assert len(list(renewed.tokens.list())) == 2
        wait_until(lambda: not _works(client), "the old token has ended")


def _works(client: Client) -> bool:
    try:
        client.master()
    except RequestRefused:
        return False
    return True


def test_a_revoked_token_is_not_brought_back_by_its_file(tmp_path: Path) -> None:
    master = SecureMaster(tmp_path)
    with master.serving(), admin(master) as client:
        with pytest.raises(RequestRefused, match="the only token of an admin"):
            client.tokens.revoke("setup")
        _, secret = client.tokens.create("boss", "admin")
        client.tokens.revoke("setup")
    with master.serving(), client_of(master, secret) as boss:
        assert [one.name for one in boss.tokens.list()] == ["setup-join", "boss"]
        with admin(master) as client, pytest.raises(RequestRefused, match="'setup' was revoked"):
            client.master()
        assert "windrow setup --new-tokens" in master.log()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"name": "no name", "role": "view"}, "not a valid token name"),
        ({"name": "x", "role": "view", "project": "a/b"}, "name of a project"),
        ({"name": "x", "role": "admin", "project": "vision"}, "for all projects"),
        ({"name": "setup", "role": "view"}, "windrow token revoke setup"),
        ({"name": "x", "role": "view", "expires": timedelta(days=40_000)}, "a hundred years"),
        ({"name": "x", "role": "view", "expires": timedelta(0)}, "at least a second"),
    ],
)
def test_tokens_that_cannot_be_made(master: SecureMaster, arguments: dict[str, Any], words: str) -> None:
    with admin(master) as client, pytest.raises(RequestRefused, match=words):
        client.tokens.create(**arguments)


def test_one_request_makes_one_token_however_often_it_arrives(master: SecureMaster) -> None:
    from windrow.rpc.v1 import token_service_pb2_grpc

    request = token_service_pb2.CreateTokenRequest(name="twice", kind=1, role=1, digest=os.urandom(32))
    with master.channel(master.token("client-token")) as channel:
        stub = token_service_pb2_grpc.TokenServiceStub(channel)
        assert stub.CreateToken(request, timeout=CALL_S) == stub.CreateToken(request, timeout=CALL_S)
    with admin(master) as client:
        client.tokens.revoke("twice")


def test_the_commands(master: SecureMaster, tokens: dict[str, str]) -> None:
    own = master.token("client-token")
    made = windrow_of(master, "token", "create", "nightly", "--role", "submit", "--project", "p", token=own)
    assert made.returncode == 0, made.stderr
    secret = made.stdout.strip()
    assert len(secret) == 64 and "only time" in made.stderr and secret not in made.stderr
    listed = windrow_of(master, "token", "list", token=own).stdout
    assert "nightly" in listed and secret not in listed
    refused = windrow_of(master, "token", "list", token=secret)
    assert refused.returncode == 2
    assert "needs the role admin" in refused.stderr and "'nightly' has the role submit" in refused.stderr
    with client_of(master, secret) as client:
        job = submit(client, master)
    shown = windrow_of(master, "job", "list", "--columns", "job,project,submitter", token=secret).stdout
    assert shown.split() == ["JOB", "PROJECT", "SUBMITTER", job.job_id, "p", "nightly"]
    assert "by nightly" in windrow_of(master, "job", "show", job.job_id, token=secret).stdout
    drained = windrow_of(master, "node", "drain", "n", token=secret)
    assert drained.returncode == 2 and "needs the role operate" in drained.stderr
    assert windrow_of(master, "job", "cancel", job.job_id, token=secret).returncode == 0
    report = master.data / "report.html"
    assert windrow_of(master, "job", "report", job.job_id, "--to", str(report), token=secret).returncode == 0
    assert "by nightly for p" in report.read_text()
    joined = windrow_of(master, "token", "create", "rack", "--join", "--uses", "2", "--format", "json", token=own)
    assert json.loads(joined.stdout)["uses_left"] == 2 and len(json.loads(joined.stdout)["token"]) == 64
    for name in ("rack", "nightly"):
        revoked = windrow_of(master, "token", "revoke", name, token=own)
        assert revoked.returncode == 0 and name in revoked.stdout
    for arguments, words in (
        (["create", "x"], "either --role"),
        (["create", "x", "--role", "view", "--uses", "2"], "--uses belongs to --join"),
        (["create", "x", "--join", "--project", "p"], "--project belongs to --role"),
        (["create", "x", "--join", "--expires", "soon"], "not a time"),
    ):
        wrong = windrow_of(master, "token", *arguments, token=own)
        assert wrong.returncode == 2 and words in wrong.stderr
