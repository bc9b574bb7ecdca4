"""The client's container: a root with two capabilities reads the token, then becomes the owner of a folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SHOWN = 'id -u; id -g; id -G; cat "$WINDROW_TOKEN_FILE" "$WINDROW_CA_FILE"; touch made; echo "$@"'


def as_owner(folder: Path, secrets: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """The module as the container runs it: with two capabilities and no others."""
    dropped = ("setpriv", "--inh-caps=-all", "--bounding-set=-all,+setuid,+setgid", "--no-new-privs")
    files = {"WINDROW_TOKEN_FILE": str(secrets / "token"), "WINDROW_CA_FILE": str(secrets / "ca.pem")}
    return subprocess.run(
        [*dropped, sys.executable, "-m", "windrow.common.as_owner", str(folder), *command],
        cwd=folder,
        env={**os.environ, **files},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    """A token that its user alone can read."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv")
    for place in (tmp_path, *(parent for parent in tmp_path.parents if parent.name.startswith(("pytest-", "popen-")))):
        place.chmod(0o755)
    folder = tmp_path / "secrets"
    folder.mkdir()
    for name, mode in (("token", 0o400), ("ca.pem", 0o444)):
        (folder / name).write_text(f"the {name}\n")
        (folder / name).chmod(mode)
        os.chown(folder / name, 1000, 1000)
    return folder


@pytest.mark.parametrize("owner", [0, 1000, 1234])
def test_it_is_the_folders_owner_that_runs_the_command(secrets: Path, tmp_path: Path, owner: int) -> None:
    folder = tmp_path / "work"
    folder.mkdir(mode=0o700)
    os.chown(folder, owner, owner)
    done = as_owner(folder, secrets, "sh", "-c", SHOWN, "sh", "a", "b c")
    assert done.returncode == 0, done.stderr
    uid, gid, groups, token, ca, arguments = done.stdout.splitlines()
    assert (uid, gid, groups) == (str(owner), str(owner), str(owner))
    assert (token, ca, arguments) == ("the token", "the ca.pem", "a b c")
    assert (folder / "made").stat().st_uid == owner


def test_its_exit_code_is_the_commands(secrets: Path, tmp_path: Path) -> None:
    assert as_owner(tmp_path, secrets, "sh", "-c", "exit 3").returncode == 3
    missing = as_owner(tmp_path, secrets, "no-such-command")
    assert missing.returncode == 1 and missing.stderr == "no-such-command cannot be run: No such file or directory.\n"


def test_before_the_first_start_it_says_what_to_do(secrets: Path, tmp_path: Path) -> None:
    (secrets / "ca.pem").unlink()
    done = as_owner(tmp_path, secrets, "true")
    assert done.returncode == 1 and "Start one: docker compose up -d" in done.stderr
