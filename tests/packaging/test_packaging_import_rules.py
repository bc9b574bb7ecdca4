"""The import rules of the house are a check that really finds what breaks them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE_ROOTS = ("client", "master", "agent", "worker")


def lint_imports(checkout: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-logo", "--no-cache"]
    # PYTHONPATH stands before the editable install, so that the copy is what is looked at.
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(str(checkout / root) for root in SOURCE_ROOTS)}
    environment["COLUMNS"] = "200"  # no line breaks inside the names of rules
    return subprocess.run(
        command, check=False, cwd=checkout, env=environment, capture_output=True, text=True, timeout=240
    )


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the source roots, the same for all cases: each plants its fault and takes it away again."""
    copy = tmp_path_factory.mktemp("checkout")
    for root in SOURCE_ROOTS:
        shutil.copytree(ROOT / root, copy / root, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    return copy


def test_the_code_keeps_the_rules(checkout: Path) -> None:
    result = lint_imports(checkout)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("planted_in", "statement", "rule"),
    [
        ("worker/windrow_worker/script/planted.py", "import grpc", "The worker imports nothing of ours"),
        ("worker/windrow_worker/script/planted.py", "import windrow.rpc", "The worker imports nothing of ours"),
        (
            "worker/windrow_worker/protocol/planted.py",
            "import windrow_worker.tables",
            "The worker's imports run one way",
        ),
        (
            "agent/windrow_agent/session/planted.py",
            "import windrow_master",
            "The agent imports neither master nor worker",
        ),
        (
            "agent/windrow_agent/session/planted.py",
            "import windrow_worker",
            "The agent imports neither master nor worker",
        ),
        ("agent/windrow_agent/leases/planted.py", "import windrow_agent.steps", "The agent's imports run one way"),
        ("agent/windrow_agent/planted.py", "import os", "The agent's imports run one way"),
        ("client/windrow/sdk/planted.py", "import windrow_master.core", "The client imports no other role"),
        ("client/windrow/planted.py", "import os", "The client's imports run one way"),
        ("client/windrow/common/planted.py", "import windrow.sdk", "The client's imports run one way"),
        ("agent/windrow_agent/session/planted.py", "import windrow.sdk.node", "Master and agent import only what"),
        ("master/windrow_master/shell/planted.py", "import windrow_agent", "The master imports no agent"),
        (
            "master/windrow_master/files/planted.py",
            "import windrow_master.store.errors",
            "The master's imports run one way",
        ),
        ("master/windrow_master/planted.py", "import os", "The master's imports run one way"),
        ("master/windrow_master/rpc/planted.py", "import windrow_worker", "Only planning imports the worker's"),
        ("master/windrow_master/core/planted.py", "import time", "The core is pure"),
        ("master/windrow_master/shell/planted.py", "import sqlite3", "Only the store over SQLite knows SQLite"),
    ],
)
def test_a_planted_violation_is_found(checkout: Path, planted_in: str, statement: str, rule: str) -> None:
    planted = checkout / planted_in
    planted.write_text(f"{statement}\n")
    try:
        result = lint_imports(checkout)
    finally:
        planted.unlink()
    assert result.returncode != 0, f"{statement!r} in {planted_in} was not found:\n{result.stdout}"
    broken = [line for line in result.stdout.splitlines() if "BROKEN" in line]
    assert len(broken) == 1 and broken[0].startswith(rule), result.stdout


def test_no_two_modules_of_tests_have_one_name() -> None:
    """Each folder of tests is on the path when all are run: of two equal names, only the first would be found."""
    own = [path for path in (ROOT / "tests").rglob("*.py") if path.name != "conftest.py" and "data" not in path.parts]
    names = Counter(path.name for path in own if not (path.parent / "__init__.py").exists())
    assert [name for name, count in names.items() if count > 1] == []
