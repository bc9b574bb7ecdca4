"""What is in the images: what is locked and nothing else, listed in each image, and all that Windrow imports."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from container_engine import REPOSITORY, docker
from packaging.utils import canonicalize_name

pytestmark = pytest.mark.timeout(300, func_only=True)

PARTS = {"master": ("core", "setup", "storage"), "agent": ("core", "agent", "gpu", "storage")}
SBOM = "/opt/windrow/sbom.cdx.json"


def python(image: str, program: str) -> str:
    """What a program prints in an image, without a network."""
    return docker("run", "--rm", "--network=none", "--entrypoint", "python", image, "-c", program)


def sbom(role: str) -> dict[str, Any]:
    """The list that an image holds of itself."""
    read: dict[str, Any] = json.loads(docker("run", "--rm", "--entrypoint", "cat", f"windrow-{role}", SBOM))
    return read


def locked(role: str) -> dict[str, set[str]]:
    """The versions of each package that the locks have for an image."""
    found: dict[str, set[str]] = {}
    for part in PARTS[role]:
        text = (REPOSITORY / "docker" / "locked" / f"{part}.txt").read_text()
        for name, version in re.findall(r"^([\w.-]+)==([^\s;]+)", text, re.M):
            found.setdefault(canonicalize_name(name), set()).add(version)
    return found


@pytest.mark.parametrize("role", ["master", "agent"])
def test_the_image_lists_all_that_it_holds_and_it_is_what_is_locked(images: None, role: str) -> None:
    listed = sbom(role)
    assert (listed["bomFormat"], listed["specVersion"]) == ("CycloneDX", "1.6")
    assert (listed["metadata"]["component"]["name"], listed["metadata"]["component"]["version"]) == ("windrow", "0.1.0")
    of_kind: dict[str, dict[str, str]] = {}
    for component in listed["components"]:
        kind = component["purl"].partition("/")[0]
        of_kind.setdefault(kind, {})[component["name"]] = component["version"]
        assert kind != "pkg:pypi" or component["licenses"], component["name"]
    program = "from importlib.metadata import distributions as d; print([(p.name, p.version) for p in d()])"
    installed = {canonicalize_name(name): version for name, version in eval(python(f"windrow-{role}", program))}
    assert installed.pop("windrow") == "0.1.0"
    assert {canonicalize_name(name): version for name, version in of_kind["pkg:pypi"].items()} == installed
    wanted = locked(role)
    assert {name for name, version in installed.items() if version not in wanted.get(name, set())} == set()
    assert set(wanted) == set(installed), "everything for a Python on Linux is there, and no pip"
    shape = "${Package} ${Version}\\n"
    packages = docker("run", "--rm", "--entrypoint", "dpkg-query", f"windrow-{role}", "-W", "-f", shape)
    assert of_kind["pkg:deb"] == dict(line.split(" ") for line in packages.splitlines())
    told = python(f"windrow-{role}", "import platform; print(platform.python_version())").strip()
    assert of_kind["pkg:generic"] == {"cpython": told}


@pytest.mark.parametrize("role", ["master", "agent"])
def test_every_module_of_a_role_imports_in_its_image(images: None, role: str) -> None:
    """The planner's, too, which reads tables in a process of its own."""
    program = f"""
import importlib, pkgutil
for package in ("windrow", "windrow_worker", "windrow_{role}"):
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
        if not module.name.endswith(("__main__", ".boot")):
            try:
                importlib.import_module(module.name)
            except ModuleNotFoundError as error:
                print(module.name, "needs", error.name)
import boto3, obstore.auth.boto3
"""
    needs = {
        "windrow.fleet.providers.ray.ray_side needs ray",
        *["windrow_agent.environments.conda_install needs rattler"] * (role == "agent"),
    }
    assert set(python(f"windrow-{role}", program).splitlines()) == needs


def build(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Build an image from a copy that was changed; it must not come to be."""
    command = ["docker", "build", "-f", "docker/Dockerfile", *arguments, "."]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=280, check=False)


@pytest.fixture
def context(images: None, tmp_path: Path) -> Path:
    """What images are made from, to be changed."""
    shutil.copytree(REPOSITORY / "docker", tmp_path / "docker", ignore=shutil.ignore_patterns("__pycache__"))
    for name in (".dockerignore", "pyproject.toml"):
        shutil.copy2(REPOSITORY / name, tmp_path / name)
    return tmp_path


def test_a_package_that_is_not_the_locked_one_is_not_installed(context: Path) -> None:
    lock = context / "docker" / "locked" / "build.txt"
    name = "hatchling"
    entry = re.search(rf"^{name}==(?:.*\\\n)*.*\n", lock.read_text(), re.M)
    assert entry
    other = re.sub(r"sha256:[0-9a-f]{64}", f"sha256:{'0' * 64}", entry[0])
    lock.write_text(lock.read_text().replace(entry[0], other))
    done = build(context, "--build-arg", "ROLE=agent")
    told = done.stdout + done.stderr
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in told and name in told


def test_an_extra_that_is_not_locked_is_named(context: Path) -> None:
    done = build(context, "--build-arg", "ROLE=master", "--build-arg", "MASTER_EXTRAS=setup,nonsense")
    assert done.returncode != 0
    assert "MASTER_EXTRAS names 'nonsense'" in done.stdout + done.stderr
