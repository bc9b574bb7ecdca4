"""Builds a conda list in a folder, with rattler: solves it, and installs the packages with their Python.

A process of its own, so that it can be killed at any time: `python -m windrow_agent.environments.conda_install LIST
FOLDER`, where LIST is a JSON file (`specs`, `channels`). The last lines of a failure begin with `error:`, as uv's do.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rattler import (
    Channel,
    Client,
    Gateway,
    InstallerReporter,
    MatchSpec,
    RepoDataRecord,
    VirtualPackage,
    VirtualPackageOverrides,
    install,
    solve,
)
from rattler.exceptions import (
    CacheDirError,
    ExtractError,
    FetchRepoDataError,
    GatewayError,
    InstallerError,
    InvalidChannelError,
    InvalidMatchSpecError,
    IoError,
    LinkError,
    SolverError,
    TransactionError,
)

_PYTHON = "python >=3.8"
"""Workers need it, whether the list names it or not."""
_CHANNELS = ("conda-forge",)
_DEFAULTS = ("https://repo.anaconda.com/pkgs/main", "https://repo.anaconda.com/pkgs/r")
"""What conda means by the channel `defaults`."""
_SOLVER_SAYS = "Cannot solve the request because of: "
_FAILURES = (
    *(CacheDirError, ExtractError, FetchRepoDataError, GatewayError, InstallerError, IoError, LinkError),
    TransactionError,
)
"""What goes wrong on the way; the text says what."""


class _ListRefused(Exception):
    """The list cannot be built; the text says why."""


class _Scripts(InstallerReporter):
    """Watches the scripts that packages run when they are installed; rattler goes on where one fails."""

    def __init__(self) -> None:
        self.failed: list[str] = []
        self._begun: list[str] = []

    def on_post_link_start(self, package_name: str, script_path: str) -> int:
        self._begun.append(package_name)
        return len(self._begun) - 1

    def on_post_link_complete(self, index: int, success: bool) -> None:
        if not success:
            self.failed.append(self._begun[index])


async def _build(folder: Path, texts: Sequence[str], channel_names: Sequence[str]) -> None:
    specs = [_spec(text) for text in (*texts, _PYTHON)]
    channels = _channels(channel_names, specs)
    print(f"Solving {', '.join(texts)}")
    client = Client.default_client()
    here = VirtualPackage.detect(VirtualPackageOverrides.from_env())
    try:
        records = await solve(channels, specs, gateway=Gateway(client=client), virtual_packages=here)
    except SolverError as error:
        print(error)
        # On one line: why packages conflict is a tree of many.
        lines = [line.lstrip("│├└─ ") for line in str(error).removeprefix(_SOLVER_SAYS).splitlines()]
        raise _ListRefused(f"No solution found: {' '.join(filter(None, lines))}") from error
    # Scripts that packages run when they are installed, as conda runs them.
    scripts = _Scripts()  # type: ignore[abstract]  # The methods it inherits are empty, not abstract.
    await install(records, folder, client=client, execute_link_scripts=True, reporter=scripts)
    if scripts.failed:
        raise _ListRefused(f"Failed to build: the installation script of {', '.join(scripts.failed)} failed")
    _tell(folder, records)


def _spec(text: str) -> MatchSpec:
    try:
        return MatchSpec(text)
    except InvalidMatchSpecError as error:
        raise _ListRefused(f"Failed to parse {text!r}: {error}") from error


def _channels(names: Sequence[str], specs: Sequence[MatchSpec]) -> list[Channel]:
    """The channels of the list, then those that only a spec names (`bioconda::samtools`)."""
    found: dict[str, Channel] = {}
    for name in names or _CHANNELS:
        for one in _DEFAULTS if name == "defaults" else () if name == "nodefaults" else (name,):
            try:
                channel = Channel(os.path.expandvars(one))
            except InvalidChannelError as error:
                raise _ListRefused(f"Failed to parse the channel {one!r}: {error}") from error
            found.setdefault(channel.base_url, channel)
    for spec in specs:
        if spec.channel is not None:
            found.setdefault(spec.channel.base_url, spec.channel)
    return list(found.values())


def _tell(folder: Path, records: Sequence[RepoDataRecord]) -> None:
    print(f"Installed {len(records)} packages")
    for record in sorted(records, key=lambda record: record.name.normalized):
        print(f" + {record.name.normalized}=={record.version}")
    scripts = sorted(path.name for path in (folder / "etc" / "conda" / "activate.d").glob("*.sh"))
    if scripts:
        print(
            f"Not run, since the environment is not activated: {', '.join(scripts)}. Set what they set as "
            "environment_variables of the step"
        )


def main(file: Path, folder: Path) -> int:
    """Returns the exit code."""
    wanted = json.loads(file.read_text())
    try:
        asyncio.run(_build(folder, wanted["specs"], wanted["channels"]))
    except _ListRefused as refused:
        print(f"error: {refused}")
        return 1
    except _FAILURES as error:
        print(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    code = main(Path(sys.argv[1]), Path(sys.argv[2]))
    sys.stdout.flush()
    sys.stderr.flush()
    # Not by way of Python's end, which aborts while a thread of rattler still ends.
    os._exit(code)
