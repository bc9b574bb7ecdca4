"""Queues of a served master: who may set and see them, what the commands say, and that all of it outlives a restart."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest
from documented_commands import ROOT, SHARE, blocks_of, type_line
from served_tls import DEADLINE_S, SecureMaster, wait_until, windrow_of, write_job
from windrow import Client
from windrow.common.queue_settings import Bounds, QueueSettings
from windrow.errors import RequestRefused
from windrow.rpc.contexts import Access
from windrow.rpc.errors import read_failure
from windrow.rpc.v1 import job_service_pb2, job_service_pb2_grpc

FILE = """\
queues:
  vision: {weight: 2, limit: 16, pools: {gpu: {limit: 4}}}
  nightly: {priority: -10}
"""


@pytest.fixture
def master(tmp_path: Path) -> Iterator[SecureMaster]:
    with SecureMaster(tmp_path).serving() as serving:
        yield serving


def done(master: SecureMaster, *arguments: str) -> str:
    """What a command of the admin prints."""
    ended = windrow_of(master, *arguments, token=master.token("client-token"))
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def refused(master: SecureMaster, *arguments: str, token: str = "") -> str:
    """Why a command fails."""
    ended = windrow_of(master, *arguments, token=token or master.token("client-token"))
    assert ended.returncode == 2 and not ended.stdout, ended
    return ended.stderr


def client_of(master: SecureMaster, token: str) -> Client:
    return Client(access=Access(master.address, master.ca, token))


def test_settings_are_set_shown_applied_and_outlive_a_restart(tmp_path: Path) -> None:
    master = SecureMaster(tmp_path)
    with master.serving():
        assert "No project has an open job or settings" in done(master, "queue", "list")
        told = done(master, "queue", "set", "vision", "--weight", "3", "--limit", "8")
        assert told == "vision: weight 3, priority 0, quota 0, limit 8\nRevision 1.\n"
        assert "Nothing has changed; revision 1." in done(master, "queue", "set", "vision", "--weight", "3")
        done(master, "queue", "set", "vision", "--pool", "gpu", "--limit", "2")
        done(master, "queue", "set", "vision", "--limit", "none")
        shown = done(master, "queue", "show", "vision")
        assert "20 jobs at a time, and what would get a worker" in shown
        assert "in pool gpu" in shown and "quota 0, limit 2" in shown and "by setup, revision 3" in shown
        why = refused(master, "queue", "set", "vision", "--quota", "1")
        assert "1 slot, and its 0 nodes that are known now have 0" in why and "--overcommit" in why
        done(master, "queue", "set", "vision", "--quota", "1", "--overcommit")
        (master.data / "queues.yml").write_text(FILE)
        would = done(master, "queue", "apply", "queues.yml", "--dry-run").splitlines()
        assert would == [
            "nightly: weight 1, priority 0, quota 0, no limit -> weight 1, priority -10, quota 0, no limit",
            "vision: weight 3, priority 0, quota 1, no limit, in pool gpu: quota 0, limit 2 -> "
            "weight 2, priority 0, quota 0, limit 16, in pool gpu: quota 0, limit 4",
        ]
        assert "Revision 5." in done(master, "queue", "apply", "queues.yml")
        assert done(master, "queue", "apply", "queues.yml", "--dry-run") == "Nothing would change.\n"
        listed = done(master, "queue", "list")
    with master.serving():
        assert done(master, "queue", "list") == listed
        found = json.loads(done(master, "queue", "show", "vision", "--format", "json"))
    assert found["settings"] == {
        "weight": 2.0,
        "priority": 0,
        "quota": 0.0,
        "limit": 16.0,
        "pools": {"gpu": {"quota": 0.0, "limit": 4.0}},
        "admitted_jobs": 20,
    }
    lines = [json.loads(line) for line in (master.state / "audit.jsonl").read_text().splitlines()]
    sets = [line for line in lines if line["call"] == "QueueService/SetQueues"]
    assert [(line["who"], line["on"]["revision"]) for line in sets] == [("setup", at) for at in (1, 1, 2, 3, 4, 5)]
    assert "weight: 3" in sets[0]["on"]["queues"]["vision"] and sets[-1]["on"]["only"]


def test_two_operators_do_not_undo_each_others_work(master: SecureMaster) -> None:
    with client_of(master, master.token("client-token")) as client:
        before = client.queues.list().revision
        client.queues.set({"vision": QueueSettings(weight=2)}, revision=before)
        with pytest.raises(RequestRefused, match="at revision 1, and this change was made for 0") as caught:
            client.queues.set({"vision": QueueSettings(weight=5)}, revision=before)
        assert caught.value.reason == "QUEUES_CHANGED"
        assert client.queues.get("vision").settings.weight == 2


@pytest.mark.parametrize(
    "settings",
    [
        QueueSettings(weight=0),
        QueueSettings(weight=float("nan")),
        QueueSettings(priority=1001),
        QueueSettings(cluster=Bounds(quota=-1)),
        QueueSettings(cluster=Bounds(quota=float("nan"))),
        QueueSettings(pools={"a/b": Bounds()}),
        QueueSettings(cluster=Bounds(2, 1)),
    ],
)
def test_settings_that_mean_nothing_are_refused(master: SecureMaster, settings: QueueSettings) -> None:
    with client_of(master, master.token("client-token")) as client:
        with pytest.raises(RequestRefused) as caught:
            client.queues.set({"vision": settings})
        assert caught.value.reason == "QUEUE_INVALID"
        with pytest.raises(RequestRefused, match="not a valid name of a project"):
            client.queues.set({"no team": QueueSettings()})
        assert client.queues.list() == ((), 0)


def test_a_token_of_a_project_sees_its_own_queue_and_sets_none(master: SecureMaster) -> None:
    with client_of(master, master.token("client-token")) as client:
        client.queues.set({"web": QueueSettings(weight=3)})
        _, secret = client.tokens.create("ann", "operate", project="vision")
    with client_of(master, secret) as client:
        assert [queue.name for queue in client.queues.list().queues] == ["vision"]
    assert "needs the role admin" in refused(master, "queue", "set", "vision", "--weight", "9", token=secret)


def test_jobs_have_a_project_and_a_deadline_and_what_they_are_worth_can_be_changed(master: SecureMaster) -> None:
    file = write_job(master.data / "job")
    soon = datetime.now(UTC) + timedelta(hours=12)
    name = done(
        master, "job", "create", str(file), "--project", "vision", "--deadline", "12h", "--priority", "3"
    ).split()[0]
    shown = json.loads(done(master, "job", "show", name, "--format", "json"))
    assert (shown["project"], shown["priority"], shown["weight"]) == ("vision", 3, 1)
    assert abs(datetime.fromisoformat(shown["deadline"]) - soon) < timedelta(minutes=10)
    assert name in done(master, "queue", "show", "vision")
    told = done(master, "job", "update", name, "--priority", "-2", "--weight", "4", "--deadline", "none")
    assert told == f"{name}: project vision, priority -2, weight 4.\n"
    assert "Nothing is to be changed" in refused(master, "job", "update", name)
    assert "not a time" in refused(master, "job", "update", name, "--deadline", "soon")
    with client_of(master, master.token("client-token")) as client:
        _, web = client.tokens.create("bob", "submit", project="web")
        _, vision = client.tokens.create("ann", "submit", project="vision")
    assert "no job" in refused(master, "job", "update", name, "--priority", "1", token=web)
    why = refused(master, "job", "update", name, "--project", "web", token=vision)
    assert "is for the project vision: its jobs cannot belong to web" in why
    assert "cannot belong to web" in refused(master, "job", "create", str(file), "--project", "web", token=vision)
    assert "project web" in done(master, "job", "update", name, "--project", "web")
    assert "web" in windrow_of(master, "job", "show", name, token=web).stdout
    done(master, "job", "cancel", name, "--wait")
    assert "has ended" in refused(master, "job", "update", name, "--priority", "1")


@contextmanager
def agent_of(master: SecureMaster, folder: Path, *options: str) -> Iterator[None]:
    """While an agent is connected."""
    keys = master.keys / "agent"
    files = (f"--ca-file={keys / 'ca.pem'}", f"--join-token-file={keys / 'join-token'}", f"--folder={folder}")
    windrow = [sys.executable, "-c", "from windrow.cli import main; main()"]
    command = [*windrow, "agent", f"--master={master.address}", *files, *options]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as agent:
        try:
            with client_of(master, master.token("client-token")) as client:
                wait_until(
                    lambda: [node.node_id for node in client.list_nodes() if node.state == "ready"], "it is there"
                )
            yield
        finally:
            agent.terminate()


def test_the_commands_of_the_page(master: SecureMaster, tmp_path: Path) -> None:
    file = write_job(tmp_path / "project")
    # It waits for a pool that nobody is in.
    file.write_text(file.read_text().replace("type: parallel\n", "type: parallel\n    compute: cpu\n"))
    (written,) = re.findall(r"```yaml\n(queues:\n.*?)```", (ROOT / SHARE).read_text(), re.DOTALL)
    (file.parent / "queues.yml").write_text(written)
    done(master, "job", "create", str(file), "--name", "nightly", "--project", "vision")
    token = tmp_path / "token"
    token.write_text(master.token("client-token"))
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "WINDROW_MASTER": master.address,
        "WINDROW_CA_FILE": str(master.keys / "client" / "ca.pem"),
        "WINDROW_TOKEN_FILE": str(token),
    }
    with agent_of(master, tmp_path / "agent", "--slots=6", "--pool=gpu"):
        for line in [line for block in blocks_of(SHARE) for line in block.lines]:
            ended = type_line(line, file.parent, environment, DEADLINE_S)
            assert ended.returncode == 0, (line, ended.stderr)
    with client_of(master, master.token("client-token")) as client:
        assert client.queues.get("vision").settings == QueueSettings(2, 0, Bounds(1), {"gpu": Bounds(limit=2)})
        assert client.queues.get("nightly").settings.priority == -10
        assert (client.get("nightly").project, client.get("nightly").priority) == ("web", -1)


def test_everybody_sees_where_they_stand(master: SecureMaster, tmp_path: Path) -> None:
    file = write_job(tmp_path / "project")
    for number in range(2000):
        (file.parent / "data" / f"f{number}").write_text("")
    napping = "import time\ndef run(mini_batch):\n    time.sleep(0.1)\n    return mini_batch\n"
    (file.parent / "code" / "entry.py").write_text(napping)
    with client_of(master, master.token("client-token")) as client:
        _, token = client.tokens.create("bob", "submit", project="web")
        client.queues.set({"vision": QueueSettings(priority=5)})
        with agent_of(master, tmp_path / "agent", "--slots=2", "--node-id=n1"):
            for name, project in (("train", "vision"), ("score", "web"), ("late", "web")):
                priority = "-3" if name == "late" else "0"
                done(master, "job", "create", str(file), "--name", name, "--project", project, "--priority", priority)

            def forecast() -> bool:
                jobs = {job.job_id: job for job in client.list_jobs()}
                ahead = [jobs[name].forecast for name in ("train", "score", "late")]
                # A job that has just come is not in the last look, which is kept for a second.
                return (jobs["score"].place, jobs["late"].place) == (1, 2) and all(
                    one is not None and (one.end_s if at == 0 else one.begin_s) for at, one in enumerate(ahead[:2])
                )

            wait_until(forecast, "train is measured, and the others wait")
            wait_until(lambda: client.queues.explain("vision").held_slots == 2, "both workers are there")
            job = client.get("train")
            assert job.place == 0 and job.forecast is not None and job.forecast.end_s is not None
            found = client.queues.explain("web")
            assert (found.total_slots, found.held_slots, found.fair_slots, found.wanted_slots) == (2, 0, 0, 2)
            assert [(one.project, one.held_slots, one.fair_slots) for one in found.others] == [("vision", 2, 2)]
            assert [(one.job_id, one.place) for one in found.waiting] == [("score", 1), ("late", 2)]
            assert {one.setting for one in found.changes} == {"priority", "quota"}
            assert [(one.project, one.job_id, one.fair_slots) for one in found.ends] == [("vision", "train", 2)]
            told = done(master, "queue", "explain", "web")
            assert told.startswith("web has 0 slots of 2, is entitled to 0, and could use 2.")
            assert "vision has 2 slots, and is entitled to 2" in told
            assert "score: number 1 in line, likely to start in about" in told
            assert "the end of train/work of vision, likely in about" in told
            assert "windrow queue set web --priority 6: entitled to 2" in told
            assert (
                found.to_dict().keys() == json.loads(done(master, "queue", "explain", "web", "--format", "json")).keys()
            )
            assert "It is number 1 in line, likely to start in about" in done(master, "job", "explain", "score")
            assert "number 2 in line" in done(master, "job", "show", "late")
            assert "likely to end in about" in done(master, "job", "show", "train")
            done(master, "job", "update", "train", "--deadline", "1s")
            late = "late; more workers cannot change that"
            wait_until(lambda: late in done(master, "job", "show", "train"), "the deadline has passed")
            (node,) = client.list_nodes()
            assert [(user.project, user.job_id, user.step, user.workers) for user in node.users] == [
                ("vision", "train", "work", 2)
            ]
            assert "train 2" in done(master, "node", "list")
            # Whoever sees one project is told what others have, and not what they run.
            with client_of(master, token) as bob:
                (seen,) = bob.list_nodes()
                assert [(user.project, user.job_id, user.step) for user in seen.users] == [("vision", "", "")]
                assert [(one.job_id, one.step) for one in bob.queues.explain("web").ends] == [("", "")]
                with pytest.raises(RequestRefused, match="is for the project web, and does not see vision"):
                    bob.queues.explain("vision")
                assert "vision 2" in windrow_of(master, "node", "list", token=token).stdout
            for name in ("train", "score", "late"):
                done(master, "job", "cancel", name, "--wait")
            assert client.get("train").forecast is None and client.get("train").place == 0
            assert "None of its jobs has a mini-batch that could run now." in done(master, "queue", "explain", "web")


def test_each_step_of_a_job_says_when_it_begins_and_ends(master: SecureMaster, tmp_path: Path) -> None:
    file = write_job(tmp_path / "project")
    for number in range(2000):
        (file.parent / "data" / f"f{number}").write_text("")
    napping = "import time\ndef run(mini_batch):\n    time.sleep(0.1)\n    return mini_batch\n"
    (file.parent / "code" / "entry.py").write_text(napping)
    after = "  after:\n    type: command\n    command: cat ${{inputs.rows}}\n"
    after += "    inputs: {rows: '${{parent.jobs.work.outputs.out}}'}\n"
    file.write_text(file.read_text() + after)
    with (
        client_of(master, master.token("client-token")) as client,
        agent_of(master, tmp_path / "agent", "--slots=2", "--node-id=n1"),
    ):
        done(master, "job", "create", str(file), "--name", "two", "--project", "vision")

        def known() -> bool:
            work, then = client.get("two").steps
            return None not in (work.forecast, then.forecast)

        wait_until(known, "the first step is measured")
        work, then = client.get("two").steps
        assert work.forecast is not None and then.forecast is not None
        assert work.forecast.begin_s == 0 and work.forecast.end_s == then.forecast.begin_s
        assert then.forecast.end_s is None
        told = done(master, "job", "show", "two")
        assert "work: likely to end in about" in told and "after: likely to start in about" in told
        assert "It is likely to start in about" in done(master, "job", "explain", "two")
        assert [one.step for one in client.queues.explain("vision").steps] == ["work", "after"]
        told = done(master, "queue", "explain", "vision")
        assert "two/work: likely to end in about" in told and "two/after: likely to start in about" in told
        done(master, "job", "cancel", "two", "--wait")
        assert not any(step.forecast for step in client.get("two").steps)


def test_a_deadline_that_is_no_moment_is_refused(master: SecureMaster) -> None:
    token = [("authorization", f"Bearer {master.token('client-token')}")]
    with master.channel() as channel:
        stub = job_service_pb2_grpc.JobServiceStub(channel)
        for request, call in (
            (job_service_pb2.SubmitJobRequest(request_id="r"), stub.SubmitJob),
            (job_service_pb2.UpdateJobRequest(job_id="nightly"), stub.UpdateJob),
        ):
            if isinstance(request, job_service_pb2.UpdateJobRequest):
                done(master, "job", "create", str(write_job(master.data / "job")), "--name", "nightly")
            request.deadline.seconds = (1 << 63) - 1
            with pytest.raises(grpc.RpcError) as caught:
                call(request, metadata=token, timeout=DEADLINE_S)
            failure = read_failure(caught.value)
            assert failure.reason == "REQUEST_INVALID" and "not a moment" in failure.message


def test_runs_on_this_machine_have_no_queues(master: SecureMaster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDROW_STATE", str(master.data / "state"))
    assert "Nothing is to be set" in refused(master, "queue", "set", "vision")
    assert "--pool says where" in refused(master, "queue", "set", "vision", "--weight", "1", "--pool", "gpu")
    assert "not a number of slots" in refused(master, "queue", "set", "vision", "--limit", "many")
