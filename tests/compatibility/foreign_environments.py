"""Python environments as users have them: bare, with versions that are not ours, of other minor versions."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

# Older than what Windrow itself runs with, and installable without a compiler, by minor version of Python. The first
# set has pyarrow; the second has not.
OLDER: dict[int, tuple[dict[str, str], dict[str, str]]] = {
    11: (
        {"protobuf": "4.25.3", "grpcio": "1.60.1", "numpy": "1.26.4", "pandas": "2.2.3", "pyarrow": "15.0.2"},
        {"protobuf": "3.20.3", "grpcio": "1.51.3", "numpy": "1.25.2", "pandas": "2.0.3"},
    ),
    12: (
        {"protobuf": "4.25.3", "grpcio": "1.60.1", "numpy": "1.26.4", "pandas": "2.2.3", "pyarrow": "15.0.2"},
        {"protobuf": "4.25.3", "grpcio": "1.60.1", "numpy": "1.26.4", "pandas": "2.1.4"},
    ),
    13: (
        {"protobuf": "4.25.8", "grpcio": "1.67.1", "numpy": "2.1.3", "pandas": "2.2.3", "pyarrow": "18.1.0"},
        {"protobuf": "4.25.8", "grpcio": "1.67.1", "numpy": "2.1.3", "pandas": "2.2.3"},
    ),
}


class Environments:
    """Virtual environments below one folder, made once and found again by later test runs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def bare(self) -> Path:
        """The Python of an environment without any package, not even pip."""
        return self._made("bare", [])

    def older(self, variant: int) -> tuple[Path, dict[str, str]]:
        """The Python of an environment with older packages than ours, and their versions.

        `variant` 0 has pyarrow, 1 has not. Skips the test for a Python for which no such wheels are known.
        """
        minor = sys.version_info[1]
        if minor not in OLDER:
            pytest.skip(f"no older packages are known for Python 3.{minor}")
        versions = OLDER[minor][variant]
        wanted = [f"{name}=={version}" for name, version in versions.items()]
        return self._made(f"older-{variant}", wanted), versions

    def vendors_client(self) -> Path:
        """The Python of an environment with Azure ML's own client, which works without a network on what is local."""
        return self._made("vendor", ["azure-ai-ml==1.35.2", "setuptools<81"])

    def vendors_sdk(self) -> Path:
        """The Python of an environment with Azure ML's older packages. They run up to Python 3.11."""
        if sys.version_info[:2] > (3, 11):
            pytest.skip("azureml-core has no version for this Python")
        packages = ("azureml-pipeline==1.62.0", "azureml-contrib-pipeline-steps==1.62.0", "azureml-telemetry==1.62.0")
        core = ("azureml-core==1.61.0.post4", "azureml-dataset-runtime==1.62.0.post1", "setuptools<81")
        return self._made("vendor-sdk", [*core, *packages])

    def _made(self, name: str, wanted: Sequence[str]) -> Path:
        what = "\n".join([sys.executable, sys.version, *wanted])
        folder = self._folder / f"{name}-{hashlib.sha256(what.encode()).hexdigest()[:12]}"
        python, ready = folder / "bin" / "python", folder / "ready"
        with (self._folder / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another worker of this test run may be making it
            if not ready.exists():
                shutil.rmtree(folder, ignore_errors=True)
                _run(sys.executable, "-m", "venv", "--without-pip", str(folder))
                if wanted:
                    # A tenth of what pip takes, which also compiles all that it installs.
                    uv = str(Path(sys.executable).with_name("uv"))
                    _run(uv, "pip", "install", "--quiet", "--python", str(python), "--only-binary=:all:", *wanted)
                ready.touch()
        return python


def _run(*command: str) -> None:
    # Without what the tests' own environment says: only the new one counts.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    result = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=500, check=False
    )
    assert result.returncode == 0, f"{' '.join(command)}\n{result.stdout}\n{result.stderr}"
