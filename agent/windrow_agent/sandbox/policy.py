"""Which paths a worker is given: what its step names, its own folders, the system, and what the operator allows.

The rule: *a script reads and writes what its step was given, and nothing of Windrow's, of other jobs, or of the host's
secrets.* What `confinement` reads is made here, on the agent's side.

Invariants:

1. Nothing that a job's variables name is given: only places of inputs and outputs that the master has sent, and paths
   that the operator permits.
2. A given folder that holds one of Windrow's is given without it; an output folder that does is not given at all under
   `strict`, and whole under `auto`. Either is said in the log of the worker.
3. `/tmp` and the real HOME are not given: each worker has its own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from windrow_agent.config import AgentConfig, path_and_access
from windrow_agent.sandbox.confinement import is_below, kernel_abi, missing
from windrow_agent.steps.step import Step

STRICT_ABI = 6
"""The first version that also keeps signals and abstract sockets apart."""

_SYSTEM = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/proc", "/sys", "/nix", "/gnu",
    "/snap", "/run/systemd/resolve", "/run/resolvconf", "/run/nscd", "/run/opengl-driver", "/var/cache/fontconfig",
    "/var/lib/ca-certificates", "/run/nvidia-persistenced",
)  # fmt: skip
_DEVICES = (
    "null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools",
    "nvidia-modeset", "nvidia-caps", "dri", "kfd", "infiniband", "accel",
)  # fmt: skip
_SHARED_MEMORY = "/dev/shm"
_PATH_LISTS = ("PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH")
_PATHS = ("CUDA_HOME", "CUDA_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "HF_HOME")
_MORE_PATHS = ("TORCH_HOME", "MPLCONFIGDIR", "VIRTUAL_ENV", "CONDA_PREFIX", "AML_APP_ROOT")

_AT_START = ("PYTHON", "LD_", "GLIBC_", "MALLOC_", "LC_")
_AT_START_NAMES = frozenset(("HOME", "LANG", "LANGUAGE", "TZ", "GCONV_PATH", "LOCPATH", "NLSPATH"))


class NotPermitted(Exception):
    """The step asks for something that this node does not give; the text says what, and what to do."""


@dataclass(slots=True)
class Given:
    """The paths of one worker, by kind (`confinement`). `notes`: what is not as the rule has it, in words."""

    read: list[str] = field(default_factory=list)
    execute: list[str] = field(default_factory=list)
    write: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Sandbox:
    """What this node does for all its workers. Made once; `mode` is not "off"."""

    def __init__(self, config: AgentConfig, environment: Mapping[str, str]) -> None:
        self.mode = config.sandbox
        self.abi = kernel_abi()
        self._config = config
        self._environment = environment
        self.closed = closed_folders(config)

    @property
    def cannot(self) -> str:
        """Why no worker may start here under `strict`; "" if they may."""
        if self.mode != "strict" or self.abi >= STRICT_ABI:
            return ""
        return (
            f"This node cannot confine scripts as --sandbox strict demands: {missing(self.abi, STRICT_ABI)}. Use a "
            "kernel that can (6.12 or newer), or start the agent with --sandbox auto, which does what it can"
        )

    def protection(self) -> str:
        """What protects this node from scripts, in one line."""
        return protection(self.mode, self.abi)

    def policy(self, given: Given, variables: Mapping[str, str], python: str | None) -> dict[str, object]:
        """The document for `launch.py`. `variables`: what to set when the process is confined. `python`: the
        interpreter to start then with these variables alone; None: the one that runs goes on.
        """
        return {
            "abi": STRICT_ABI if self.mode == "strict" else 0,
            "closed": list(self.closed),
            "read": given.read,
            "execute": [*_SYSTEM, *self._own_places(), *given.execute],
            "write": [*given.write, _SHARED_MEMORY],
            "device": _devices(),
            "list": ["/dev"],
            "variables": dict(variables),
            "python": python or "",
        }

    def of_step(self, step: Step) -> Given:
        """What the step names. Raises NotPermitted."""
        found = Given()
        spec = step.spec
        found.read += [path for path in spec.read_paths if self._may_give(path)]
        found.read += map(str, step.side_inputs.values())
        copies = _has_copies(step.reader)
        if step.needs_fetching or spec.side_inputs:
            writable = copies or any(side.writable for side in spec.side_inputs)
            (found.write if writable else found.read).append(str(step.fetched))
        for path in dict.fromkeys(spec.write_paths):
            if Path(path).is_symlink():
                found.notes.append(f"{path} is not given to the script: a link stands in the place of an output")
            elif self._may_give(path):
                self._give_output(path, found)
        for text in self._config.allowed_paths:
            path, writable = path_and_access(text)
            (found.write if writable else found.execute).append(path)
        for text in spec.allowed_paths:
            path, writable = path_and_access(text)
            self._check_permitted(path, text)
            (found.write if writable else found.execute).append(path)
        return found

    def _give_output(self, path: str, found: Given) -> None:
        real = os.path.realpath(path)
        inside = [closed for closed in self.closed if is_below(closed, real)]
        if not inside:
            found.write.append(path)
        elif self.mode == "strict":
            found.read.append(path)
            found.notes.append(
                f"the script cannot write to the folder {path}: {inside[0]} of Windrow's is in it. Give the output a "
                "folder of its own, or the state another place (--state)"
            )
        else:
            found.write.append(path)
            found.notes.append(f"{inside[0]} of Windrow's is open to the script: it is below the output folder {path}")

    def _check_permitted(self, path: str, text: str) -> None:
        real = os.path.realpath(path)
        permitted = [os.path.realpath(prefix) for prefix in self._config.job_paths]
        if not any(is_below(real, prefix) for prefix in permitted):
            what = f"jobs may ask for {', '.join(permitted)}" if permitted else "jobs may ask for none"
            raise NotPermitted(
                f"The step asks for --allow_path {text}, which this node does not permit: {what}. Whoever runs the "
                f"agent can permit it (--job-paths {path}), or give it to all jobs (--allow-path {path})"
            )
        if any(is_below(real, closed) or is_below(closed, real) for closed in self.closed):
            raise NotPermitted(
                f"The step asks for --allow_path {text}, which is or holds a folder of Windrow's; no job gets those"
            )

    def _may_give(self, path: str) -> bool:
        """Whether a place that the master has sent is the step's, and not Windrow's own."""
        real = os.path.realpath(path)
        for closed in self.closed:
            if is_below(real, closed):
                below = (*Path(real).relative_to(closed).parts, "")
                # In a run on this machine: default places of outputs, and rows sorted by partition keys.
                if not (below[0] == "outputs" and below[1]) and not (below[0] == "jobs" and "rows" in below[2:]):
                    return False
        return True

    def _own_places(self) -> list[str]:
        """What variables of the agent name, as far as it is there."""
        found = [
            entry
            for name in _PATH_LISTS
            for entry in self._environment.get(name, "").split(os.pathsep)
            if entry.startswith("/")
        ]
        found += [self._environment.get(name, "") for name in (*_PATHS, *_MORE_PATHS)]
        return [path for path in dict.fromkeys(found) if path and path != "/"]


def _has_copies(reader: Any) -> bool:
    """Whether workers get copies of files, which they may change."""
    readers = reader.get("inputs", (reader,)) if isinstance(reader, dict) else ()
    return any(one.get("copy") for one in readers)


def closed_folders(config: AgentConfig) -> tuple[str, ...]:
    """Folders and files of Windrow's that no script may reach, as real paths."""
    found = [str(config.folder), *map(str, config.closed_paths)]
    found += [str(Path(a[5:]).parent) for a in config.master_addresses if a.startswith("unix:")]
    if config.environments_folder is not None:
        found.append(str(config.environments_folder))
    return tuple(dict.fromkeys(os.path.realpath(path) for path in found))


def protection(mode: str, abi: int) -> str:
    """What a mode means on a kernel with this version of Landlock, in one line."""
    if not abi:
        return f"{mode} (nothing): scripts can do whatever the agent's user can, since {missing(0, 1)}"
    lacks = [words for since, words in ((3, "cutting files short"), (6, "signals and abstract sockets")) if abi < since]
    if lacks:
        return f"{mode} (partly): Landlock {abi} confines files and memory, but not {' or '.join(lacks)}"
    return f"{mode}: Landlock {abi} confines files, memory, signals and abstract sockets"


def needs_new_start(variables: Mapping[str, str], agent: Mapping[str, str]) -> bool:
    """Whether the interpreter must be started again with the variables of the step, or those of the agent let a
    script's folder run code before the process is confined.
    """
    if any(name.startswith(_AT_START) or name in _AT_START_NAMES for name in variables):
        return True
    lists = [agent.get(name, "") for name in ("PYTHONPATH", "LD_LIBRARY_PATH", "LD_PRELOAD")]
    return any(not entry.startswith("/") for text in lists if text for entry in text.split(os.pathsep))


def start_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables with which the first interpreter starts, where another one follows: nothing that runs code."""
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith(_AT_START) and name not in _AT_START_NAMES
    }


def python_places(python: Path) -> list[str]:
    """Where an interpreter and its standard library are: of a virtual environment, also those that it was made from."""
    real = Path(os.path.realpath(python))
    return [str(python.parent.parent), str(real.parent), str(real.parent.parent)]


@cache
def _devices() -> list[str]:
    try:
        names = [entry.name for entry in os.scandir("/dev")]
    except OSError:
        return []
    return [f"/dev/{name}" for name in names if name in _DEVICES or (name.startswith("nvidia") and name[6:].isdigit())]
