"""Runs the builders of an environment: uv, and before it rattler for a list that is built with conda's packages."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.common.durable import create_anew
from windrow.common.interpreter import PROBE, PROBE_S
from windrow.common.journal import say
from windrow.common.signal_names import signal_name
from windrow.rpc.v1 import work_pb2 as work

from windrow_agent.environments.environment_spec import EnvironmentSpec
from windrow_agent.environments.failures import RATTLER, UV, Builder, EnvironmentFailed, failure_of
from windrow_agent.environments.process import Abandoned, Process
from windrow_agent.workers.capture import CapturedFile
from windrow_agent.workers.variables import passed_variables

if TYPE_CHECKING:
    from windrow_agent.node.control_groups import ControlGroups

_PATCH = re.compile(r"(\d+\.\d+)\.\d+")
"""A version of Python with its last number."""
_APART = ("--no-cache",)
"""Options of uv where it must not believe what an earlier build has left in its cache."""
_NO_DOWNLOADS = ("never", "manual", "false", "0", "no", "off")
"""Values of UV_PYTHON_DOWNLOADS with which uv fetches no Python by itself."""
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
        fetch_variables: Mapping[str, str],
        lock: int,
        log: CapturedFile,
        wanted: Callable[[], bool],
        start: Sequence[str],
        start_fetch: Sequence[str],
        groups: ControlGroups | None,
        give: Callable[[Path], None],
    ) -> None:
        """`variables` are those of uv, `fetch_variables` when it fetches a Python. `groups`: those of the node, if it
        has some. `start`: the words before each command, which confine it; `start_fetch`: before a fetch. `give`:
        called with the new folder, which such a command writes. `log` gets the output of the builders; `wanted` says
        whether to continue.
        """
        self._spec = spec
        self._place = place
        self._variables = variables
        self._conda_variables = conda_variables
        self._fetch_variables = fetch_variables
        self._lock = lock
        self._log = log
        self._wanted = wanted
        self._start = start
        self._start_fetch = start_fetch
        self._groups = groups
        self._give = give
        self._process: Process | None = None
        self.interpreter = ""
        """The real path of the Python from which it was made, once it is; "" for one of its own."""

    async def run(self) -> None:
        """Builds it. Raises EnvironmentFailed, Abandoned, OSError."""
        uv = find_uv()
        spec, place = self._spec, self._place
        # What is not there when a process is confined cannot be given to it.
        place.mkdir()
        self._give(place)
        if spec.conda is not None:
            await self._conda(spec.conda)
            await self._compile()
        else:
            await self._venv(uv)
            # Before any code of a package runs.
            self.interpreter = str((place / "bin" / "python").resolve())
            self._log.write(f"windrow: it is based on {self.interpreter}\n".encode())
        if spec.is_bare:
            return
        lists = []
        for name, text in (("requirements", spec.requirements), ("constraints", spec.constraints)):
            if text:
                file = self._written(f"{name}.txt", text)
                lists += [f"--{name[:-1]}" if name == "constraints" else "--requirements", str(file)]
        # It compiles only what it installs.
        await self._uv(
            "its packages could not be installed",
            *(uv, "pip", "install", "--compile-bytecode", "--python", str(place / "bin" / "python")),
            *lists,
            *(_flag(option) for option in spec.options),
        )

    def _written(self, name: str, text: str) -> Path:
        """Writes a file for a builder into the environment's folder. Code of packages may have written there already:
        what it has left under that name goes, and a link is not followed. Raises EnvironmentFailed, OSError.
        """
        file = self._place / name
        try:
            with open(create_anew(file), "w", encoding="utf-8") as out:
                out.write(text)
        except (FileExistsError, IsADirectoryError) as error:
            raise EnvironmentFailed(
                f"{file} cannot be written, since the code of a package makes something else there. Leave that package "
                "out of the list",
                of_node=False,
            ) from error
        return file

    async def _venv(self, uv: str) -> None:
        """Makes the virtual environment. Raises EnvironmentFailed, Abandoned, OSError.

        No code of a package runs meanwhile, nor does anything count that one has left: not even in uv's cache, which
        says where Pythons are.

        Lists pin the last number of a Python (3.8.5) for no reason of theirs: where that one is not here and cannot be
        fetched, one of the same minor version that is here serves, and the log says so.
        """
        wanted = self._spec.python
        asked = f"Python {wanted}" if "/" not in wanted else wanted
        what = f"no environment could be built with {asked}"

        def venv(python: str, quiet: str = "-q") -> tuple[str, ...]:
            return (uv, quiet, "venv", *_APART, "--no-python-downloads", "--python", python, str(self._place))

        if "/" in wanted or not self._may_fetch:
            refused = await self._refused(what, *venv(wanted))
        else:
            ended, _ = await self._ended(venv(wanted, "-qq"), self._variables)
            if ended == 0:
                return
            refused = await self._fetched(what, uv, wanted) or await self._refused(what, *venv(wanted))
        if refused is None:
            return
        minor = _PATCH.fullmatch(wanted)
        if minor is None or await self._refused(what, *venv(minor[1])) is not None:
            raise refused
        notice = (
            f"The list asks for Python {wanted}, which is not on this node and could not be fetched. Another "
            f"Python {minor[1]} that is here is used. Install the one wanted on the node to have it exactly"
        )
        self._log.write(f"warning: {notice}.\n".encode())
        say(logging.WARNING, notice)

    @property
    def _may_fetch(self) -> bool:
        """Whether uv may fetch a Python unasked, as its variables say."""
        return self._variables.get("UV_PYTHON_DOWNLOADS", "").lower() not in _NO_DOWNLOADS

    async def _fetched(self, what: str, uv: str, version: str) -> EnvironmentFailed | None:
        """Has uv fetch a Python, which later builders only read; returns why it could not."""
        self._log.write(f"windrow: Python {version} is not on this node, and uv fetches it\n".encode())
        command = (uv, "python", "install", *_APART, "--no-bin", version)
        return await self._refused(what, *command, start=self._start_fetch, variables=self._fetch_variables)

    async def _refused(self, what: str, *command: str, **more: Any) -> EnvironmentFailed | None:
        """Runs a command of uv; returns why it has failed, if it has."""
        try:
            await self._uv(what, *command, **more)
        except EnvironmentFailed as failed:
            return failed
        return None

    def kill(self) -> None:
        """Kills the builder at work and its children."""
        if self._process is not None:
            self._process.kill()

    async def _conda(self, conda: work.CondaList) -> None:
        file = self._written("conda.json", json.dumps({"specs": list(conda.specs), "channels": list(conda.channels)}))
        await self._run(
            "its conda packages could not be installed",
            (sys.executable, "-u", "-P", "-m", "windrow_agent.environments.conda_install", str(file), str(self._place)),
            self._conda_variables,
            RATTLER,
        )

    async def _compile(self) -> None:
        """Writes the bytecode of conda's packages, which rattler does not. Raises Abandoned, OSError.

        Workers may not write there: each would compile all that it imports. Files that are no Python of this version
        do not matter. Without `site`, no code of a package runs.
        """
        code = "import compileall, sys; [compileall.compile_dir(one, quiet=2, workers=0) for one in sys.argv[1:]]"
        folders = [str(folder) for folder in self._place.glob("lib/python*/site-packages")]
        command = (str(self._place / "bin" / "python"), "-I", "-S", "-c", code, *folders)
        ended, _ = await self._ended(command, self._conda_variables)
        if ended != 0:
            notice = "what conda installed could not be compiled; workers compile what they import, each for itself"
            self._log.write(f"warning: {notice}.\n".encode())

    async def _uv(
        self, what: str, *command: str, start: Sequence[str] | None = None, variables: Mapping[str, str] | None = None
    ) -> None:
        await self._run(what, command, self._variables if variables is None else variables, UV, start)

    async def _run(
        self,
        what: str,
        command: Sequence[str],
        variables: Mapping[str, str],
        builder: Builder,
        start: Sequence[str] | None = None,
    ) -> None:
        code, said = await self._ended(command, variables, start)
        limit = self._process.limit if self._process is not None else ""
        if code != 0 and limit:
            raise EnvironmentFailed(
                f"{what}: {builder.name}, or the code of a package that it builds, wanted {limit}. Use packages that "
                "are built already (wheels), or a node with more; or run scripts in your own Python (--python PATH)",
                of_node=False,
                detail=said.decode(errors="replace"),
            )
        if code < 0:
            said += f"\nerror: {builder.name} was killed by {signal_name(-code)}".encode()
        if code != 0:
            raise failure_of(what, said.decode(errors="replace"), builder)

    async def _ended(
        self, command: Sequence[str], variables: Mapping[str, str], start: Sequence[str] | None = None
    ) -> tuple[int, bytes]:
        """Runs a command; returns its exit code, and the end of its output if that is not 0. `start`: the words before
        it; None: those of builders.
        """
        output = self._log.open_for_writing()
        try:
            begin = os.fstat(output).st_size
            words = (*(self._start if start is None else start), *command)
            self._process = Process(
                words,
                variables,
                output=output,
                folder=self._place.parent,
                kept_open=self._lock,
                groups=self._groups,
            )
            code = await self._process.wait(self._wanted)
            said = b"" if code == 0 else self._log.tail(min(_WORDS_BYTES, os.fstat(output).st_size - begin))
            return code, said
        finally:
            os.close(output)


def _flag(option: str) -> str:
    """A command-line option of uv for an option of pip that is not a line of a requirements file."""
    if option == "--pre":
        return "--prerelease=allow"
    return option.replace("--trusted-host=", "--allow-insecure-host=")


class DoesNotRun(Exception):
    """The Python of an environment is gone, or does not run; the text says which."""


async def stated_version(
    python: Path,
    code: Path,
    libraries: Sequence[str],
    agent: Mapping[str, str],
    start: Sequence[str] = (),
    groups: ControlGroups | None = None,
) -> Stated:
    """Asks an environment's Python for its version and missing libraries. Packages may run code when Python starts, so
    it gets only those environment variables of the `agent` that workers get, and `start`, the words that confine it.

    Raises DoesNotRun; EnvironmentFailed if it could not be asked, which says nothing about it; OSError.
    """
    begun = time.monotonic()
    variables = passed_variables(agent, built=str(python.parent.parent))
    with tempfile.TemporaryFile() as output:
        try:
            process = Process(
                [*start, str(python), PROBE, str(code), *libraries],
                variables,
                output=output.fileno(),
                groups=groups,
            )
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
