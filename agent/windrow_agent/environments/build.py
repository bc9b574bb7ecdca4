"""Runs uv, until an environment is whole."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from windrow.interpreter import LOOK, LOOK_S
from windrow.signal_names import signal_name

from windrow_agent.environments.process import Abandoned, Process
from windrow_agent.environments.recipe import Recipe
from windrow_agent.environments.verdict import EnvironmentFailed, failure_of
from windrow_agent.workers.capture import CapturedFile

_WORDS_BYTES = 64 << 10


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
        self._process: Process | None = None

    async def run(self) -> None:
        """Raises EnvironmentFailed, Abandoned, OSError."""
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
        if self._process is not None:
            self._process.kill()

    async def _uv(self, what: str, *command: str) -> None:
        output = self._log.open_for_writing()
        try:
            begin = os.fstat(output).st_size
            self._process = Process(
                command, self._variables, output=output, folder=self._place.parent, kept_open=self._lock
            )
            code = await self._process.wait(self._wanted)
            if code != 0:
                words = self._log.tail(min(_WORDS_BYTES, os.fstat(output).st_size - begin))
                if code < 0 and not words.strip():
                    words = f"uv was ended by {signal_name(-code)}".encode()
                raise failure_of(what, words.decode(errors="replace"))
        finally:
            os.close(output)


def _flag(option: str) -> str:
    """An option of pip's as uv calls it, where it is no line of a requirements file."""
    if option == "--pre":
        return "--prerelease=allow"
    return option.replace("--trusted-host=", "--allow-insecure-host=")


async def stated_version(
    python: Path, code: Path, libraries: Sequence[str], variables: Mapping[str, str]
) -> tuple[str, list[str]] | None:
    """The version of an environment's Python, and which libraries it lacks; None: it does not run."""
    begun = time.monotonic()
    own = {name: value for name, value in variables.items() if not name.startswith("PYTHON")}
    with tempfile.TemporaryFile() as output:
        try:
            process = Process([str(python), LOOK, str(code), *libraries], own, output=output.fileno())
            exit_code = await process.wait(lambda: time.monotonic() - begun < LOOK_S)
        except (OSError, Abandoned):
            return None
        output.seek(0)
        words = output.read().decode(errors="replace").split()
    if exit_code != 0 or "windrow:" not in words:
        return None
    begin = len(words) - words[::-1].index("windrow:")
    return words[begin], words[begin + 1 :]
