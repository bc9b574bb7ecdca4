"""Confines what builds environments. So the code of packages stops neither the agent nor other jobs, and gets no file
of Windrow's that is closed. Where jobs have users, builders have one, too: it can change no complete environment.

Under `strict`, a builder reads the system, the Pythons of this machine and what the operator gives to all jobs
(`--allow-path`), and writes the environment that it builds, its caches, and a HOME and TMPDIR of its own. Under `given`
and `auto` it is confined as `auto` does it. The network is open in either.

Interpreters that uv has fetched lie beside the environments, unless the operator names another place. Only the fetch
itself writes there: it runs no code of a package, as the agent's user, with a HOME of its own where builds have one.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from windrow.common.beneath import LinkRefused, Refused, make_folder
from windrow.common.journal import say

from windrow_agent.config import AgentConfig
from windrow_agent.environments.builders import CACHES, PYTHONS, BuilderFolders, cache_home, caches_in
from windrow_agent.environments.cache import PYTHONS as PYTHONS_BESIDE
from windrow_agent.sandbox.access_lists import NotGiven, real_place, take_tree
from windrow_agent.sandbox.confinement import is_below
from windrow_agent.sandbox.policy import Given, Sandbox, real_paths

START = Path(__file__).with_name("start.py")
_BY_DEFAULT = {"UV_CACHE_DIR": "uv", "RATTLER_CACHE_DIR": "rattler/cache"}
"""Where builders keep downloads in the user's cache."""


def variables_of_builders(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of the agent for builders that have a user of their own: nothing that leads to the agent's HOME,
    which they could not read.
    """
    left_out = ("HOME", *CACHES)
    return {name: value for name, value in environment.items() if name not in left_out and not name.startswith("XDG_")}


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
    """The sandbox of all builders of this node (`environments.builders.Builders`). Not a worker's."""

    def __init__(self, config: AgentConfig, environment: Mapping[str, str], user: int | None = None) -> None:
        """`user`: of builders; None: that of the agent."""
        self._user = user
        self._is_confined = config.sandbox != "off"
        self._is_strict = config.sandbox == "strict"
        self._own = Path(os.path.realpath(config.folder))
        self.has_own_home = self._is_strict or user is not None
        """Otherwise, a package could leave settings for later builds in HOME."""
        mode = "strict" if self._is_strict else "auto"
        self._sandbox = Sandbox(dataclasses.replace(config, sandbox=mode), environment)
        self._path = environment.get("PATH", "")

    def start(self, read: Sequence[Path], write: Sequence[Path], of: Path | None = None) -> list[str]:
        """The words before a command. `read`, `write`: what it needs of Windrow's folders. `of`: where jobs have users,
        a file whose user it becomes; None: that of builders.
        """
        user = self._user if self._user is None or of is None else of.stat().st_uid
        given = Given(execute=real_paths(*read), write=real_paths(*write))
        if self._is_strict:
            given.execute += installed_pythons(self._path)
            self._sandbox.give_to_all(given)
        policy = {**self._sandbox.policy(given, {}, None, user), "confined": self._is_confined}
        return [sys.executable, "-I", str(START), json.dumps(policy)]

    def give(self, path: Path) -> None:
        """Gives a new folder, whose path goes through no link, to builders. Raises OSError."""
        if self._user is not None:
            make_folder(path, self._user)

    def take_back(self, path: Path) -> None:
        """An environment is complete: no builder changes it any more. Raises OSError."""
        if self._user is not None:
            take_tree(path, self._user)

    def folders(self, environment: Mapping[str, str], environments: Path) -> BuilderFolders:
        """Makes the folders that all builds share. In none of their paths a link is followed that a script may have
        laid, also under an earlier agent with a sandbox that let it. Raises OSError.
        """
        found = BuilderFolders()
        for name, own in caches_in(self._own).items():
            if environment.get(name, "").startswith("/"):
                place = self._named(name, environment[name])
            elif self.has_own_home or not cache_home(environment):
                place = self._default(name, environment, own)
            else:
                continue
            if self._user is not None:
                make_folder(place, self._user)
            found.variables[name] = place
            found.caches.append(Path(place))
        if environment.get(PYTHONS, "").startswith("/"):
            place = self._named(PYTHONS, environment[PYTHONS])
        else:
            place = str(environments / PYTHONS_BESIDE)
            make_folder(place)
        found.variables[PYTHONS] = place
        found.pythons.append(Path(place))
        return found

    def _named(self, name: str, path: str) -> str:
        """Makes a folder that a variable of the agent names; returns where it is. Links of root are followed."""
        try:
            real = real_place(path)
        except NotGiven as error:
            raise Refused(
                errno.ELOOP,
                f"the folder that {name} names is not used: {error}. Let {name} name the folder that it leads to",
            ) from error
        closed = next((one for one in self._sandbox.closed if is_below(real, one) or is_below(one, real)), "")
        if closed and real != os.path.normpath(path):
            raise Refused(
                errno.EACCES,
                f"the folder that {name} names is not used: {path} leads by a link to {real}, and {closed} is "
                f"Windrow's. Remove the link, or let {name} name another folder",
            )
        return real

    def _default(self, name: str, environment: Mapping[str, str], own: str) -> str:
        """Makes a cache where the builder has it by default, or in the agent's folder; returns where it is."""
        if cache := cache_home(environment):
            # What is above the user's HOME is not the user's to change.
            home = environment.get("XDG_CACHE_HOME") or environment["HOME"]
            place = f"{os.path.realpath(home)}{cache.removeprefix(home)}/{_BY_DEFAULT[name]}"
            try:
                make_folder(place)
                return place
            except LinkRefused as error:
                say(logging.WARNING, f"downloads of builders are kept in {own}", why=str(error))
        make_folder(own)
        return own
