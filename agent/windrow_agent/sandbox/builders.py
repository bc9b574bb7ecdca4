"""Confines what builds environments. So the code of packages stops neither the agent nor other jobs, and gets no file
of Windrow's that is closed. Where jobs have users, builders have one, too: it can change no complete environment.

Under `strict`, a builder reads the system, the Pythons of this machine and what the operator gives to all jobs
(`--allow-path`), and writes the environment that it builds, its caches, and a HOME and TMPDIR of its own. Under `given`
and `auto` it is confined as `auto` does it. The network is open in either.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from windrow_agent.config import AgentConfig
from windrow_agent.sandbox.policy import Given, Sandbox, real_paths

START = Path(__file__).with_name("start.py")


_FOLDERS = ("UV_CACHE_DIR", "UV_PYTHON_INSTALL_DIR", "RATTLER_CACHE_DIR")


def variables_of_builders(folder: Path, environment: Mapping[str, str], user: int) -> dict[str, str]:
    """The variables of the agent for builders that have a user of their own, whose HOME is in the agent's `folder`.
    Raises OSError.
    """
    home = folder / "builder"
    home.mkdir(exist_ok=True)
    # All may read it: a Python that a builder has fetched is there.
    home.chmod(0o755)
    os.chown(home, user, user)
    kept = {name: value for name, value in environment.items() if name not in _FOLDERS and not name.startswith("XDG_")}
    return kept | {"HOME": str(home)}


def installed_pythons(path: str) -> list[str]:
    """What the Pythons that a PATH names need, as real paths: a builder may be asked for any of them."""
    found: list[str] = []
    for folder in path.split(os.pathsep):
        if not folder.startswith("/"):
            continue
        for python in {Path(os.path.realpath(one)) for one in Path(folder).glob("python3*")}:
            above = python.parent.parent
            # Not all that is above: that may be a home folder.
            found += [str(python.parent), *(str(above / name) for name in ("lib", "include", "pyvenv.cfg"))]
    return list(dict.fromkeys(found))


class BuilderSandbox:
    """The sandbox of all builders of this node. Not a worker's."""

    def __init__(self, config: AgentConfig, environment: Mapping[str, str], user: int | None = None) -> None:
        """`user`: of builders; None: that of the agent."""
        self._user = user
        self._is_confined = config.sandbox != "off"
        self.is_strict = config.sandbox == "strict"
        """Builders write nothing but what they are given: they need a HOME and a TMPDIR of their own."""
        mode = "strict" if self.is_strict else "auto"
        self._sandbox = Sandbox(dataclasses.replace(config, sandbox=mode), environment)
        self._path = environment.get("PATH", "")

    def start(self, read: Sequence[Path], write: Sequence[Path], of: Path | None = None) -> list[str]:
        """The words before a command. `read`, `write`: what it needs of Windrow's folders. `of`: where jobs have users,
        a file whose user it becomes; None: that of builders.
        """
        user = self._user if self._user is None or of is None else of.stat().st_uid
        given = Given(write=real_paths(*write))
        if self.is_strict:
            given.execute = [*real_paths(*read), *installed_pythons(self._path)]
            self._sandbox.give_to_all(given)
        else:
            given.read = real_paths(*read)
        policy = {**self._sandbox.policy(given, {}, None, user), "confined": self._is_confined}
        return [sys.executable, "-I", str(START), json.dumps(policy)]
