"""The environments of this agent's steps: found in the cache, or built, while their steps wait.

States of an environment, for one step::

    WANTED ──complete in the cache──► HELD ──step dropped──► (released)
       └──lock──► BUILDING ──complete──► HELD
                     ├──a builder failed, the node's fault──► BUILDING again, at most TRIES times
                     └──a builder failed, or the step is dropped──► FAILED

If several steps of one agent want the same environment, one builds it and the others wait. If that step is dropped, the
next one starts again; the builders have cached their downloads.
"""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from windrow.common.conda_builder import INSTALL, has_conda_builder
from windrow.common.interpreter import NoInterpreter, find_interpreter
from windrow.common.journal import say
from windrow.common.removal import discard_tree
from windrow.rpc.v1 import work_pb2 as work

from windrow_agent.environments.build import Build, DoesNotRun, Stated, stated_version
from windrow_agent.environments.cache import Cache, Lock, user_cache
from windrow_agent.environments.environment_spec import (
    EnvironmentSpec,
    build_variables,
    conda_variables,
    environment_spec,
    folders_of_builders,
)
from windrow_agent.environments.failures import RATTLER, UV, Builder, EnvironmentFailed
from windrow_agent.environments.process import POLL_S, Abandoned
from windrow_agent.workers.capture import CapturedFile

if TYPE_CHECKING:
    from windrow_agent.node.control_groups import ControlGroups

_NO_BUILDER = (
    "windrow: warning: PyPI does not have all packages of this conda list, and conda's own cannot be installed here: "
    f"what PyPI has is. To have the whole list from its channels: {INSTALL}, in the agent's Python"
)
_FOLDERS_OF_BUILDERS = ("UV_CACHE_DIR", "UV_PYTHON_INSTALL_DIR", "RATTLER_CACHE_DIR")
"""Variables of the agent that name some."""
TRIES = 2
PAUSE_S = 3.0


@dataclass(slots=True)
class Held:
    """An environment that a step uses; release it. `reads`: what must be readable to run it; `missing`: the libraries
    asked for that it lacks.
    """

    folder: Path
    python: Path
    reads: list[Path]
    version: str
    missing: list[str]
    lock: Lock

    def release(self) -> None:
        """May be called again."""
        self.lock.release()


def folder_of(configured: Path | None, agent_folder: Path, environment: Mapping[str, str]) -> Path:
    """The folder for environments: the configured one; or the user's cache, which all agents on the machine share; or,
    if that cannot be written, one in the agent's own folder.
    """
    if configured is not None:
        return configured
    folder = user_cache(environment)
    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            pass
        else:
            if os.access(folder, os.W_OK | os.X_OK):
                return folder
    return agent_folder / "environments"


class Environments:
    """Provides the environments that steps ask for. `python`: the configured interpreter, if any.

    Not the client's `Environments`, which is the value of an option.
    """

    def __init__(
        self,
        folder: Callable[[], Path],
        python: str | None,
        environment: Mapping[str, str],
        own_folder: Path,
        start: Callable[[Sequence[Path], Sequence[Path], Path | None], Sequence[str]] = lambda read, write, of: (),
        give: Callable[[Path], None] = lambda path: None,
        take_back: Callable[[Path], None] = lambda path: None,
        is_strict: bool = False,
        groups: ControlGroups | None = None,
    ) -> None:
        """`folder` finds the cache when it is needed; `own_folder`: for downloads, if the user's cache cannot be
        written. `start`: the words before a command that reads and writes these paths, which confine it, and make it
        the user's whose file the third one is. `give`, `take_back`: of a folder that builders, which may be another
        user's, write. `is_strict`: they can write nothing else. `groups`: the control groups of the node, if it has
        some.
        """
        self._is_strict = is_strict
        self._has_begun = False
        self._start = start
        self._give = give
        self._take_back = take_back
        self._groups = groups
        self._folder = folder
        self._python = python
        self._environment = environment
        self._own_folder = own_folder
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._builds: set[Build] = set()

    async def provide(
        self,
        wanted: work.Environment,
        *,
        code: Path,
        libraries: tuple[str, ...],
        log: CapturedFile,
        is_wanted: Callable[[], bool],
        on_build: Callable[[], None],
    ) -> Held:
        """Provides an environment. `log` gets what builders print; `on_build` is called if it has to be built or waited
        for.

        Raises EnvironmentFailed, or Abandoned if `is_wanted` returns False.
        """
        try:
            own = find_interpreter(self._python, self._environment)
        except NoInterpreter as error:
            raise EnvironmentFailed(str(error), of_node=True) from error
        try:
            cache = Cache(await asyncio.to_thread(self._folder))
            spec = environment_spec(wanted, own, builds_conda=has_conda_builder())
            if spec.conda is None and wanted.HasField("conda"):
                _write(log, _NO_BUILDER)
            turn = self._turns.setdefault(spec.digest, asyncio.Lock())
            if turn.locked():
                on_build()
                _write(log, "windrow: another step on this node is building or checking this environment; waiting")
                while turn.locked():
                    await self._pause(POLL_S, is_wanted)
            async with turn:
                try:
                    held = await self._held(cache, spec, code, libraries, is_wanted)
                except DoesNotRun as why:
                    _write(log, f"windrow: the environment is built again, since its Python no longer runs: {why}")
                    held = None
                while held is None:
                    on_build()
                    await self._build(cache, spec, log, is_wanted)
                    held = await self._held(cache, spec, code, libraries, is_wanted)
                return held
        except DoesNotRun as why:
            raise EnvironmentFailed(
                f"the Python of the built environment does not run: {why}. A package in it may run code when "
                "Python starts: correct the conda_file, or run scripts in your own Python (--python PATH)",
                of_node=False,
            ) from why
        except OSError as error:
            raise EnvironmentFailed(
                f"the node cannot store it: {error}. Check the disk and the permissions of its environments folder, "
                "or choose another one (windrow agent --environments-folder DIR)",
                of_node=True,
            ) from error

    def close(self) -> None:
        """Kills all builds. The next build removes what they leave."""
        for build in self._builds:
            build.kill()

    async def _held(
        self, cache: Cache, spec: EnvironmentSpec, code: Path, libraries: tuple[str, ...], is_wanted: Callable[[], bool]
    ) -> Held | None:
        """A complete environment whose Python still runs: the interpreter that it is based on may be gone.

        Raises DoesNotRun (it was removed), EnvironmentFailed, Abandoned, OSError.
        """
        lock = cache.try_share(spec.digest)
        if lock is None:
            return None
        python = cache.python(spec.digest)
        try:
            reads = await asyncio.to_thread(cache.read_places, spec.digest)
            stated = await self._stated(python, reads, code, libraries, is_wanted)
        except DoesNotRun as why:
            lock.release()
            own = cache.try_lock(spec.digest)
            if own is None:
                raise EnvironmentFailed(
                    f"{python} no longer runs ({why}), and other steps still use it. Remove "
                    f"{python.parent.parent} when they have ended",
                    of_node=True,
                ) from why
            await asyncio.to_thread(cache.remove, spec.digest)
            own.release()
            raise
        except BaseException:
            lock.release()
            raise
        cache.note_use(spec.digest)
        return Held(python.parent.parent, python, reads, stated.version, stated.missing, lock)

    async def _stated(
        self,
        python: Path,
        reads: Sequence[Path],
        code: Path,
        libraries: tuple[str, ...],
        is_wanted: Callable[[], bool],
    ) -> Stated:
        start = self._start([code, *reads], [], code)
        for number in range(1, TRIES):
            try:
                return await stated_version(python, code, libraries, self._environment, start, self._groups)
            except EnvironmentFailed as failed:
                say(logging.WARNING, "environment could not be checked", why=str(failed))
                await self._pause(PAUSE_S * number, is_wanted)
        return await stated_version(python, code, libraries, self._environment, start, self._groups)

    async def _build(
        self, cache: Cache, spec: EnvironmentSpec, log: CapturedFile, is_wanted: Callable[[], bool]
    ) -> None:
        """Returns when the environment may be complete: built here, or meanwhile by another agent on this machine."""
        lock = await self._lock(cache, spec, log, is_wanted)
        try:
            if cache.is_whole(spec.digest):
                return
            begun = time.monotonic()
            for number in range(1, TRIES + 1):
                try:
                    await self._build_once(cache, spec, lock, log, is_wanted)
                    break
                except EnvironmentFailed as failed:
                    await asyncio.to_thread(cache.remove, spec.digest)
                    if not failed.of_node or number == TRIES:
                        raise
                    _write(log, f"windrow: this may be the node's network or disk; try {number + 1} of {TRIES}")
                    await self._pause(PAUSE_S * number, is_wanted)
                except BaseException:
                    await asyncio.to_thread(cache.remove, spec.digest)
                    raise
            took_s = time.monotonic() - begun
            say(logging.INFO, "environment built", digest=spec.digest, seconds=round(took_s, 1))
            _write(log, f"windrow: the environment is complete after {took_s:.1f} s: {cache.place(spec.digest)}")
            for digest in await asyncio.to_thread(cache.prune):
                say(logging.INFO, "environment removed", digest=digest)
        finally:
            lock.release()

    async def _lock(
        self, cache: Cache, spec: EnvironmentSpec, log: CapturedFile, is_wanted: Callable[[], bool]
    ) -> Lock:
        told = False
        while True:
            lock = cache.try_lock(spec.digest)
            if lock is not None:
                return lock
            if not told:
                _write(log, "windrow: another agent on this machine is building this environment; waiting")
                told = True
            await self._pause(POLL_S, is_wanted)

    async def _build_once(
        self, cache: Cache, spec: EnvironmentSpec, lock: Lock, log: CapturedFile, is_wanted: Callable[[], bool]
    ) -> None:
        await asyncio.to_thread(cache.remove, spec.digest)
        place = cache.place(spec.digest)
        environment, private = self._environment, None
        if self._is_strict:
            environment, private = await asyncio.to_thread(self._private)
        build = Build(
            spec,
            place,
            variables=build_variables(environment, self._cache_of(UV)),
            conda_variables=conda_variables(environment, self._cache_of(RATTLER)),
            lock=lock.descriptor,
            log=log,
            wanted=is_wanted,
            start=self._start(
                self._python_of(spec),
                [place, *self._folders_of_builders(environment), *([private] if private else [])],
                None,
            ),
            give=self._give,
            groups=self._groups,
        )
        self._builds.add(build)
        try:
            await build.run()
        finally:
            self._builds.discard(build)
            if private is not None:
                await asyncio.to_thread(discard_tree, private)
        await asyncio.to_thread(self._take_back, place)
        facts: dict[str, object] = {"python": spec.python, "requirements": spec.requirements.splitlines()}
        facts["interpreter"] = build.interpreter
        if spec.conda is not None:
            facts |= {"conda": list(spec.conda.specs), "channels": list(spec.conda.channels)}
        await asyncio.to_thread(cache.finish, spec.digest, facts)

    def _cache_of(self, builder: Builder) -> str:
        """A cache folder for a builder, if it could not write to its own; otherwise ""."""
        home = self._environment.get("XDG_CACHE_HOME") or self._environment.get("HOME", "")
        return "" if home and os.access(home, os.W_OK | os.X_OK) else str(self._own_folder / f"{builder.name}-cache")

    def _private(self) -> tuple[Mapping[str, str], Path]:
        """The variables of the agent for builders that write nothing but what they are given, and a new folder with
        their HOME and TMPDIR. Raises OSError.
        """
        if not self._has_begun:
            # An agent that was killed has left its own.
            self._has_begun = True
            for left in self._own_folder.glob("build-*"):
                discard_tree(left)
        folder = Path(tempfile.mkdtemp(prefix="build-", dir=self._own_folder))
        folder.chmod(0o711)
        variables = {name: value for name, value in self._environment.items() if not name.startswith("XDG_")}
        variables |= folders_of_builders(self._environment, self._own_folder)
        for name, below in (("HOME", "home"), ("TMPDIR", "tmp")):
            (folder / below).mkdir()
            variables[name] = str(folder / below)
        for path in (folder, folder / "home", folder / "tmp"):
            self._give(path)
        return variables, folder

    def _python_of(self, spec: EnvironmentSpec) -> list[Path]:
        """What a builder reads of the Python that an environment is based on, if that is one of this node's."""
        if "/" not in spec.python:
            return []
        real = Path(os.path.realpath(spec.python))
        return [Path(spec.python).parent.parent, real.parent, real.parent.parent]

    def _folders_of_builders(self, environment: Mapping[str, str]) -> list[Path]:
        """Where builders keep downloads and interpreters, as far as they are told. Raises OSError."""
        found = [self._cache_of(builder) for builder in (UV, RATTLER)]
        found += [environment.get(name, "") for name in _FOLDERS_OF_BUILDERS]
        places = [Path(place) for place in found if place.startswith("/")]
        for place in places:
            place.mkdir(parents=True, exist_ok=True)
            self._give(place)
        return places

    @staticmethod
    async def _pause(seconds: float, is_wanted: Callable[[], bool]) -> None:
        deadline = time.monotonic() + seconds
        while True:
            if not is_wanted():
                raise Abandoned
            left = deadline - time.monotonic()
            if left <= 0:
                return
            await asyncio.sleep(min(POLL_S, left))


def _write(log: CapturedFile, text: str) -> None:
    try:
        log.write(f"{text}\n".encode())
    except OSError:
        pass  # uv itself will report a full disk
