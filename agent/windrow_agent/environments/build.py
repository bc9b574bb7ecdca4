"""Runs the builders of an environment: uv, and before it rattler for a list that is built with conda's packages."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from windrow.common.interpreter import PROBE, PROBE_S
from windrow.common.signal_names import signal_name
from windrow.rpc.v1 import work_pb2 as work

from windrow_agent.environments.environment_spec import EnvironmentSpec
from windrow_agent.environments.failures import RATTLER, UV, Builder, EnvironmentFailed, failure_of
from windrow_agent.environments.process import Abandoned, Process
from windrow_agent.workers.capture import CapturedFile
from windrow_agent.workers.variables import passed_variables

_WORDS_BYTES = 64 << 10
_UNWRITTEN = 120
"""The exit code of a Python that could not write its output."""


class Stated(NamedTuple):
    """The Python version of an environment, and which of the wanted libraries it lacks."""

    version: str
    missing: list[str]


def find_uv() -> str:
    """The path of uv, which is installed with Windrow. Raises EnvironmentFailed."""
    try:
        from uv import find_uv_bin

        return str(find_uv_bin())
    except (ImportError, FileNotFoundError) as error:
        raise EnvironmentFailed(
            f"uv, which builds environments, is not in the agent's environment ({error}). Install windrow again, or "
            "run scripts in the agent's own Python (--environments own)",
            of_node=True,
        ) from error


class Build:
    """Builds one environment. The caller holds its exclusive lock; `lock` is the descriptor of that."""

    def __init__(
        self,
        spec: EnvironmentSpec,
        place: Path,
        *,
        variables: Mapping[str, str],
        conda_variables: Mapping[str, str],
        lock: int,
        log: CapturedFile,
        wanted: Callable[[], bool],
    ) -> None:
        """`variables` are those of uv. `log` gets the output of the builders; `wanted` says whether to continue."""
        self._spec = spec
        self._place = place
        self._variables = variables
        self._conda_variables = conda_variables
        self._lock = lock
        self._log = log
        self._wanted = wanted
        self._process: Process | None = None

    async def run(self) -> None:
        """Builds it. Raises EnvironmentFailed, Abandoned, OSError."""
        uv = find_uv()
        spec, place = self._spec, self._place
        if spec.conda is not None:
            await self._conda(spec.conda)
        else:
            asked = f"Python {spec.python}" if "/" not in spec.python else spec.python
            what = f"no environment could be built with {asked}"
            await self._uv(what, uv, "venv", "--python", spec.python, str(place))
        if spec.is_bare:
            return
        lists = []
        for name, text in (("requirements", spec.requirements), ("constraints", spec.constraints)):
            if text:
                file = place / f"{name}.txt"
                file.write_text(text)
                lists += [f"--{name[:-1]}" if name == "constraints" else "--requirements", str(file)]
        await self._uv(
            "its packages could not be installed",
            *(uv, "pip", "install", "--python", str(place / "bin" / "python")),
            *lists,
            *(_flag(option) for option in spec.options),
        )

    def kill(self) -> None:
        """Kills the builder at work and its children."""
        if self._process is not None:
            self._process.kill()

    async def _conda(self, conda: work.CondaList) -> None:
        self._place.mkdir()
        file = self._place / "conda.json"
        file.write_text(json.dumps({"specs": list(conda.specs), "channels": list(conda.channels)}))
        await self._run(
            "its conda packages could not be installed",
            (sys.executable, "-u", "-P", "-m", "windrow_agent.environments.conda_install", str(file), str(self._place)),
            self._conda_variables,
            RATTLER,
        )

    async def _uv(self, what: str, *command: str) -> None:
        await self._run(what, command, self._variables, UV)

    async def _run(self, what: str, command: Sequence[str], variables: Mapping[str, str], builder: Builder) -> None:
        output = self._log.open_for_writing()
        try:
            begin = os.fstat(output).st_size
            self._process = Process(command, variables, output=output, folder=self._place.parent, kept_open=self._lock)
            code = await self._process.wait(self._wanted)
            if code != 0:
                words = self._log.tail(min(_WORDS_BYTES, os.fstat(output).st_size - begin))
                if code < 0:
                    words += f"\nerror: {builder.name} was killed by {signal_name(-code)}".encode()
                raise failure_of(what, words.decode(errors="replace"), builder)
        finally:
            os.close(output)


def _flag(option: str) -> str:
    """A command-line option of uv for an option of pip that is not a line of a requirements file."""
    if option == "--pre":
        return "--prerelease=allow"
    return option.replace("--trusted-host=", "--allow-insecure-host=")


class DoesNotRun(Exception):
    """The Python of an environment is gone, or does not run; the text says which."""


async def stated_version(python: Path, code: Path, libraries: Sequence[str], agent: Mapping[str, str]) -> Stated:
    """Asks an environment's Python for its version and missing libraries. Packages may run code when Python starts, so
    it gets only those environment variables of the `agent` that workers get.

    Raises DoesNotRun; EnvironmentFailed if it could not be asked, which says nothing about it; OSError.
    """
    begun = time.monotonic()
    variables = passed_variables(agent, built=str(python.parent.parent))
    with tempfile.TemporaryFile() as output:
        try:
            process = Process([str(python), PROBE, str(code), *libraries], variables, output=output.fileno())
            exit_code = await process.wait(lambda: time.monotonic() - begun < PROBE_S)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise DoesNotRun(str(error)) from error
        except (OSError, Abandoned) as error:
            why = str(error) if isinstance(error, OSError) else f"it did not answer within {PROBE_S:g} s"
            raise _not_asked(python, why) from error
        output.seek(0)
        said = output.read().decode(errors="replace").strip()
    if exit_code < 0:
        raise _not_asked(python, f"it was killed by {signal_name(-exit_code)}")
    if exit_code == _UNWRITTEN:
        raise _not_asked(python, "its output could not be written; the disk for temporary files may be full")
    words = said.split()
    if exit_code != 0 or "windrow:" not in words:
        last = f": {said.splitlines()[-1]}" if said else ""
        raise DoesNotRun(f"it ended with exit code {exit_code}{last}")
    begin = len(words) - words[::-1].index("windrow:")
    return Stated(words[begin], words[begin + 1 :])


def _not_asked(python: Path, why: str) -> EnvironmentFailed:
    return EnvironmentFailed(
        f"its Python, {python}, could not be run: {why}. Check the memory, the disk and the load of this node; if it "
        f"never runs, remove {python.parent.parent}",
        of_node=True,
    )
