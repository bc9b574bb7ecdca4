"""The locks of the images: exact versions of all that is installed into them, with the digests of their files.

`docker/locked` has a file for each part that docker/Dockerfile installs. uv resolves all parts together, for every
Python and processor that Windrow runs on, so that any of them fit each other. The files name no index: where packages
come from is a matter of the place that builds, and the digests say whether they are the same.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docker" / "locked"
UV = Path(sys.executable).with_name("uv")

PYTHONS = ("3.11", "3.12", "3.13")
"""Of base images."""
PLATFORMS = {"amd64": "x86_64-manylinux_2_28", "arm64": "aarch64-manylinux_2_28"}
"""Each processor for which there are images, and the name that uv gives to Linux on it."""

ONLY_AGENTS = {"uv"}
"""Dependencies that the master's image does without: only agents build environments."""
NOT_IN_IMAGES = {"dev", "bench", "ray"}
"""Extras of those who work on Windrow, and Ray, whose version is that of a cluster."""
SBOM_TOOL = "cyclonedx-bom>=7"
BUILD_TOOLS = ["pip>=24"]
CORE, AGENT, BUILD, SBOM = "core", "agent", "build", "sbom"


class LockError(Exception):
    """A lock cannot be made or read; the text says why, and what to do."""


class Pin(NamedTuple):
    """A line of a lock."""

    name: str
    version: str
    marker: str
    digests: frozenset[str]


def parts(project: dict[str, object]) -> dict[str, list[str]]:
    """The requirements of each part, by its name, of what pyproject.toml holds."""
    table = project["project"]
    build = project["build-system"]
    assert isinstance(table, dict) and isinstance(build, dict)
    dependencies: list[str] = table["dependencies"]
    extras: dict[str, list[str]] = table["optional-dependencies"]
    return {
        CORE: [line for line in dependencies if Requirement(line).name not in ONLY_AGENTS],
        AGENT: [line for line in dependencies if Requirement(line).name in ONLY_AGENTS],
        **{name: lines for name, lines in extras.items() if name not in NOT_IN_IMAGES},
        BUILD: [*build["requires"], *BUILD_TOOLS],
        SBOM: [SBOM_TOOL],
    }


def read_parts(root: Path = ROOT) -> dict[str, list[str]]:
    """The same, of the pyproject.toml in a folder."""
    return parts(tomllib.loads((root / "pyproject.toml").read_text()))


def digest(requirements: dict[str, list[str]]) -> str:
    """Tells whether the requirements are those that a lock was made from."""
    text = json.dumps({part: sorted(lines) for part, lines in requirements.items()}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def read(part: str, folder: Path = FOLDER) -> list[Pin]:
    """What the lock of a part pins. Raises LockError."""
    path = folder / f"{part}.txt"
    try:
        text = path.read_text()
    except FileNotFoundError as error:
        raise LockError(f"{path} is missing. Run: make lock") from error
    pins = []
    for entry in text.replace("\\\n", "").splitlines():
        if not entry or entry.lstrip().startswith("#"):
            continue
        requirement, *digests = re.split(r"\s+--hash=", entry.strip())
        parsed = Requirement(requirement)
        found = re.fullmatch(r"==([^*,]+)", str(parsed.specifier))
        if found is None or not digests:
            raise LockError(f"{path}: {requirement} has no exact version, or no digest. Run: make lock")
        pins.append(Pin(canonicalize_name(parsed.name), found[1], str(parsed.marker or ""), frozenset(digests)))
    return pins


def read_all(folder: Path = FOLDER, root: Path = ROOT) -> dict[str, list[Pin]]:
    """The same of all parts, by their names. Raises LockError."""
    return {part: read(part, folder) for part in read_parts(root)}


def made_from(folder: Path = FOLDER) -> str:
    """The digest of the requirements that the locks in a folder were made from, "" where they do not say."""
    path = folder / "README.md"
    found = re.search(r"^Requirements: `([0-9a-f]{64})`$", path.read_text() if path.exists() else "", re.M)
    return found[1] if found else ""


README = """\
# Locked dependencies of the images

`make lock` writes these files: [Check and update the images](../../docs/how-to/check-the-images.md). Do not edit them.

Requirements: `{digest}`
"""


def write(upgrade: Iterable[str] = (), folder: Path = FOLDER, root: Path = ROOT) -> None:
    """Lock what pyproject.toml asks for. Versions that are locked already stay, where they still do.

    `upgrade`: names of packages that become the newest, `all` for all. Raises LockError.
    """
    requirements = read_parts(root)
    with tempfile.TemporaryDirectory() as scratch:
        whole = Path(scratch, "whole.txt")
        if folder.exists() and "all" not in upgrade:
            whole.write_text("".join(sorted(path.read_text() for path in folder.glob("*.txt"))))
        options = [part for name in upgrade if name != "all" for part in ("--upgrade-package", name)]
        _compile([line for lines in requirements.values() for line in lines], whole, *options)
        texts = {}
        for part, lines in requirements.items():
            path = Path(scratch, f"{part}.txt")
            path.write_text(whole.read_text())
            _compile(lines, path)
            texts[part] = _entries(path.read_text())
    for part, entries in texts.items():
        # Whoever installs an extra has the core. Tools are installed apart from both.
        known = texts[CORE] if part not in (CORE, BUILD, SBOM) else {}
        kept = [
            entry for key, entry in sorted(entries.items()) if key not in known and key.partition(";")[0] not in known
        ]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{part}.txt").write_text("".join(kept))
    for path in folder.glob("*.txt"):
        if path.stem not in texts:
            path.unlink()
    (folder / "README.md").write_text(README.format(digest=digest(requirements)))


def _compile(requirements: list[str], output: Path, *options: str) -> None:
    """Have uv resolve requirements into a file, with what the file pins already where that fits."""
    command = [
        str(UV),
        "pip",
        "compile",
        "-",
        "--quiet",
        "--universal",
        "--python-version",
        PYTHONS[0],
        "--generate-hashes",
    ]
    shape = ["--no-header", "--no-annotate"]
    done = subprocess.run(
        [*command, *shape, *options, "--output-file", output],
        input="\n".join(requirements),
        cwd=output.parent,
        env={name: text for name, text in os.environ.items() if name != "VIRTUAL_ENV"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise LockError(f"uv cannot resolve the dependencies; nothing was changed:\n{done.stderr.strip()}")


def _entries(text: str) -> dict[str, str]:
    """The entries of a file that uv has made, by requirement; without those that no Linux needs."""
    found = {}
    for entry in re.findall(r"^\S(?:.*\\\n)*.*\n", text, re.M):
        requirement = Requirement(entry.partition("\\\n")[0])
        if requirement.marker is None or any(_holds(requirement.marker, python) for python in PYTHONS):
            found[str(requirement)] = entry
    return found


def _holds(marker: Marker, python: str) -> bool:
    """Whether a marker holds in an image with this Python."""
    environment = {
        "implementation_name": "cpython",
        "os_name": "posix",
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "python_full_version": f"{python}.0",
        "python_version": python,
        "sys_platform": "linux",
    }
    machines = ("x86_64", "aarch64")
    return any(marker.evaluate({**environment, "platform_machine": machine}) for machine in machines)
