"""Environments in the Pythons of this machine, with what the tests need."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from kept_between_runs import REPOSITORY, kept_folder

TOOLS = ("pytest", "hypothesis", "pytest-timeout")
"""What runs the tests."""
SCRIPTS = ("pandas", "pyarrow", "joblib")
"""What scripts have, as old as a Python may demand; Windrow itself needs newer ones of the first two."""


def environment(version: str, python: str, wanted: Sequence[str]) -> Path:
    """The Python of an environment with these packages: made by uv once, and found again by later test runs.

    `version`: of this Python. The environment lies in WINDROW_TEST_ENVIRONMENTS, else in the user's cache. Raises
    RuntimeError with uv's words.
    """
    name = hashlib.sha256("\n".join([python, version, *wanted]).encode()).hexdigest()[:16]
    root = kept_folder()
    folder = root / name
    made, ready = folder / "bin" / "python", folder / "ready"
    with (root / f"{name}.lock").open("w") as lock:
        # Another process of this test run, or another run, may be making it.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists():
            shutil.rmtree(folder, ignore_errors=True)
            _uv("venv", "--quiet", "--python", python, str(folder))
            _uv("pip", "install", "--quiet", "--python", str(made), "--only-binary=:all:", *wanted)
            ready.touch()
    return made


def of_windrow() -> list[str]:
    """What Windrow needs to plan and read tables, and what their tests need."""
    with (REPOSITORY / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    extras = project["optional-dependencies"]
    runtime = [line for line in project["dependencies"] if not line.startswith("uv")]
    tools = [line for line in extras["dev"] if line.split(">")[0] in TOOLS]
    assert len(tools) == len(TOOLS)
    return [*runtime, *extras["partition"], *extras["delta"], *tools, "joblib"]


def clean_environment(**more: str) -> dict[str, str]:
    """This process's environment without what concerns its own Python."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST", "VIRTUAL_"))}
    return kept | more


def _uv(*arguments: str) -> None:
    uv = Path(sys.executable).with_name("uv")
    done = subprocess.run(
        [str(uv), *arguments], env=clean_environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=500, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"uv {' '.join(arguments)}\n{done.stdout}{done.stderr}")
