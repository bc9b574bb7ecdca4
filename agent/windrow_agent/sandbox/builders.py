"""Confines what builds environments: as `auto` does, whatever the mode but `off`, since builders need caches,
compilers, HOME and the network. So the code of packages stops neither the agent nor other jobs, and gets no file of
Windrow's that is closed. Where jobs have users, builders have one, too: it can change no environment that is complete.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from windrow_agent.config import AgentConfig
from windrow_agent.sandbox.policy import AUTO_ABI, Given, Sandbox, real_paths

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


class BuilderSandbox:
    """The sandbox of all builders of this node. Not a worker's."""

    def __init__(self, config: AgentConfig, environment: Mapping[str, str], user: int | None = None) -> None:
        """`user`: of builders; None: that of the agent."""
        self._user = user
        self._is_confined = config.sandbox != "off"
        self._abi = AUTO_ABI if config.sandbox == "strict" else 0
        self._sandbox = Sandbox(dataclasses.replace(config, sandbox="auto"), environment)

    def start(self, read: Sequence[Path], write: Sequence[Path], of: Path | None = None) -> list[str]:
        """The words before a command. `read`, `write`: what it needs of Windrow's folders. `of`: where jobs have users,
        a file whose user it becomes; None: that of builders.
        """
        user = self._user if self._user is None or of is None else of.stat().st_uid
        given = Given(read=real_paths(*read), write=real_paths(*write))
        policy = {**self._sandbox.policy(given, {}, None, user), "abi": self._abi, "confined": self._is_confined}
        return [sys.executable, "-I", str(START), json.dumps(policy)]
