"""The interpreter of the image, which may be another than that of this machine: tables are cut and read alike by it."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest
from container_engine import REPOSITORY, docker
from known_pythons import others

TOOLS = ("pytest", "hypothesis", "pytest-timeout", "pandas")
"""What the tests need that the master's image does not have."""
TESTS = ("tests/planning/test_planning_cutting.py", "tests/tables/test_tables_misread.py")
IMAGE = "windrow-master"


@pytest.mark.timeout(900)
def test_tables_are_cut_and_read_alike_by_the_python_of_the_image(images: None, tmp_path: Path) -> None:
    python = "/opt/windrow/bin/python"
    told = "import sys; print('%d.%d.%d' % sys.version_info[:3])"
    version = docker("run", "--rm", "--entrypoint", python, IMAGE, "-c", told).strip()
    if version in (*others(), platform.python_version()):
        pytest.skip(f"this machine has a Python {version}, too, by which the same tests run")
    uv = Path(sys.executable).with_name("uv")
    subprocess.run(
        [str(uv), "pip", "install", "--quiet", "--python", sys.executable, "--python-version", version,
         "--only-binary=:all:", "--target", str(tmp_path / "tools"), *TOOLS],
        check=True, timeout=400,
    )  # fmt: skip
    docker(
        "run", "--rm", "--user", "0", "--entrypoint", python,
        "--volume", f"{REPOSITORY / 'tests'}:/repository/tests:ro",
        "--volume", f"{REPOSITORY / 'pyproject.toml'}:/repository/pyproject.toml:ro",
        "--volume", f"{tmp_path / 'tools'}:/tools:ro",
        "--env", "PYTHONPATH=/tools", "--env", "PYTHONDONTWRITEBYTECODE=1",
        "--env", "HYPOTHESIS_STORAGE_DIRECTORY=/tmp/hypothesis", "--workdir", "/repository",
        IMAGE, "-m", "pytest", "-o", "addopts=-q", "-x", "-p", "no:cacheprovider", *TESTS, timeout_s=800,
    )  # fmt: skip
