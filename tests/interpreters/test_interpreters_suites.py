"""The tests in which an interpreter can make a difference, run again in the Pythons that users have.

A regular expression that CPython 3.11.2 matches wrongly has once cut tables within their records, while all tests
passed on 3.11.7. So each Python runs what its own library decides: how text is matched, parsed and counted, how code is
imported and errors are told. The oldest and the newest run everything: what works in both, and in ours, needs nothing
that came or went between them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from known_pythons import WANTED, missing, others
from python_environments import REPOSITORY, SCRIPTS, TOOLS, clean_environment, environment, of_windrow

OF_THE_MACHINE = ("with a limit this high", "the limit cannot be set", "needs root and mount")
"""Why tests are skipped in any Python, and so in ours, whose summary tells it."""
OTHERS = others()
OF_WINDROW = [version for version in OTHERS if tuple(map(int, version.split("."))) >= (3, 11)]
PACKAGES = ("client", "master", "agent", "worker")
READING = (
    "tests/tables",
    "tests/planning/test_planning_cutting.py",
    "tests/planning/test_planning_foreign_files.py",
    "tests/planning/test_planning_records.py",
)
"""What is read and cut; the rest of planning is processes and files."""
WORKER = sorted(
    str(path.relative_to(REPOSITORY))
    for path in (REPOSITORY / "tests" / "worker").glob("test_*.py")
    # These look for other Pythons themselves.
    if path.stem != "test_worker_interpreters"
)
IMPORTING = (
    "tests/worker/test_worker_changed_code.py",
    "tests/worker/test_worker_script.py",
    "tests/worker/test_worker_tracebacks.py",
)
"""How a script is found, imported, called and told what it did wrong."""
OF_SIZE = ("tests/planning/test_planning_file_lists.py::test_one_file_and_forty_thousand_in_one_mini_batch",)
"""Takes half a minute on a busy disk, and is about the number of files."""
BY_NEW_PANDAS = "tests/worker/test_worker_csv.py"
"""Compares with pandas itself, on values of which some are beyond the pandas that Pythons before 3.11 have."""


def minor(version: str) -> tuple[int, ...]:
    """3.11.2: (3, 11)."""
    return tuple(map(int, version.split(".")[:2]))


def ends(versions: Iterable[str]) -> list[str]:
    """Those of the oldest and of the newest minor version; ours runs everything anyway."""
    ours = sys.version_info[:2]
    minors = {*map(minor, versions), ours}
    return [version for version in versions if minor(version) in {min(minors), max(minors)} - {ours}]


def run(version: str, tests: list[str], tmp_path: Path) -> None:
    """Run tests by the Python of this version, from the repository's root."""
    packages = of_windrow() if version in OF_WINDROW else [*SCRIPTS, *TOOLS]
    python = environment(version, OTHERS[version], packages)
    paths = os.pathsep.join(str(REPOSITORY / package) for package in PACKAGES)
    command = [str(python), "-m", "pytest", "-o", "addopts=-q", "-p", "no:cacheprovider", "-x", "-rs"]
    command += [f"--deselect={test}" for test in OF_SIZE]
    done = subprocess.run(
        [*command, "--basetemp", str(tmp_path / "t"), *tests],
        cwd=REPOSITORY,
        env=clean_environment(PYTHONPATH=paths, HYPOTHESIS_STORAGE_DIRECTORY=str(tmp_path / "hypothesis")),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{python}\n{done.stdout[-8000:]}\n{done.stderr[-2000:]}"
    skipped = [line for line in done.stdout.splitlines() if line.startswith("SKIPPED")]
    assert not [line for line in skipped if not any(reason in line for reason in OF_THE_MACHINE)], skipped


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("version", OF_WINDROW)
def test_tables_are_cut_and_read_alike(version: str, tmp_path: Path) -> None:
    run(version, list(READING), tmp_path)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("version", OTHERS)
def test_the_worker_serves_alike(version: str, tmp_path: Path) -> None:
    tests = WORKER if version in ends(OTHERS) else IMPORTING
    run(version, [path for path in tests if version in OF_WINDROW or path != BY_NEW_PANDAS], tmp_path)


@pytest.mark.parametrize("wanted", [".".join(map(str, minor)) for minor in WANTED])
def test_each_python_that_users_have_is_at_hand(wanted: str) -> None:
    if wanted in missing():
        pytest.skip(
            f"this machine has no Python {wanted} (on PATH, in /usr/bin, of pyenv): install one, or name it in "
            "WINDROW_TEST_PYTHONS"
        )
