"""The committed gRPC stubs are what proto/ generates, and the check for it can fail."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    if sys.prefix != str(ROOT / ".venv") or shutil.which("make") is None:
        pytest.skip("runs in the checkout's own .venv, with make")
    shutil.copytree(ROOT / "proto", tmp_path / "proto")
    shutil.copytree(
        ROOT / "client/windrow/rpc", tmp_path / "client/windrow/rpc", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy(ROOT / "Makefile", tmp_path)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    os.utime(tmp_path / "pyproject.toml", (0, 0))
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    return tmp_path


def check_stubs(checkout: Path) -> subprocess.CompletedProcess[str]:
    # -o: the environment is ready, whatever the age of its stamp says.
    command = ["make", "--no-print-directory", "-o", ".venv/.ready", "check-stubs"]
    return subprocess.run(command, check=False, cwd=checkout, capture_output=True, text=True, timeout=240)


def test_stubs_are_fresh(checkout: Path) -> None:
    result = check_stubs(checkout)
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_changed_contract_makes_stubs_stale(checkout: Path) -> None:
    proto = checkout / "proto/windrow/rpc/v1/node.proto"
    proto.write_text(proto.read_text().replace("uint32 gpu_count = 3;", "uint32 gpu_count = 33;"))
    result = check_stubs(checkout)
    assert result.returncode != 0
    assert "make proto" in result.stderr


def test_a_removed_contract_makes_stubs_stale(checkout: Path) -> None:
    (checkout / "client/windrow/rpc/v1/gone_pb2.py").write_text("")
    result = check_stubs(checkout)
    assert result.returncode != 0
    assert "gone_pb2.py" in result.stdout
