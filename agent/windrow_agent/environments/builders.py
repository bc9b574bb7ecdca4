"""What builders of environments may reach, as far as the provider of environments needs to know it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

CACHES = ("UV_CACHE_DIR", "RATTLER_CACHE_DIR")
"""The variables that name the folders in which builders keep downloads."""
PYTHONS = "UV_PYTHON_INSTALL_DIR"
"""The variable that names the folder of the interpreters that uv has fetched."""


@dataclass(slots=True)
class BuilderFolders:
    """Folders that all builds of a node share. `variables`: those that name them. `caches`: what builders write;
    `pythons`: what they only read. All of them are there, and their paths go through no link.
    """

    variables: dict[str, str] = field(default_factory=dict)
    caches: list[Path] = field(default_factory=list)
    pythons: list[Path] = field(default_factory=list)


class Builders(Protocol):
    """Starts builders, and gives them their folders. `has_own_home`: each build has a HOME and a TMPDIR of its own."""

    has_own_home: bool

    def start(self, read: Sequence[Path], write: Sequence[Path], of: Path | None = None) -> list[str]:
        """The words before a command that reads and writes these paths, which confine it. `of`: where jobs have users,
        a file whose user it becomes; None: that of builders.
        """

    def give(self, path: Path) -> None:
        """Gives a new folder to builders, which may be another user's. Raises OSError."""

    def take_back(self, path: Path) -> None:
        """An environment is complete: no builder changes it any more. Raises OSError."""

    def folders(self, environment: Mapping[str, str], environments: Path) -> BuilderFolders:
        """Makes the folders that all builds share. `environment`: the agent's variables, `environments`: the folder of
        environments. Raises OSError.
        """


class UnconfinedBuilders:
    """Builders that may do what the agent's user may. `own`: a folder for their downloads where there is no HOME that
    can be written.
    """

    has_own_home = False

    def __init__(self, own: Path) -> None:
        self._own = own

    def start(self, read: Sequence[Path], write: Sequence[Path], of: Path | None = None) -> list[str]:
        """None: nothing is confined."""
        del read, write, of
        return []

    def give(self, path: Path) -> None:
        """They are the agent's user already."""

    def take_back(self, path: Path) -> None:
        """It is the agent's user's already."""

    def folders(self, environment: Mapping[str, str], environments: Path) -> BuilderFolders:
        """Where uv and rattler keep what they have by default, as they do for whoever uses them without Windrow."""
        del environments
        missing = {} if cache_home(environment) else caches_in(self._own)
        return BuilderFolders({name: path for name, path in missing.items() if not environment.get(name)})


def cache_home(environment: Mapping[str, str]) -> str:
    """The user's cache, by the agent's variables, if it can be written; otherwise ""."""
    home, cache = environment.get("HOME", ""), environment.get("XDG_CACHE_HOME", "")
    above = cache or home
    if not above.startswith("/") or not os.access(above, os.W_OK | os.X_OK):
        return ""
    return cache or f"{home}/.cache"


def caches_in(own: Path) -> dict[str, str]:
    """The caches of builders in a folder of the agent's, by the variable that names them."""
    return {"UV_CACHE_DIR": str(own / "uv-cache"), "RATTLER_CACHE_DIR": str(own / "rattler-cache")}
