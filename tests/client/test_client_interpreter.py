"""The Python of the scripts is looked at before anything is started."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from client_workspace import Workspace
from windrow.common.interpreter import NoInterpreter, check_interpreter


def executable(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_an_active_environment_that_is_gone_starts_nothing(workspace: Workspace, variable: str) -> None:
    workspace.write(["a"])
    clean = {"VIRTUAL_ENV": "", "CONDA_PREFIX": ""}
    done = workspace.run("run", "job.yml", **{**clean, variable: "/not/there"})
    assert done.returncode == 2
    assert f"'/not/there/bin/python' (of the active environment, ${variable}) does not exist" in done.stderr
    assert "--python PATH" in done.stderr
    assert not workspace.state.exists()


@pytest.mark.parametrize("command", [("run", "job.yml"), ("agent", "--master", "127.0.0.1:1", "--folder", "agent")])
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "does not exist"),
        ("", "cannot be executed"),
        ("#!/bin/sh\necho no python >&2\nexit 3\n", "does not run as a Python interpreter (exit code 3): no python"),
        ("#!/bin/sh\nexit 0\n", "does not run as a Python interpreter (exit code 0)"),
        ("#!/not/there\n", "cannot be executed: No such file or directory"),
    ],
    ids=["missing", "not executable", "failing", "silent", "without its own interpreter"],
)
def test_what_is_no_python_is_refused(
    workspace: Workspace, command: tuple[str, ...], text: str | None, words: str
) -> None:
    workspace.write(["a"])
    path = workspace.folder / "py"
    if text is not None:
        executable(path, text)
    if text == "":
        path.chmod(0o644)
    done = workspace.run(*command, "--python", "./py")
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert "--python PATH" in done.stderr
    assert "Traceback" not in done.stderr
    assert not workspace.rows.exists()


def test_what_else_an_interpreter_prints_is_passed_over(tmp_path: Path) -> None:
    own = shlex.quote(sys.executable)
    check_interpreter(str(executable(tmp_path / "py", f'#!/bin/sh\necho hello\nexec {own} "$@"\n')))


def test_one_that_is_too_old_is_told_by_its_version(tmp_path: Path) -> None:
    old = executable(tmp_path / "py", "#!/bin/sh\necho windrow: 3.7.9\n")
    with pytest.raises(NoInterpreter, match=r"is Python 3\.7\.9, too old; Python 3\.8 or newer is needed"):
        check_interpreter(str(old))


def test_a_library_that_is_not_there_is_named() -> None:
    import windrow.common.interpreter

    done = subprocess.run(
        [sys.executable, windrow.common.interpreter.PROBE, "", "json", "no_such_library"],
        capture_output=True,
        text=True,
        check=True,
    )
    version = ".".join(map(str, sys.version_info[:3]))
    assert done.stdout == f"windrow: {version} no_such_library\n"
