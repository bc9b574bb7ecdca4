"""Commands that only ask about runs on this machine: the master that answers starts before the command has loaded."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest
import windrow
from client_workspace import Workspace, wait_until
from windrow.cli.lines import asking
from windrow.embedded import early_session
from windrow.errors import NotFound
from windrow.rpc.v1 import agent_service_pb2, agent_service_pb2_grpc


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The state folders over which a master was begun, from a folder with two of them."""
    for name in (".windrow", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "windrow.db").touch()
    monkeypatch.chdir(tmp_path)
    for name in ("WINDROW_MASTER", "WINDROW_STATE", "WINDROW_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WINDROW_CONTEXTS", str(tmp_path / "contexts.json"))
    found: list[str] = []
    monkeypatch.setattr(early_session, "begin", found.append)
    return found


@pytest.mark.parametrize(
    ("line", "states"),
    [
        ("job list", [".windrow"]),
        ("job show last --format json", [".windrow"]),
        ("mb show last 17 --state other", ["other"]),
        ("node list --state=other", ["other"]),
        ("job list --state missing", []),
        ("job list --state", []),
        ("job list --master gpu1:8470", []),
        ("job list --mast gpu1:8470", []),
        ("job list --stat other", []),
        ("job list -h", []),
        ("job cancel last", []),
        ("run job.yml", []),
        ("job", []),
    ],
)
def test_a_master_is_begun_only_where_it_will_be_asked(begun: list[str], line: str, states: list[str]) -> None:
    asking.begin(line.split())
    assert begun == states


def test_a_master_elsewhere_is_asked_instead(begun: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    Path("contexts.json").write_text("{broken")
    asking.begin(["job", "list"])
    assert begun == [], "the command itself says what is wrong with the contexts"
    monkeypatch.setenv("WINDROW_MASTER", "gpu1:8470")
    asking.begin(["job", "list", "--state", "other"])
    assert begun == []
    monkeypatch.delenv("WINDROW_MASTER")
    monkeypatch.setenv("WINDROW_STATE", "other")
    asking.begin(["job", "list"])
    assert begun == ["other"]


def masters(folder: Path) -> list[str]:
    """The command lines of processes that serve a state folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if "windrow_master" in line and str(folder) in line:
            found.append(line)
    return found


def test_a_command_that_fails_before_it_asks_leaves_no_master_behind(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    workspace.write(["a"], name="name: one")
    assert workspace.run("run", "job.yml", "--no-progress").returncode == 0
    assert "one" in workspace.run("job", "list").stdout
    assert workspace.run("job", "list", "--only", "nonsense").returncode == 2
    wait_until(lambda: not masters(workspace.folder), "no master is left")
    assert "one" in workspace.run("job", "list").stdout, "the folder is free"


def test_a_master_that_only_answers_takes_changes_and_no_agents(tmp_path: Path) -> None:
    """It loads the core when a client changes something."""
    workspace = Workspace(tmp_path)
    workspace.write(["a"], name="name: one")
    assert workspace.run("run", "job.yml", "--no-progress").returncode == 0
    with windrow.Client(state=workspace.state) as client:
        (job,) = client.list_jobs()
        assert not list(client.list_nodes())
        assert [reason.code for reason in client.explain(job.job_id)] == ["COMPLETED"]
        with pytest.raises(NotFound):
            client.remove_node("gone")
        assert [one.job_id for one in client.list_jobs()] == [job.job_id]
        agents = agent_service_pb2_grpc.AgentServiceStub(client.connection.channel)
        with pytest.raises(grpc.RpcError) as refused:
            agents.Register(agent_service_pb2.RegisterRequest(node_id="n", node_incarnation="1"))
        assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED
        assert client.delete(job.job_id).deleted
        assert not list(client.list_jobs())
