"""The Pythons of this machine that users have, and environments in them with what the tests need."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import pwd
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
ROOTS = ("client", "master", "agent", "worker")
WANTED = ((3, 8), (3, 9), (3, 10), (3, 11), (3, 12), (3, 13), (3, 14))
"""Versions that users have: scripts run on all, Windrow itself on those from 3.11 on."""


@functools.cache
def pythons() -> dict[str, str]:
    """Interpreters by version ("3.11.2"), from 3.8 on: the newest of each minor version, and the system's own.

    They are looked for in WINDROW_TEST_PYTHONS (paths joined by colons), on PATH, in /usr/bin and /usr/local/bin, and
    among pyenv's versions: of PYENV_ROOT, of HOME, and of the user's home as the system knows it, where HOME is
    another.
    """
    given = [path for path in os.environ.get("WINDROW_TEST_PYTHONS", "").split(":") if path]
    system = ["/usr/bin/python3"]
    names = [f"python3.{minor}" for _, minor in WANTED]
    folders = ["/usr/bin", "/usr/local/bin"]
    found = [*given, *system, sys.executable, *filter(None, map(shutil.which, names))]
    found += [f"{folder}/{name}" for folder in folders for name in names]
    homes = [Path(os.environ.get("HOME", "/nonexistent")), Path(pwd.getpwuid(os.geteuid()).pw_dir)]
    roots = [Path(os.environ["PYENV_ROOT"])] if "PYENV_ROOT" in os.environ else []
    for root in [*roots, *(home / ".pyenv" for home in homes)]:
        found += map(str, sorted(root.glob("versions/3.*/bin/python")))
    by_version: dict[tuple[int, ...], str] = {}
    kept: set[tuple[int, ...]] = set()
    for python in dict.fromkeys(found):
        version = _version(python)
        if version is None or version < WANTED[0]:
            continue
        by_version.setdefault(version, python)
        if python in (*system, *given):
            kept.add(version)
    newest = {version[:2]: version for version in sorted(by_version)}
    chosen = sorted({*newest.values(), *kept})
    return {".".join(map(str, version)): by_version[version] for version in chosen}


def missing() -> list[str]:
    """Minor versions that users have, and this machine has not."""
    there = {tuple(map(int, version.split(".")[:2])) for version in pythons()}
    return [".".join(map(str, minor)) for minor in WANTED if minor not in there]


def _version(python: str) -> tuple[int, ...] | None:
    if not os.access(python, os.X_OK):
        return None
    code = "import sys; print('%d.%d.%d' % sys.version_info[:3])"
    told = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, check=False)
    # A shim of pyenv may lead nowhere.
    return tuple(map(int, told.stdout.split("."))) if told.returncode == 0 else None


def environment(python: str, wanted: Sequence[str]) -> Path:
    """The Python of an environment with these packages: made by uv once, and found again by later test runs.

    It lies in WINDROW_TEST_ENVIRONMENTS, else in the user's cache. Raises RuntimeError with uv's words.
    """
    name = hashlib.sha256("\n".join([python, str(_version(python)), *wanted]).encode()).hexdigest()[:16]
    root = _cache()
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


def of_the_project() -> list[str]:
    """What Windrow needs to plan and read tables, and what their tests need."""
    with (REPOSITORY / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    runtime = [line for line in project["dependencies"] if not line.startswith("uv")]
    tools = ("pytest", "hypothesis", "pytest-timeout")
    chosen = [line for line in project["optional-dependencies"]["dev"] if line.split(">")[0] in tools]
    assert len(chosen) == len(tools)
    return [*runtime, *chosen]


def clean_environment(**more: str) -> dict[str, str]:
    """This process's environment without what concerns its own Python."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST", "VIRTUAL_"))}
    return kept | more


def _cache() -> Path:
    given = os.environ.get("WINDROW_TEST_ENVIRONMENTS")
    homes = [os.environ.get("HOME"), pwd.getpwuid(os.geteuid()).pw_dir]
    tried = [Path(given)] if given else [Path(home) / ".cache/windrow-tests" for home in reversed(homes) if home]
    for folder in [*tried, REPOSITORY / "build" / "environments"]:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return folder
    raise RuntimeError("there is no folder for environments that can be written; set WINDROW_TEST_ENVIRONMENTS")


def _uv(*arguments: str) -> None:
    uv = Path(sys.executable).with_name("uv")
    done = subprocess.run(
        [str(uv), *arguments], env=clean_environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=500, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"uv {' '.join(arguments)}\n{done.stdout}{done.stderr}")
