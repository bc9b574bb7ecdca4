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
import errno
import logging
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from windrow.common.beneath import Refused, make_folder
from windrow.common.conda_builder import INSTALL, has_conda_builder
from windrow.common.interpreter import NoInterpreter, find_interpreter
from windrow.common.journal import say
from windrow.common.removal import discard_tree
from windrow.rpc.v1 import work_pb2 as work

from windrow_agent.environments.build import Build, DoesNotRun, Stated, stated_version
from windrow_agent.environments.builders import Builders, UnconfinedBuilders
from windrow_agent.environments.cache import Cache, Lock, user_cache
from windrow_agent.environments.environment_spec import (
    EnvironmentSpec,
    build_variables,
    conda_variables,
    environment_spec,
)
from windrow_agent.environments.failures import EnvironmentFailed
from windrow_agent.environments.process import POLL_S, Abandoned
from windrow_agent.workers.capture import CapturedFile

if TYPE_CHECKING:
    from windrow_agent.node.control_groups import ControlGroups

_NO_BUILDER = (
    "windrow: warning: PyPI does not have all packages of this conda list, and conda's own cannot be installed here: "
    f"what PyPI has is. To have the whole list from its channels: {INSTALL}, in the agent's Python"
)
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


def folder_of(
    configured: Path | None, agent_folder: Path, environment: Mapping[str, str], *, follows_links: bool = True
) -> Path:
    """The folder for environments: the configured one; or the user's cache, which all agents on the machine share; or,
    if that cannot be written, one in the agent's own folder. A path without links; except for the first one, it is
    there. `follows_links`: also those in the user's HOME and the agent's folder, which a script may have laid.

    Raises OSError.
    """
    if configured is not None:
        return Path(os.path.realpath(configured))
    cache = user_cache(environment)
    if cache is not None:
        above = Path(environment.get("XDG_CACHE_HOME") or environment["HOME"])
        folder = Path(os.path.realpath(above), cache.relative_to(above))
        try:
            return _made(folder, follows_links)
        except OSError:
            pass
    return _made(Path(os.path.realpath(agent_folder)) / "environments", follows_links)


def _made(folder: Path, follows_links: bool) -> Path:
    """Makes a folder, unless it is there; returns where it is. Raises OSError, also if it cannot be written."""
    if follows_links:
        folder.mkdir(parents=True, exist_ok=True)
        folder = Path(os.path.realpath(folder))
    else:
        make_folder(folder)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
    return folder


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
        builders: Builders | None = None,
        groups: ControlGroups | None = None,
    ) -> None:
        """`folder` finds the cache when it is needed; `own_folder`: the agent's. `builders`: how builders are confined;
        None: they are not. `groups`: the control groups of the node, if it has some.
        """
        self._has_begun = False
        self._builders: Builders = UnconfinedBuilders(own_folder) if builders is None else builders
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
        except Refused as error:
            raise EnvironmentFailed(str(error), of_node=True) from error
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
        start = self._builders.start([code, *reads], [], code)
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
        folders = await asyncio.to_thread(self._builders.folders, self._environment, cache.folder)
        environment: Mapping[str, str] = {**self._environment, **folders.variables}
        private = None
        if self._builders.has_own_home:
            private = await asyncio.to_thread(self._private)
            environment = {name: value for name, value in environment.items() if not name.startswith("XDG_")}
        builds = environment if private is None else {**environment, **_homes(private / "build")}
        fetches = environment if private is None else {**environment, **_homes(private / "fetch")}
        homes = [] if private is None else [private / "build"]
        build = Build(
            spec,
            place,
            variables=build_variables(builds),
            conda_variables=conda_variables(builds),
            fetch_variables=build_variables(fetches),
            lock=lock.descriptor,
            log=log,
            wanted=is_wanted,
            start=self._builders.start(
                [*self._python_of(spec), *folders.pythons], [place, *folders.caches, *homes], None
            ),
            start_fetch=self._builders.start(
                [], [*folders.pythons, *([] if private is None else [private / "fetch"])], private or self._own_folder
            ),
            give=self._builders.give,
            groups=self._groups,
        )
        self._builds.add(build)
        try:
            await build.run()
        finally:
            self._builds.discard(build)
            if private is not None:
                await asyncio.to_thread(discard_tree, private)
        await asyncio.to_thread(self._builders.take_back, place)
        facts: dict[str, object] = {"python": spec.python, "requirements": spec.requirements.splitlines()}
        facts["interpreter"] = build.interpreter
        if spec.conda is not None:
            facts |= {"conda": list(spec.conda.specs), "channels": list(spec.conda.channels)}
        await asyncio.to_thread(cache.finish, spec.digest, facts)

    def _private(self) -> Path:
        """Makes a folder with a HOME and a TMPDIR for builders, in `build`, and for a fetch, which is the agent's, in
        `fetch`. Raises OSError.
        """
        if not self._has_begun:
            # An agent that was killed has left its own.
            self._has_begun = True
            for left in self._own_folder.glob("build-*"):
                discard_tree(left)
        folder = Path(tempfile.mkdtemp(prefix="build-", dir=os.path.realpath(self._own_folder)))
        folder.chmod(0o711)
        for who in ("build", "fetch"):
            for path in (folder / who, folder / who / "home", folder / who / "tmp"):
                path.mkdir()
                if who == "build":
                    self._builders.give(path)
        return folder

    def _python_of(self, spec: EnvironmentSpec) -> list[Path]:
        """What a builder reads of the Python that an environment is based on, if that is one of this node's."""
        if "/" not in spec.python:
            return []
        real = Path(os.path.realpath(spec.python))
        return [Path(spec.python).parent.parent, real.parent, real.parent.parent]

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


def _homes(folder: Path) -> dict[str, str]:
    return {"HOME": str(folder / "home"), "TMPDIR": str(folder / "tmp")}


def _write(log: CapturedFile, text: str) -> None:
    log.write(f"{text}\n".encode())
