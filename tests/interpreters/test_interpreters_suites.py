"""The tests in which an interpreter can make a difference, run again in the Pythons that users have.

A regular expression that CPython 3.11.2 matches wrongly has once cut tables within their records, while all tests
passed on 3.11.7.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from known_pythons import REPOSITORY, ROOTS, WANTED, clean_environment, environment, missing, of_the_project, pythons

OURS = ".".join(map(str, sys.version_info[:3]))
PYTHONS = {version: python for version, python in pythons().items() if version != OURS}
OF_WINDROW = {version: python for version, python in PYTHONS.items() if tuple(map(int, version.split("."))) >= (3, 11)}
TABLES = ("tests/planning/test_planning_cutting.py", "tests/tables")
WORKER = ("test_worker_script.py", "test_worker_channels.py", "test_worker_tracebacks.py")


def run(python: Path | str, tests: list[str], tmp_path: Path, **variables: str) -> None:
    """Run tests by this Python, from the repository's root."""
    done = subprocess.run(
        [
            str(python), "-m", "pytest", "-o", "addopts=-q", "-p", "no:cacheprovider", "-x",
            "--basetemp", str(tmp_path / "t"), *tests,
        ],
        cwd=REPOSITORY, env=clean_environment(**variables), stdin=subprocess.DEVNULL, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{python}\n{done.stdout[-8000:]}\n{done.stderr[-2000:]}"


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("version", OF_WINDROW)
def test_tables_are_cut_and_read_alike(version: str, tmp_path: Path) -> None:
    python = environment(OF_WINDROW[version], of_the_project())
    paths = os.pathsep.join(str(REPOSITORY / root) for root in ROOTS)
    run(python, list(TABLES), tmp_path, PYTHONPATH=paths)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", PYTHONS)
def test_the_worker_serves_alike(version: str, tmp_path: Path) -> None:
    tests = [f"tests/worker/{name}" for name in WORKER]
    run(sys.executable, tests, tmp_path, WINDROW_TEST_WORKER_PYTHON=PYTHONS[version])


@pytest.mark.parametrize("minor", [".".join(map(str, minor)) for minor in WANTED])
def test_each_python_that_users_have_is_at_hand(minor: str) -> None:
    if minor in missing():
        pytest.skip(
            f"this machine has no Python {minor} (on PATH, in /usr/bin, of pyenv): install one, or name it in "
            "WINDROW_TEST_PYTHONS"
        )
