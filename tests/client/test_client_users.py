"""Agents become another user when they have read their token; what that user cannot read is told."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import tempfile
from pathlib import Path

import grpc
import pytest
import windrow
import windrow_agent
from client_workspace import Workspace
from windrow_master.setup.authority import Authority

BECOME = """\
import os, sys
from windrow.errors import UsageError
from windrow_master.setup.authority import Authority
from windrow.common.users import become_user
try:
    become_user(sys.argv[1])
except UsageError as error:
    print(error)
    sys.exit(1)
print(*os.getresuid(), *os.getresgid(), *os.getgroups(), os.environ.get("HOME", "no home"))
try:
    os.setuid(0)
except PermissionError:
    print("no way back")
"""


def become(user: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", BECOME, user], capture_output=True, text=True, timeout=240, check=False
    )
    return done.returncode, done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes others")
def test_root_becomes_another_user_for_good() -> None:
    known = pwd.getpwnam("nobody")
    uid, gid = known.pw_uid, known.pw_gid
    expected = f"{uid} {uid} {uid} {gid} {gid} {gid} {gid} {known.pw_dir}\nno way back\n"
    assert become("nobody") == become(str(uid)) == (0, expected)
    home = os.environ.get("HOME", "/")
    assert become("43210") == (0, f"43210 43210 43210 43210 43210 43210 43210 {home}\nno way back\n")
    for root in ("root", "0"):
        code, told = become(root)
        assert code == 1 and "could read the join token" in told
    assert become("no-such-user") == (
        1,
        "--user no-such-user: this machine has no such user. Give another name, or a number.\n",
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes others")
def test_an_agent_in_the_folder_of_another_user(workspace: Workspace) -> None:
    # Not below tmp_path, into which nobody else may look.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        done = workspace.run("agent", "--master", "127.0.0.1:1", "--folder", folder, "--user", "nobody")
    assert done.returncode == 2
    assert f"{folder} belongs to user 0; this agent runs as user {pwd.getpwnam('nobody').pw_uid}, who" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes others")
def test_an_agent_whose_user_cannot_read_what_it_needs(workspace: Workspace, tmp_path: Path) -> None:
    # As in a home that others may not enter: the packages, and the certificates.
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "ca.pem").write_bytes(Authority.make().certificate_pem)
    sources = dict.fromkeys(Path(module.__path__[0]).parent for module in (windrow, windrow_agent, grpc))
    for number, source in enumerate(sources):
        (home / str(number)).symlink_to(source)
    places = os.pathsep.join(str(home / str(number)) for number in range(len(sources)))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        options = ("--master", "127.0.0.1:1", "--folder", folder, "--user", "nobody", "--ca-file", str(home / "ca.pem"))
        done = workspace.run("agent", *options, PYTHONPATH=places)
        assert not list(Path(folder).iterdir())
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert f"This agent runs as user {pwd.getpwnam('nobody').pw_uid}, who cannot read" in done.stderr
    assert "the package windrow_agent" in done.stderr and "the certificates" in done.stderr
    assert "has mode 0700 and belongs to user 0" in done.stderr and "/opt/windrow" in done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may")
def test_others_stay_who_they_are() -> None:
    assert become(str(os.getuid()))[0] == 0
    code, told = become("nobody")
    assert code == 1 and "may not become another user" in told
