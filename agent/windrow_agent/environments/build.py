"""Runs uv, until an environment is whole."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from windrow_agent.environments.recipe import Recipe
from windrow_agent.environments.verdict import EnvironmentFailed, failure_of
from windrow_agent.workers.capture import CapturedFile

POLL_S = 0.1
_WORDS_BYTES = 64 << 10


class BuildAbandoned(Exception):
    """Nobody wants the environment any more."""


def find_uv() -> str:
    """The path of uv, which is installed with Windrow. Raises EnvironmentFailed."""
    try:
        from uv import find_uv_bin

        return str(find_uv_bin())
    except (ImportError, FileNotFoundError) as error:
        raise EnvironmentFailed(
            f"uv, which builds environments, is not installed beside the agent ({error}). Install windrow again; or "
            "let scripts run in the agent's own Python (--environments own)",
            of_node=True,
        ) from error


class Build:
    """Makes one environment. Whoever runs it holds its exclusive lock, of which `lock` is the descriptor."""

    def __init__(
        self,
        recipe: Recipe,
        place: Path,
        *,
        variables: Mapping[str, str],
        lock: int,
        log: CapturedFile,
        wanted: Callable[[], bool],
    ) -> None:
        """`log`: gets uv's words; `wanted`: whether to go on."""
        self._recipe = recipe
        self._place = place
        self._variables = variables
        self._lock = lock
        self._log = log
        self._wanted = wanted
        self._process: subprocess.Popen[bytes] | None = None

    async def run(self) -> None:
        """Raises EnvironmentFailed, BuildAbandoned, OSError."""
        uv = find_uv()
        recipe, place = self._recipe, self._place
        asked = f"Python {recipe.python}" if "/" not in recipe.python else recipe.python
        await self._uv(f"no environment could be made with {asked}", uv, "venv", "--python", recipe.python, str(place))
        if recipe.is_bare:
            return
        lists = []
        for name, text in (("requirements", recipe.requirements), ("constraints", recipe.constraints)):
            if text:
                file = place / f"{name}.txt"
                file.write_text(text)
                lists += [f"--{name[:-1]}" if name == "constraints" else "--requirements", str(file)]
        await self._uv(
            "its packages could not be installed",
            *(uv, "pip", "install", "--python", str(place / "bin" / "python")),
            *lists,
            *(_flag(option) for option in recipe.options),
        )

    def kill(self) -> None:
        """Ends uv and what it has started."""
        if self._process is not None and self._process.returncode is None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    async def _uv(self, what: str, *command: str) -> None:
        output = self._log.open_for_writing()
        try:
            begin = os.fstat(output).st_size
            self._process = self._start(command, output)
            code = await self._wait(self._process)
            if code != 0:
                words = self._log.tail(min(_WORDS_BYTES, os.fstat(output).st_size - begin))
                if code < 0 and not words.strip():
                    words = f"uv was ended by {_name(-code)}".encode()
                raise failure_of(what, words.decode(errors="replace"))
        finally:
            os.close(output)

    def _start(self, command: Sequence[str], output: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            cwd=self._place.parent,
            env=dict(self._variables),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=[self._lock],
            process_group=0,
        )

    async def _wait(self, process: subprocess.Popen[bytes]) -> int:
        try:
            while (code := process.poll()) is None:
                if not self._wanted():
                    raise BuildAbandoned
                await asyncio.sleep(POLL_S)
        except BaseException:
            self.kill()
            await asyncio.shield(asyncio.to_thread(process.wait))
            raise
        return code


def _flag(option: str) -> str:
    """An option of pip's as uv calls it, where it is no line of a requirements file."""
    if option == "--pre":
        return "--prerelease=allow"
    return option.replace("--trusted-host=", "--allow-insecure-host=")


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def stated_version(python: Path, code: Path, libraries: Sequence[str]) -> tuple[str, list[str]] | None:
    """The version of an environment's Python, and which libraries it lacks; None: it does not run."""
    from windrow.interpreter import LOOK, LOOK_S

    try:
        done = subprocess.run(
            [str(python), LOOK, str(code), *libraries],
            env={name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LOOK_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    words = done.stdout.decode(errors="replace").split()
    if done.returncode != 0 or "windrow:" not in words:
        return None
    begin = len(words) - words[::-1].index("windrow:")
    return words[begin], words[begin + 1 :]
