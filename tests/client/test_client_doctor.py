"""`windrow doctor` says of this machine what is so, and of what is broken that it is."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from client_workspace import Workspace, wait_until
from windrow.common.interpreter import find_interpreter
from windrow.doctor import machine, state
from windrow.doctor.findings import FAIL, OK, WARN

SECRET = "do-not-show-me"


def examined(
    workspace: Workspace, *arguments: str, code: int = 0, **extra: str
) -> dict[tuple[str, str], dict[str, Any]]:
    """Findings by area and name."""
    contexts = str(workspace.folder / "contexts.json")
    done = workspace.run("doctor", "--format", "json", *arguments, **{"WINDROW_CONTEXTS": contexts, **extra})
    assert done.returncode == code, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert document["fit"] is (code == 0)
    assert SECRET not in done.stdout + done.stderr
    # A second finding of one name is worse than the first.
    return {(finding["area"], finding["name"]): finding for finding in document["findings"]}


def test_this_machine_is_fit_and_nothing_is_left_behind(workspace: Workspace) -> None:
    found = examined(workspace)
    assert sorted(path.name for path in workspace.folder.iterdir()) == ["code", "data"]
    assert {finding["level"] for finding in found.values()} <= {OK, WARN}
    assert f", {find_interpreter(None, os.environ)}" in found["Scripts", "python"]["seen"]
    assert found["State folder", "flock"]["level"] == OK
    assert found["State folder", "sync"]["seen"].startswith("a sync takes ")
    assert str(len(os.sched_getaffinity(0))) in found["Machine", "processors"]["seen"]
    assert found["Windrow", "conda"]["seen"].startswith("rattler 0.")
    assert "pidfd_open" in found["Machine", "kernel"]["seen"]
    groups = found["Machine", "control groups"]
    assert groups["seen"].startswith("agents that start here can limit each worker: processes") or (
        "none for agents that start here, since " in groups["seen"] and "confine-scripts.md" in groups["advice"]
    )
    users = found["Machine", "users of jobs"]
    assert "can give each job a user of its own" in users["seen"] or "none for agents that start here" in users["seen"]
    text = workspace.run("doctor")
    assert text.returncode == 0 and "Nothing fails: this machine is fit." in text.stdout


def test_a_python_that_compiles_anew_at_each_start_is_told_of(workspace: Workspace, tmp_path: Path) -> None:
    empty = str(tmp_path / "bytecode")
    finding = examined(workspace, PYTHONPYCACHEPREFIX=empty, PYTHONDONTWRITEBYTECODE="1")["Windrow", "bytecode"]
    assert finding["level"] == WARN
    assert "none for windrow, grpc, google.protobuf" in finding["seen"]
    assert "PYTHONDONTWRITEBYTECODE is set" in finding["seen"]
    # The advice helps.
    command = finding["advice"].partition(": ")[2]
    subprocess.run(command, shell=True, check=True, env={**os.environ, "PYTHONPYCACHEPREFIX": empty})
    finding = examined(workspace, PYTHONPYCACHEPREFIX=empty, PYTHONDONTWRITEBYTECODE="1")["Windrow", "bytecode"]
    assert (finding["level"], finding["advice"]) == (OK, "")


def test_what_environments_take_is_told(workspace: Workspace, tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "windrow" / "environments"
    for digest, mark in (("a" * 64, '{"bytes": 3000000000}'), ("b" * 64, '{"bytes": 21}'), ("c" * 64, "")):
        (folder / digest).mkdir(parents=True)
        if mark:
            (folder / f"{digest}.json").write_text(mark)
    found = examined(workspace, XDG_CACHE_HOME=str(tmp_path / "cache"))["Machine", "environments"]
    assert found["level"] == OK
    assert found["seen"] == f"3.0 GB: 2 environments in {folder}, and 1 build under way or broken off"
    assert "20 used last" in found["advice"] and "60 days" in found["advice"]


def test_a_state_folder_that_cannot_be_one_fails_with_what_to_do(workspace: Workspace) -> None:
    (workspace.folder / "file").write_text("")
    found = examined(workspace, "--state", "/proc/no-such", code=1)
    assert found["State folder", "folder"]["level"] == FAIL
    assert "--state DIR" in found["State folder", "folder"]["advice"]


def test_a_network_file_system_and_slow_syncs_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {
        "folder": "/x",
        "is_there": False,
        "looked_at": "/",
        "kind": "nfs4",
        "network": True,
        "free_bytes": 1 << 20,
        "disk_use": {"database": 1 << 20, "rows of jobs": 3 << 20},
        "needed_bytes": 128 << 20,
        "sqlite": "3.40.1",
        "sqlite_ok": True,
        "schema": 9,
        "schema_known": 3,
        "locked": False,
        "trials": {"flock": False, "shared_map": True, "sync_ms": [30.0, 40.0, 50.0]},
        "damage": "",
        "trouble": "",
    }
    monkeypatch.setattr(state, "ask", lambda *arguments: seen)
    levels = {finding.name: finding.level for finding in state.check("/x")}
    assert levels == {
        "folder": OK,
        "file system": FAIL,
        "room": FAIL,
        "disk use": OK,
        "flock": FAIL,
        "shared_map": OK,
        "sync": WARN,
        "database": FAIL,
    }


def test_sockets_by_which_scripts_have_programs_started_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    users = {"possible": False, "how": "the agent runs as user 1"}
    seen = {"abi": 7, "is_enough": True, "protection": "auto", "job_users": users, "sockets": ["/run/docker.sock"]}
    monkeypatch.setattr(machine, "ask", lambda *arguments: seen)
    (found,) = [one for one in machine._sandbox() if one.level == WARN]
    assert "/run/docker.sock" in found.seen and "--job-users" in found.advice
    seen["sockets"] = []
    assert [one.level for one in machine._sandbox()] == [OK, OK]


def test_the_scripts_python_is_the_one_that_is_named(workspace: Workspace) -> None:
    found = examined(workspace, "--python", "/no/python", code=1)
    assert found["Scripts", "python"]["level"] == FAIL
    bare = workspace.folder / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    found = examined(workspace, "--python", str(bare / "bin" / "python"))
    assert str(bare) in found["Scripts", "python"]["seen"]
    assert found["Scripts", "pandas"]["level"] == WARN
    assert f"{bare}/bin/python -m pip install pandas" in found["Scripts", "pandas"]["advice"]


def test_credentials_are_told_by_name_and_never_by_value(workspace: Workspace) -> None:
    found = examined(workspace, AWS_ACCESS_KEY_ID=SECRET, AZURE_STORAGE_ACCOUNT_KEY=SECRET, HOME=str(workspace.folder))
    assert found["Access", "S3"]["level"] == WARN
    assert "without AWS_SECRET_ACCESS_KEY" in found["Access", "S3"]["seen"]
    assert "AZURE_STORAGE_ACCOUNT_KEY" in found["Access", "Azure"]["seen"]


def test_contexts_that_others_may_read_are_told(workspace: Workspace) -> None:
    file = workspace.folder / "contexts.json"
    contexts = {"a": {"address": "unix:/nowhere", "ca": "", "token": SECRET}}
    file.write_text(json.dumps({"current": "", "contexts": contexts}))
    file.chmod(0o644)
    found = examined(workspace)
    assert found["Access", "contexts"]["level"] == WARN
    assert f"chmod 600 {file}" in found["Access", "contexts"]["advice"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    file.chmod(0o600)
    assert examined(workspace)["Access", "contexts"]["level"] == OK
    file.write_text("{")
    assert examined(workspace, code=1)["Access", "contexts"]["level"] == FAIL


def test_a_master_that_does_not_answer_fails(workspace: Workspace) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        found = examined(workspace, "--master", address, code=1)
    assert found["Master", "address"]["level"] == FAIL
    assert "cannot be reached" in found["Master", "address"]["seen"]


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """What `windrow setup` makes for 127.0.0.1, good for 20 days."""
    folder = tmp_path / "keys"
    command = [sys.executable, "-P", "-m", "windrow_master.setup", "--folder", str(folder)]
    subprocess.run([*command, "--name", "127.0.0.1", "--days", "20"], check=True, capture_output=True)
    return folder


@pytest.fixture
def stranger(keys: Path) -> Iterator[int]:
    """The port of a server that shows the master's certificate, and then speaks no gRPC."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(keys / "master" / "tls.pem")
    with socket.socket() as listener:
        listener.bind(("", 0))
        listener.listen()

        def serve() -> None:
            while True:
                try:
                    plain, _ = listener.accept()
                except OSError:
                    return
                try:
                    context.wrap_socket(plain, server_side=True).close()
                except OSError:
                    plain.close()

        threading.Thread(target=serve, daemon=True).start()
        yield int(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)


def test_certificates_are_told_with_the_days_that_are_left(workspace: Workspace, keys: Path, stranger: int) -> None:
    ca = {"WINDROW_CA_FILE": str(keys / "client" / "ca.pem")}
    found = examined(workspace, "--master", f"127.0.0.1:{stranger}", code=1, **ca)
    assert found["Master", "TLS"]["level"] == WARN
    assert "(19 days left)" in found["Master", "TLS"]["seen"] or "(20 days left)" in found["Master", "TLS"]["seen"]
    assert found["Master", "answer"]["level"] == FAIL
    found = examined(workspace, "--master", f"127.0.0.2:{stranger}", code=1, **ca)
    assert found["Master", "TLS"]["level"] == FAIL
    assert "not valid for '127.0.0.2'" in found["Master", "TLS"]["advice"]


ASKED = """
import os, pathlib, signal, sys, time
place = pathlib.Path(sys.argv[1])

def leave(number, frame):
    place.joinpath("asked to end").touch()
    while not place.joinpath("may end").exists():
        time.sleep(0.01)
    place.joinpath("made").unlink()
    os._exit(1)

signal.signal(signal.SIGTERM, leave)
place.joinpath("made").touch()
while True:
    signal.pause()
"""


def test_an_asked_process_that_takes_long_to_clean_up_is_not_killed(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "asked_module.py").write_text(ASKED)
    place = tmp_path / "place"
    place.mkdir()
    program = f"from windrow.common.role_query import ask; ask('asked_module', {str(place)!r}, patience_s=None)"
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env=workspace.environment(PYTHONPATH=str(tmp_path)),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as asker:
        wait_until((place / "made").exists, "it has made something")
        asker.send_signal(signal.SIGINT)
        wait_until((place / "asked to end").exists, "it was asked to end")
        (place / "may end").touch()
        wait_until(lambda: not (place / "made").exists(), "it has removed what it had made")
        _, errors = asker.communicate(timeout=240)
        assert b"KeyboardInterrupt" in errors
