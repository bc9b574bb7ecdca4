"""Which paths a worker is given. What `confinement` reads is made here, on the agent's side.

The rule of `given` and `strict`: *a script reads and writes what its step was given, and nothing of Windrow's, of other
jobs, or of the host's secrets.* So it gets what its step names, its own folders, the system, and what the operator
allows.

The rule of `auto`: *no script notices it that leaves Windrow's files and other processes alone.* So a script gets
everything but the closed folders, as far as it can do without them: no file can be made in a folder above a closed one.
Where scripts may make some, it stays open (`reachable`).

Invariants of `given` and `strict`:

1. Nothing that a job's variables name is given: only places of inputs and outputs that the master has sent, and paths
   that the operator permits.
2. A given folder that holds one of Windrow's is given without it; an output folder that does is not given at all under
   `strict`, and whole under `given`. Either is said in the log of the worker.
3. `/tmp` and the real HOME are not given: each worker has its own.
4. Each path is followed once (`places`): what was checked is what is given. Under every mode.
5. An input or output is where the master says that its data is (`StepSpec.datastores`), wherever links lead; and an
   output is no folder that the master keeps for all (`StepSpec.kept_folders`).
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from windrow.rpc import session_key
from windrow.rpc.v1 import work_pb2 as work

from windrow_agent.config import AgentConfig, path_and_access
from windrow_agent.node.mps import pipe_folder
from windrow_agent.sandbox.confinement import around, is_below, kernel_abi, missing
from windrow_agent.sandbox.installation import changeable_code
from windrow_agent.sandbox.places import Place, ScriptFolders, followed
from windrow_agent.sandbox.raw_devices import raw_devices
from windrow_agent.sandbox.service_sockets import in_words, service_sockets
from windrow_agent.steps.reach import Reach
from windrow_agent.steps.step import Step

_MODELS = "WINDROW_MODELS"
"""Of a step: JSON, by name and version the path of each registered model."""

STRICT_ABI = 6
"""The first version that also keeps signals and abstract sockets apart."""

_KEPT_MODELS = ".models/"
"""Where a master keeps the models that scripts hand in (docs/reference/files.md)."""

AUTO_ABI = 2
"""The first version that lets a script move files from one folder to another."""

_NOT_FOR_SCRIPTS = ("/", "/etc", "/home", "/run", "/usr", "/usr/local", "/var", "/var/lib")
_WINDROWS = ("/etc/windrow", "/run/windrow", "/var/lib/windrow")
"""Folders in which even scripts of root make nothing; and those of Windrow, with all below."""

_SYSTEM = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/proc", "/sys", "/nix", "/gnu",
    "/snap", "/run/systemd/resolve", "/run/resolvconf", "/run/nscd", "/run/opengl-driver", "/var/cache/fontconfig",
    "/var/lib/ca-certificates", "/run/nvidia-persistenced",
)  # fmt: skip
_SETTINGS = "/etc"
"""Of the system. What not every user may read there is a secret of the host: keys, hashes of passwords."""
_CONTROL_GROUPS = "/sys/fs/cgroup"
"""Whoever can write there may end or stop all processes of a group."""
_OF_KERNEL = ("/proc", "/sys")
"""Where root sets up the kernel: what it starts as root when a process crashes, for example. Other users cannot."""
_SETUP = "/etc/windrow"
"""Where `windrow setup` keeps the authority, tokens and keys, unless it is told another folder."""
_OF_SETUP = ("authority", "master", "agent", "client")
_DEVICES = (
    "null", "zero", "full", "random", "urandom", "tty", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools",
    "nvidia-modeset", "nvidia-caps", "dri", "kfd", "infiniband", "accel",
)  # fmt: skip
_TERMINALS = ("/dev/ptmx", "/dev/pts")
"""Each belongs to the user who opened it: all processes of that user may read there what is typed."""
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
    """The paths of one worker, by kind (`confinement`), without links. `outputs`: those of `write` that are folders of
    outputs, to be made where they are missing. `notes`: what is not as the rule has it, in words.
    """

    read: list[str] = field(default_factory=list)
    execute: list[str] = field(default_factory=list)
    write: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Sandbox:
    """What this node does for all its workers. Made once. With the mode "off", it confines nothing, and there are users
    of jobs.
    """

    def __init__(self, config: AgentConfig, environment: Mapping[str, str], *, job_users: bool = False) -> None:
        """`job_users`: each job has a user of its own."""
        self.mode = config.sandbox
        self.abi = kernel_abi()
        self._config = config
        self._environment = environment
        self.closed = closed_folders(config)
        self._job_users = job_users
        self._folder = (str(config.folder), os.path.realpath(config.folder))
        self._job_paths = tuple(map(os.path.realpath, config.job_paths))
        self._script_folders = ScriptFolders(self.closed)
        self._changeable = changeable_code() if self.mode == "auto" and not job_users else ""
        self.reachable: dict[str, str] = {}
        """Of `auto`: folders of Windrow's that stay open, with the folder above in which scripts may make files."""
        if self.mode == "auto":
            # Those in others are open or closed with them.
            outer = [path for path in self.closed if not any(is_below(path, one) for one in self.closed if one != path)]
            self.reachable = {path: above for path in outer if (above := _made_in_above(path, by_all=job_users))}
            self.closed = tuple(path for path in outer if path not in self.reachable)

    @property
    def cannot(self) -> str:
        """Why no worker may start here under `strict`; "" if they may."""
        if self.mode != "strict" or self.abi >= STRICT_ABI:
            return ""
        return (
            f"This node cannot confine scripts as --sandbox strict demands: {missing(self.abi, STRICT_ABI)}. Use a "
            "kernel that can (6.12 or newer), or start the agent with --sandbox auto, which does what it can"
        )

    @property
    def closes_folder(self) -> bool:
        """Whether no script reaches the agent's folder, apart from what is its own worker's."""
        return self.abi >= AUTO_ABI and any(is_below(self._folder[1], closed) for closed in self.closed)

    def protection(self) -> str:
        """What protects this node from scripts, in one line."""
        # Looked for each time: a service may start later than the agent.
        sockets = service_sockets(job_users=self._job_users)
        return protection(self.mode, self.abi, self.reachable, self._changeable, sockets)

    def policy(
        self, given: Given, variables: Mapping[str, str], python: str | None, user: int | None = None
    ) -> dict[str, object]:
        """The document for `launch.py`. `variables`: what to set when the process is confined. `python`: the
        interpreter to start then with these variables alone; None: the one that runs goes on. `user`: of the job; None:
        that of the agent.
        """
        more = {"variables": dict(variables), "python": python or "", "user": user or 0, "confined": True}
        if self.mode == "off":
            return more | {"confined": False}
        if self.mode == "auto":
            kernels, own = (_OF_KERNEL, ["/proc/self"]) if os.geteuid() == 0 else ((_CONTROL_GROUPS,), [])
            return {
                "abi": 0,
                # What is its own below closed folders: with all rights, else no file could be moved from there.
                "all": ["/", *own, *self._in_closed(given.write)],
                "closed": [*self.closed, *kernels],
                # Root could read there what is in the closed folders.
                "closed_devices": raw_devices(),
                "read": [*self._in_closed(given.read), *kernels],
                "execute": self._in_closed(given.execute),
                "write": [],
                **more,
            }
        return {
            "abi": STRICT_ABI if self.mode == "strict" else 0,
            "closed": list(self.closed),
            "read": given.read,
            "public": real_paths(_SETTINGS),
            "execute": [*real_paths(*_SYSTEM, *self._own_places()), *given.execute],
            "write": [*given.write, *real_paths(_SHARED_MEMORY), *self._pipes_of_mps()],
            "device": real_paths(*_devices(), *(_TERMINALS if self._job_users else ())),
            "list": ["/dev", *real_paths(_SETTINGS)],
            **more,
        }

    def _pipes_of_mps(self) -> list[str]:
        """Where processes that share a GPU reach MPS, if it is there. It serves one user, so not the users of jobs."""
        folder = None if self._job_users else pipe_folder(self._environment)
        return [] if folder is None else real_paths(str(folder))

    def _in_closed(self, paths: list[str]) -> list[str]:
        """Those that lie below closed folders: the others are given anyway."""
        return [path for path in paths if any(is_below(path, closed) for closed in self.closed)]

    def own(self, path: str | Path) -> str:
        """A path below the agent's folder without the links that lead to that folder. Scripts can write in some folders
        below it: a link there stays, and is not followed.
        """
        folder, real = self._folder
        text = str(path)
        return real + text[len(folder) :] if is_below(text, folder) else text

    def of_step(self, step: Step) -> Given:
        """What the step names. Raises NotPermitted."""
        found = Given()
        if self.mode == "off":
            return found
        spec = step.spec
        for path in spec.read_paths:
            if real := self._data_place(path, step, found):
                found.read.append(real)
        found.read += map(self.own, step.side_inputs.values())
        copies = _has_copies(step.reader)
        if step.needs_fetching or spec.side_inputs:
            writable = copies or any(side.writable for side in spec.side_inputs)
            (found.write if writable else found.read).append(self.own(step.fetched))
        for path in dict.fromkeys(spec.write_paths):
            if real := self._data_place(path, step, found, is_output=True):
                self._give_output(real, path, spec, found)
        if self.mode != "auto":
            self._give_models(spec.environment_variables.get(_MODELS, ""), found)
            self.give_to_all(found)
            for text in spec.allowed_paths:
                path, writable = path_and_access(text)
                (found.write if writable else found.execute).append(self._permitted(path, text))
        for real in found.write:
            self._script_folders.note(real)
        return found

    def reach_of_copies(self, step: Step) -> Reach:
        """What may be copied for the step's script, by a process that could read more.

        With the modes that give a script its inputs, it gets no copy of what a link in them leads to elsewhere, but in
        the paths of `allowed_paths`: it could not read that itself, and a script may have laid the link. With `auto`,
        it gets none of Windrow's own.
        """
        if self.mode == "off":
            return Reach.of_datastores(step)
        places = [real for path in step.spec.read_paths if (real := self._data_place(path, step, Given()))]
        if self.mode == "auto":
            return Reach.of_datastores(step)._replace(places=places, closed=list(self.closed))
        allowed = Given()
        for text in self._config.allowed_paths:
            self._give_allowed(path_and_access(text)[0], allowed, writable=False)
        return Reach([*places, *allowed.execute], within=[], closed=[])

    def _data_place(self, path: str, step: Step, found: Given, *, is_output: bool = False) -> str:
        """Where an input or output of a step is, without links; "" if it is not given.

        Later workers of the step get what the first one got: its own scripts may lay links, too.
        """
        if (known := step.places.get(path)) is not None:
            return known
        place = self._place(path, found)
        if place is None or not self._is_where_data_is(place.real, path, step.spec, found):
            return ""
        if is_output and place.is_link:
            found.notes.append(_link_note(path, path))
            return ""
        step.places[path] = place.real
        return place.real

    def _place(self, path: str, found: Given) -> Place | None:
        """Where a path leads; None, with a note, if a script may have laid a link on the way."""
        try:
            place = followed(path)
        except OSError as error:
            found.notes.append(f"{path} is not given to the script: {error.strerror}")
            return None
        if link := self._script_folders.link_on_the_way(place):
            found.notes.append(_link_note(path, link))
            return None
        return place

    def _is_where_data_is(self, real: str, path: str, spec: work.StepSpec, found: Given) -> bool:
        """Whether a place that the master has sent is the step's, wherever links lead on this node, and not Windrow's
        own.
        """
        if not self._is_of_steps(real):
            return False
        folders = real_paths(*map(os.fsdecode, spec.datastores))
        if not folders or any(is_below(real, folder) for folder in folders):
            return True
        found.notes.append(
            f"{path} is not given to the script: it leads to {real}, outside the datastores of the master "
            f"({', '.join(folders)}). Put the data there, or remove the link"
        )
        return False

    def _give_output(self, real: str, path: str, spec: work.StepSpec, found: Given) -> None:
        kept = [
            one
            for one in real_paths(*map(os.fsdecode, spec.kept_folders))
            if is_below(one, real) or is_below(real, one)
        ]
        inside = [closed for closed in self.closed if is_below(closed, real)]
        if kept and (self.mode != "auto" or self._in_closed([real])):
            found.read.append(real)
            found.notes.append(
                f"the script cannot write to the folder {path}: the master keeps {kept[0]} for all jobs. Give the "
                "output a folder of its own"
            )
        elif not inside:
            if self.mode != "auto" or self._in_closed([real]):
                found.write.append(real)
                found.outputs.append(real)
        elif self.mode == "auto":
            found.notes.append(
                f"the script can make no new file in the folder {path}: {inside[0]} of Windrow's is in it. Give the "
                "output a folder of its own"
            )
        elif self.mode == "strict":
            found.read.append(real)
            found.notes.append(
                f"the script cannot write to the folder {path}: {inside[0]} of Windrow's is in it. Give the output a "
                "folder of its own, or the state another place (--state)"
            )
        else:
            found.write.append(real)
            found.outputs.append(real)
            found.notes.append(f"{inside[0]} of Windrow's is open to the script: it is below the output folder {path}")

    def _give_models(self, text: str, found: Given) -> None:
        """Those registered models that a job of this node may ask for."""
        try:
            places = json.loads(text or "{}")
            paths = [str(path) for versions in places.values() for path in versions.values()]
        except (ValueError, AttributeError):
            return
        for path in dict.fromkeys(path for path in paths if path.startswith("/")):
            place = self._place(path, found)
            if place is None:
                continue
            if self._permits(place.real):
                found.read.append(place.real)
            else:
                found.notes.append(
                    f"the registered model {path} is not given to the script. Give it to the step as an input; or "
                    f"whoever runs the agent permits it (--job-paths {path})"
                )

    def may_show_model(self, path: str, place: str, *, handed_in: bool) -> bool:
        """Whether the agent may open the files of a registered model for a script that asks for it. `place`: where its
        path leads, which counts: a script may have laid a link there. `handed_in`: a script has handed it in, and the
        master keeps it; then it is for all.
        """
        if handed_in and "/" + _KEPT_MODELS in path:
            _, _, kept = path.partition("/" + _KEPT_MODELS)
            return place.endswith(f"/{_KEPT_MODELS}{kept}")
        if any(is_below(place, closed) or is_below(closed, place) for closed in self.closed):
            return False
        if self._permits(place):
            return True
        # The agent may read more than the user of a job.
        return self.mode == "auto" and not self._job_users

    def give_to_all(self, found: Given) -> None:
        """Adds what the operator gives to all jobs (`--allow-path`)."""
        for text in self._config.allowed_paths:
            path, writable = path_and_access(text)
            self._give_allowed(path, found, writable=writable)

    def _give_allowed(self, path: str, found: Given, *, writable: bool) -> None:
        place = self._place(path, found)
        if place is None:
            return
        real = place.real
        if any(is_below(real, closed) for closed in self.closed):
            found.notes.append(f"{path} (--allow-path) is not given to the script: it is Windrow's")
        elif writable:
            # What is beside a folder of Windrow's; nothing can be made in the folder that holds it.
            found.write += around(real, list(self.closed))
        else:
            found.execute.append(real)

    def _permits(self, real: str) -> bool:
        """Whether a job of this node may ask for a path, which leads through no link."""
        return any(is_below(real, prefix) for prefix in self._job_paths)

    def _permitted(self, path: str, text: str) -> str:
        """Where a path leads that a job asks for. Raises NotPermitted."""
        found = Given()
        place = self._place(path, found)
        if place is None:
            raise NotPermitted(f"The step asks for --allow_path {text}: {found.notes[0]}")
        real = place.real
        if not self._permits(real):
            what = f"jobs may ask for {', '.join(self._job_paths)}" if self._job_paths else "jobs may ask for none"
            raise NotPermitted(
                f"The step asks for --allow_path {text}, which this node does not permit: {what}. Whoever runs the "
                f"agent can permit it (--job-paths {path}), or give it to all jobs (--allow-path {path})"
            )
        if any(is_below(real, closed) or is_below(closed, real) for closed in self.closed):
            raise NotPermitted(
                f"The step asks for --allow_path {text}, which is or holds a folder of Windrow's; no job gets those"
            )
        return real

    def _is_of_steps(self, real: str) -> bool:
        """Whether a path without links is none of Windrow's own, or one of those that steps get."""
        for closed in self.closed:
            if is_below(real, closed):
                below = (*Path(real).relative_to(closed).parts, "")
                # In a run on this machine: default places of outputs, items of `windrow.map`, and rows sorted by
                # partition keys.
                is_own = below[0] in ("outputs", "map") and below[1]
                if not is_own and not (below[0] == "jobs" and "rows" in below[2:]):
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


def _link_note(path: str, link: str) -> str:
    return (
        f"{path} is not given to the script: {link} is a link that a script may have laid. Remove it, or give the "
        "input or output another path"
    )


def real_paths(*paths: str | Path) -> list[str]:
    """Where paths lead on which no script can lay a link."""
    return [os.path.realpath(path) for path in paths]


def _has_copies(reader: Any) -> bool:
    """Whether workers get copies of files, which they may change."""
    readers = reader.get("inputs", (reader,)) if isinstance(reader, dict) else ()
    return any(one.get("copy") for one in readers)


def closed_folders(config: AgentConfig) -> tuple[str, ...]:
    """Folders and files of Windrow's that no script may reach, as real paths."""
    found = [str(config.folder), *map(str, config.closed_paths)]
    found += [key for address in config.master_addresses if (key := session_key.path_of(address))]
    if config.environments_folder is not None:
        found.append(str(config.environments_folder))
    if config.sandbox != "auto" or Path(_SETUP).is_dir():
        found.append(_SETUP)
    for path in map(Path, config.closed_paths):
        setup = path.parent.parent
        if (setup / "authority").is_dir():
            # The token is one of those that `windrow setup` has made there, and left beside it for other roles.
            found += [str(setup / role) for role in _OF_SETUP]
    return tuple(dict.fromkeys(os.path.realpath(path) for path in found))


def _made_in_above(path: str, *, by_all: bool) -> str:
    """The nearest folder above a closed one in which scripts may make files; "" if there is none. `by_all`: they are
    not of the agent's user, so they may where all may.
    """
    for above in map(str, Path(path).parents):
        is_apart = above in _NOT_FOR_SCRIPTS or any(is_below(above, folder) for folder in _WINDROWS)
        if not is_apart and (_all_may_write(above) if by_all else os.access(above, os.W_OK)):
            return above
    return ""


def _all_may_write(folder: str) -> bool:
    try:
        return bool(Path(folder).stat().st_mode & stat.S_IWOTH)
    except OSError:
        return False


def protection(
    mode: str,
    abi: int,
    reachable: Mapping[str, str] | None = None,
    changeable: str = "",
    sockets: Sequence[str] = (),
) -> str:
    """What a mode means on a kernel with this version of Landlock, in one line. `reachable`: the folders of Windrow's
    that stay open, with those above that are the reason. `changeable`: a folder of its code that scripts can write.
    `sockets`: of services that start programs for scripts (`service_sockets`).
    """
    if mode == "strict" and abi < STRICT_ABI:
        return f"strict (nothing runs): no script starts, since {missing(abi, STRICT_ABI)}"
    if abi < (AUTO_ABI if mode == "auto" else 1):
        why = missing(abi, AUTO_ABI if abi else 1)
        return f"{mode} (nothing): scripts can do whatever the agent's user can, since {why}"
    if mode == "auto":
        return _protection_of_auto(abi, reachable or {}, changeable, sockets)
    lacks = [words for since, words in ((3, "cutting files short"), (6, "signals and abstract sockets")) if abi < since]
    kept = f"Landlock {abi} confines files, memory, signals and abstract sockets"
    if lacks:
        kept = f"Landlock {abi} confines files and memory, but not {' or '.join(lacks)}"
    if sockets:
        kept += f"; {in_words(sockets)}"
    return f"{mode} (partly): {kept}" if lacks or sockets else f"{mode}: {kept}"


def _protection_of_auto(abi: int, reachable: Mapping[str, str], changeable: str, sockets: Sequence[str]) -> str:
    kept = f"Landlock {abi} keeps scripts out of the memory of other processes"
    lacks = [] if abi >= STRICT_ABI else [f"signals and abstract sockets are open (Landlock {STRICT_ABI} is needed)"]
    lacks += [
        f"{path} of Windrow's is open, since scripts may make files in {above} (choose a place in a folder that only "
        "root can write)"
        for path, above in reachable.items()
    ]
    if changeable:
        lacks.append(
            f"scripts can change the code that Windrow runs, since their user can write to {changeable} (let root own "
            "the installation, and start the agent as another user or with --user)"
        )
    if sockets:
        lacks.append(in_words(sockets))
    kept += ", and cannot signal them" if abi >= STRICT_ABI else ""
    return f"auto (partly): {kept}; {'; '.join(lacks)}" if lacks else f"auto: {kept}, and out of Windrow's files"


def needs_new_start(variables: Mapping[str, str], agent: Mapping[str, str]) -> bool:
    """Whether the interpreter must be started again with the variables of the step, or those of the agent let a
    script's folder run code before the process is confined.
    """
    if any(name.startswith(_AT_START) or name in _AT_START_NAMES for name in variables):
        return True
    lists = [agent.get(name, "") for name in ("PYTHONPATH", "LD_LIBRARY_PATH", "LD_PRELOAD")]
    return any(not entry.startswith("/") for text in lists if text for entry in text.split(os.pathsep))


def start_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables with which the first interpreter starts, where another one follows: nothing that runs code of a
    job. Some interpreters do not start without the agent's own LD_LIBRARY_PATH.
    """
    libraries = environment.get("LD_LIBRARY_PATH", "")
    is_fixed = all(entry.startswith("/") for entry in libraries.split(os.pathsep))
    return {
        name: value
        for name, value in environment.items()
        if (not name.startswith(_AT_START) and name not in _AT_START_NAMES) or (name == "LD_LIBRARY_PATH" and is_fixed)
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
