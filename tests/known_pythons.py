"""The Pythons of this machine, in which tests run what users run in theirs."""

from __future__ import annotations

import functools
import glob
import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

WANTED = ((3, 8), (3, 9), (3, 10), (3, 11), (3, 12), (3, 13), (3, 14))
"""Minor versions that users have: scripts run on all, Windrow itself on those from 3.11 on."""
SYSTEM = "/usr/bin/python3"

Version = tuple[int, ...]


@functools.cache
def _all() -> dict[Version, str]:
    """Interpreters by version, of those alike the first that is found; ours before all others.

    They are looked for in WINDROW_TEST_PYTHONS (paths joined by colons), on PATH, in /usr/bin and /usr/local/bin, and
    among pyenv's versions: of PYENV_ROOT, of HOME, and of the user's home as the system knows it, where HOME is
    another. Raises RuntimeError where WINDROW_TEST_PYTHONS names what is no Python.
    """
    for python in _given():
        if _version(python) is None:
            raise RuntimeError(f"WINDROW_TEST_PYTHONS names {python}, which does not run as a Python")
    names = ["python2.7", *(f"python3.{minor}" for minor in range(4, 20))]
    found = [sys.executable, *_given(), SYSTEM, *filter(None, map(shutil.which, names))]
    found += [f"{folder}/{name}" for folder in ("/usr/bin", "/usr/local/bin") for name in names]
    homes = [Path(os.environ.get("HOME", "/nonexistent")), Path(pwd.getpwuid(os.geteuid()).pw_dir)]
    roots = [Path(os.environ["PYENV_ROOT"])] if "PYENV_ROOT" in os.environ else []
    for root in [*roots, *(home / ".pyenv" for home in homes)]:
        # Not Path.glob, which raises where this user may not look.
        found += sorted(glob.glob(f"{glob.escape(str(root))}/versions/*/bin/python"))  # noqa: PTH207
    by_version: dict[Version, str] = {}
    for python in dict.fromkeys(found):
        # A shim of pyenv may lead nowhere.
        if (version := _version(python)) is not None:
            by_version.setdefault(version, python)
    return dict(sorted(by_version.items()))


def minors() -> dict[str, str]:
    """One Python of each minor version from 3.8 on, by that ("3.8"): ours of our own, else the newest."""
    found = {version[:2]: python for version, python in _all().items() if version >= WANTED[0]}
    found[sys.version_info[:2]] = sys.executable
    return {_text(minor): python for minor, python in found.items()}


def others() -> dict[str, str]:
    """By version ("3.11.2"), from 3.8 on, without ours: the newest of each minor version, the system's, those given."""
    newest = {version[:2]: version for version in _all()}
    chosen = {*newest.values(), *map(_version, [SYSTEM, *_given()])} - {sys.version_info[:3]}
    return {_text(version): python for version, python in _all().items() if version in chosen and version >= WANTED[0]}


def too_old() -> dict[str, str]:
    """Those before 3.7, by minor version."""
    return {_text(version[:2]): python for version, python in _all().items() if version < (3, 7)}


def missing() -> list[str]:
    """Minor versions that users have, and this machine has not."""
    return [_text(minor) for minor in WANTED if _text(minor) not in minors()]


def _given() -> list[str]:
    return [path for path in os.environ.get("WINDROW_TEST_PYTHONS", "").split(":") if path]


@functools.cache
def _version(python: str) -> Version | None:
    if not os.access(python, os.X_OK):
        return None
    code = "import sys; sys.stdout.write('%d.%d.%d' % sys.version_info[:3])"
    told = subprocess.run([python, "-E", "-c", code], capture_output=True, text=True, check=False)
    return tuple(map(int, told.stdout.split("."))) if told.returncode == 0 else None


def _text(version: Version) -> str:
    return ".".join(map(str, version))
