"""Commands that ask about a state folder start its private master before their own imports, and leave none behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from client_workspace import Workspace
from windrow.cli.early_start import asked_folder
from windrow.common.state_mark import STATE_MARK
from windrow.embedded import early_session
from windrow.rpc.contexts import Access, Contexts
from windrow.sdk.client import Client


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two state folders, and a user without contexts."""
    for name in (".windrow", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / STATE_MARK).touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WINDROW_CONTEXTS", str(tmp_path / "contexts.json"))
    for name in ("WINDROW_MASTER", "WINDROW_STATE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ("job list", ".windrow"),
        ("job show last --state other", "other"),
        ("node list --state=other --format json", "other"),
        ("top --once", ".windrow"),
        ("mb show last:score 3", ".windrow"),
        ("job list --state missing", None),
        ("job list --master 127.0.0.1:1", None),
        ("job list --mast=127.0.0.1:1", None),
        ("job list --help", None),
        ("job list -h", None),
        ("job list --state", ".windrow"),
        ("job create job.yml", None),
        ("job cancel last", None),
        ("job", None),
        ("run job.yml", None),
        ("", None),
    ],
)
def test_which_folder_a_command_asks(folder: Path, line: str, asked: str | None) -> None:
    assert asked_folder(line.split()) == asked


def test_a_context_in_use_or_a_variable_leads_elsewhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Contexts().add("prod", Access("127.0.0.1:1"))
    assert asked_folder(["job", "list"]) is None
    assert asked_folder(["job", "list", "--state", "other"]) == "other"
    monkeypatch.setenv("WINDROW_STATE", "other")
    assert asked_folder(["job", "list"]) == "other"
    monkeypatch.setenv("WINDROW_MASTER", "127.0.0.1:1")
    assert asked_folder(["job", "list"]) is None


def test_a_command_that_asks_nothing_after_all_leaves_no_master(workspace: Workspace) -> None:
    workspace.write(["1"])
    assert workspace.run("run", "job.yml").returncode == 0
    wrong = workspace.run("job", "list", "--no-such-option")
    assert wrong.returncode == 2 and "No such option" in wrong.stderr
    listed = workspace.run("job", "list")
    assert listed.returncode == 0 and "completed" in listed.stdout
    assert not workspace.processes()


def test_a_client_takes_the_master_that_was_started_early(workspace: Workspace) -> None:
    workspace.write(["1"])
    assert workspace.run("run", "job.yml").returncode == 0
    early_session.begin(str(workspace.state))
    begun = workspace.pid_of("windrow_master")
    with Client(state=workspace.state) as client:
        assert [job.state.value for job in client.list_jobs()] == ["completed"]
        assert begun == workspace.pid_of("windrow_master")
        early_session.close()  # nothing is left to close
        assert client.master().embedded
    early_session.begin(str(workspace.state))
    early_session.close()
    assert not workspace.processes()
