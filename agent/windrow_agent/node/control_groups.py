"""Control groups: what the processes of one worker may use together, and how all of them are ended at once. What builds
environments runs code of packages, and so has groups of its own.

The kernel counts what is in a group: processes and threads (`pids`), memory (`memory`), its share of the processors
(`cpu`). So a script that starts processes without end, or takes all memory, harms only its own worker.

There are two versions of control groups. In version 2, one tree of folders has all controllers. In version 1, each
controller has a tree of its own; a tree of version 2 without these controllers may be beside them, and still ends a
group at once. A worker's group is a folder in each tree that is used:

    <group of the agent>/windrow-<pid of the agent>-<start time of that process>/<key of the worker, or build-<n>>

Version 2 allows no processes beside groups that controllers act on. So the agent then moves itself, with its parents
and children, to `<its group>/windrow-agent`.

Invariants:

1. Nothing of a job runs in a worker or builder before it is in its group: `launch.py` and `enter_group.py` enter it
   first.
2. Groups are made only below the agent's own, and only where nobody else manages it: below systemd, a unit needs
   `Delegate=yes`. Where root starts an agent that becomes a user (`--user`), that own group is one that root has made
   and given to the user (`delegation`).
3. A group that is removed holds no process. What an agent leaves behind when it is killed, the next one in its folder
   removes, by the note that was written before the first group was made. Any later agent removes what is empty.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import signal
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from windrow.common.journal import say

from windrow_agent.config import AgentConfig
from windrow_agent.node.strays import parent_of, start_time

TREES = "/sys/fs/cgroup"
"""Where the trees are. Scripts in a sandbox cannot write below it."""

NOTE = "control-groups"
"""The file in the agent's folder that says where its groups are, one folder a line."""

AGENTS = "windrow-agent"
"""The group of agents themselves, in version 2."""

_OURS = re.compile(r"windrow-(\d+)-(\d+)")
_CONTROLLERS = ("pids", "memory", "cpu")
_WEIGHTS = {"cpu.weight": (100, 1, 10_000), "cpu.shares": (1_024, 2, 262_144)}
"""What the kernel shares out the processors by, in version 2 and 1: that of one slot, which is that of any other group,
and the least and most that it takes.
"""
_PROCESSES_DEFAULT = 4096
_PROCESSES_PER_CPU = 64
_PROCESSES_KEPT = 512
"""For the agent and what it starts besides workers."""
_PROCESSES_LEAST = 64
_MEMORY_KEPT = 512 << 20
_BUILDER_MEMORY_LEAST = 2 << 30
_BUILDER_PROCESSES_LEAST = 512
_LEAVE_S = 5.0


class NoControlGroups(Exception):
    """This agent cannot have control groups for its workers; the text says why."""


@dataclass(frozen=True, slots=True)
class Tree:
    """One tree of control groups. `own`: the folder in it of the group that this process is in. `controllers`: those
    of `_CONTROLLERS` that it has.
    """

    version: int
    own: Path
    controllers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Limits:
    """What one worker may use at most, of processes and threads, and of memory in bytes; None: the kernel keeps it to
    no limit. `all_memory`: what all workers may use together.
    """

    processes: int | None
    memory: int | None
    all_memory: int | None

    def text(self) -> str:
        """In words, for people."""
        from windrow.common.quantities import size

        words = []
        if self.processes is not None:
            words.append(f"each worker to {self.processes:,} processes and threads")
        if self.memory is not None:
            words.append(f"each worker to {size(self.memory)} of memory")
        if self.all_memory is not None:
            words.append(f"all workers together to {size(self.all_memory)} of memory")
        return ", ".join(words)


class WorkerGroup:
    """The group of one worker, over all trees."""

    def __init__(self, folders: Sequence[Path], limits: Limits, slots: float = 1.0) -> None:
        """Makes it. `folders`: one in each tree. `slots`: what its worker takes of the node; where processors are
        scarce, it gets them in this proportion to the others. Raises OSError.
        """
        self.limits = limits
        self._slots = slots
        self._folders = list(folders)
        made: list[Path] = []
        try:
            for folder in folders:
                folder.mkdir()
                made.append(folder)
            self._set_limits()
        except OSError:
            for folder in made:
                with suppress(OSError):
                    folder.rmdir()
            raise

    @property
    def entrances(self) -> list[str]:
        """The files through which a process enters: it writes 0 into each."""
        return [str(folder / "cgroup.procs") for folder in self._folders]

    def _set_limits(self) -> None:
        for folder in self._folders:
            for file, (unit, least, most) in _WEIGHTS.items():
                with suppress(OSError):
                    # Fairness is worth no worker: whoever may not set it goes on without.
                    if (folder / file).exists():
                        _write(folder / file, min(max(least, round(unit * self._slots)), most))
            if self.limits.processes is not None and (folder / "pids.max").exists():
                _write(folder / "pids.max", self.limits.processes)
            if self.limits.memory is not None:
                # No swap: a worker beyond its limit ends, and does not become slow.
                if (folder / "memory.max").exists():
                    _write(folder / "memory.max", self.limits.memory)
                    with suppress(OSError):
                        _write(folder / "memory.swap.max", 0)
                elif (folder / "memory.limit_in_bytes").exists():
                    _write(folder / "memory.limit_in_bytes", self.limits.memory)
                    with suppress(OSError):
                        _write(folder / "memory.memsw.limit_in_bytes", self.limits.memory)
            with suppress(OSError):
                # All of its processes end together: a script whose child is missing might wait for it without end.
                _write(folder / "memory.oom.group", 1)

    def was_full(self) -> bool:
        """Whether it was refused another process or thread, because it had as many as it may."""
        return self._count("max", "pids.events") > 0

    def lacked_memory(self) -> bool:
        """Whether the kernel has killed one of its processes for lack of memory."""
        return self._count("oom_kill", "memory.events", "memory.oom_control") > 0

    def reached_own_memory_limit(self) -> bool:
        """Whether it has used all memory that a worker may use; else it was that of the node."""
        if self.limits.memory is None:
            return False
        if any((folder / "memory.events").exists() for folder in self._folders):
            return self._count("oom", "memory.events") > 0
        full = self.limits.memory - os.sysconf("SC_PAGE_SIZE")
        return any(_number(folder / "memory.max_usage_in_bytes") >= full for folder in self._folders)

    def kill(self) -> None:
        """Kills all processes in it."""
        for folder in self._folders:
            _kill_all(folder)

    def remove(self) -> bool:
        """Removes it. False: processes of it are still ending."""
        left = [folder for folder in self._folders if not _removed(folder)]
        return not left

    def _count(self, name: str, *files: str) -> int:
        """The value of a line `name value` in one of these files; 0 if there is none."""
        for folder in self._folders:
            for file in files:
                for line in _read(f"{folder}/{file}").splitlines():
                    key, _, value = line.partition(" ")
                    if key == name and value.isdigit():
                        return int(value)
        return 0


def possible() -> tuple[bool, str]:
    """Whether an agent in the group of this process could make groups, and what they could limit, or why not."""
    trees = trees_here()
    try:
        used = usable(trees, demanded=False)
    except NoControlGroups as error:
        return False, str(error)
    words = {"pids": "processes", "memory": "memory", "cpu": "share of the processors"}
    given = {name for tree in used for name in tree.controllers}
    return True, ", ".join(word for name, word in words.items() if name in given)


class ControlGroups:
    """The groups of all workers of one agent. Made once, before its first worker."""

    def __init__(self, config: AgentConfig, slots: int, cpus: int, memory: int) -> None:
        """`cpus`, `memory` (bytes): what this agent may use. Raises NoControlGroups."""
        self._leaving: list[WorkerGroup] = []
        self._builders = 0
        self._folders: list[Path] = []
        self._note = config.folder / NOTE
        used = usable(trees_here(), demanded=config.control_groups == "required")
        name = f"windrow-{os.getpid()}-{start_time(os.getpid())}"
        bases = [tree.own.parent if tree.own.name == AGENTS else tree.own for tree in used]
        controllers = {name for tree in used for name in tree.controllers}
        self.limits = Limits(
            processes=(config.worker_processes_max or processes_default(used, slots, cpus))
            if "pids" in controllers
            else None,
            memory=config.worker_memory_bytes_max if "memory" in controllers else None,
            all_memory=max(memory // 2, memory - _MEMORY_KEPT) if "memory" in controllers else None,
        )
        self._version = max((tree.version for tree in used if tree.controllers), default=2)
        try:
            self._note.write_text("".join(f"{base / name}\n" for base in bases))
            for tree, base in zip(used, bases, strict=True):
                if tree.version == 2 and tree.controllers:
                    make_room(base, tree.controllers)
                remove_abandoned(base)
                folder = base / name
                folder.mkdir()
                self._folders.append(folder)
                if tree.version == 2:
                    _enable(folder, tree.controllers)
                self._limit_all(folder)
        except OSError as error:
            self.close()
            raise NoControlGroups(f"{error.filename or bases[0]}: {error.strerror}") from error

    def _limit_all(self, folder: Path) -> None:
        """Keeps memory for the agent: without it, the kernel might choose the agent when all memory is used."""
        with suppress(OSError):
            # Before Linux 5.11, groups of version 1 are not counted in those above them unless asked to.
            _write(folder / "memory.use_hierarchy", 1)
        for file in ("memory.max", "memory.limit_in_bytes"):
            if self.limits.all_memory is not None and (folder / file).exists():
                _write(folder / file, self.limits.all_memory)

    def open(self, key: int, slots: float = 1.0) -> WorkerGroup:
        """Makes the group of a worker, which takes so many of the node's slots. Raises OSError."""
        return WorkerGroup([folder / str(key) for folder in self._folders], self.limits, slots)

    def open_builder(self) -> WorkerGroup:
        """Makes the group of a command that builds an environment. Raises OSError.

        It may have as many processes as a worker by default, and half of the memory of all workers: what it does ends
        it, and takes no memory that a worker uses.
        """
        self._builders += 1
        limits = self.limits
        if limits.processes is not None:
            limits = replace(limits, processes=max(_BUILDER_PROCESSES_LEAST, limits.processes))
        if limits.all_memory is not None:
            half = max(_BUILDER_MEMORY_LEAST, limits.all_memory // 2)
            limits = replace(limits, memory=min(limits.all_memory, half))
        return WorkerGroup([folder / f"build-{self._builders}" for folder in self._folders], limits)

    def protection(self) -> str:
        """What they keep each worker to, in words."""
        return f"control groups (version {self._version}) keep {self.limits.text()}"

    def leave(self, group: WorkerGroup) -> None:
        """Removes the group of a worker that is gone, now or, if processes of it are still ending, later."""
        if not group.remove():
            self._leaving.append(group)

    def sweep(self) -> None:
        """Ends and removes what is left of groups of workers that are gone."""
        for group in self._leaving:
            group.kill()
        self._leaving = [group for group in self._leaving if not group.remove()]

    def close(self) -> None:
        """Removes all groups, whose workers are gone, and those of builders with all that is in them."""
        deadline = time.monotonic() + _LEAVE_S
        while (inside := [one for folder in self._folders for one in _folders_in(folder)]) and (
            time.monotonic() < deadline
        ):
            for one in inside:
                if not _removed(one):
                    _kill_all(one)
            time.sleep(0.005)
        left = [folder for folder in self._folders if not _removed(folder)]
        if not left:
            self._note.unlink(missing_ok=True)


def remove_leftovers(folder: Path) -> None:
    """Ends and removes the groups that an earlier agent in this folder has left behind."""
    note = folder / NOTE
    groups = [
        Path(line)
        for line in _read(str(note)).splitlines()
        if line.startswith(f"{TREES}/") and _OURS.fullmatch(Path(line).name) and ".." not in line
    ]
    deadline = time.monotonic() + _LEAVE_S
    while True:
        left = []
        for group in groups:
            for one in [*_folders_in(group), group]:
                _kill_all(one)
                if not _removed(one):
                    left.append(one)
        if not left:
            note.unlink(missing_ok=True)
            return
        if time.monotonic() > deadline:
            say(
                logging.WARNING, "control groups of an earlier agent cannot be removed", groups=" ".join(map(str, left))
            )
            return
        time.sleep(0.01)


def remove_abandoned(base: Path) -> None:
    """Removes empty groups of agents that are gone, and whose folders had no other agent."""
    for folder in _folders_in(base):
        found = _OURS.fullmatch(folder.name)
        if found is not None and start_time(int(found[1])) != int(found[2]):
            # One that was given to a user holds those of an agent.
            for inner in _folders_in(folder):
                for one in [*_folders_in(inner), inner]:
                    _removed(one)
            _removed(folder)


def trees_here() -> list[Tree]:
    """The trees that this process can reach."""
    found = find_trees(_read("/proc/self/cgroup"), _read("/proc/self/mountinfo"))
    # Something else may be mounted over them.
    return [tree for tree in found if (tree.own / "cgroup.procs").exists()]


def find_trees(own: str, mounts: str) -> list[Tree]:
    """The trees that this process can see. `own`, `mounts`: the texts of /proc/self/cgroup and /proc/self/mountinfo."""
    paths: dict[str, str] = {}
    for line in own.splitlines():
        _, names, path = line.split(":", 2)
        paths |= dict.fromkeys(names.split(","), path)
    found: dict[Path, Tree] = {}
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        root, place = before.split()[3:5]
        kind, _, options = after.split()
        if kind not in ("cgroup", "cgroup2") or not f"{place}/".startswith(f"{TREES}/"):
            continue
        has = [""] if kind == "cgroup2" else options.split(",")
        where = next((paths[name] for name in has if name in paths), None)
        if where is None or not f"{where}/".startswith(f"{root.rstrip('/')}/"):
            # The group is outside of what is mounted.
            continue
        folder = Path(place, where[len(root.rstrip("/")) :].lstrip("/"))
        if kind == "cgroup2":
            has = _read(str(folder / "cgroup.controllers")).split()
        found[folder] = Tree(2 if kind == "cgroup2" else 1, folder, tuple(name for name in _CONTROLLERS if name in has))
    return list(found.values())


def usable(trees: Sequence[Tree], *, demanded: bool) -> list[Tree]:
    """The trees in which this agent may make groups. Raises NoControlGroups. `demanded`: both limits must be there."""
    used: list[Tree] = []
    why: dict[str, str] = {}
    managed = _is_managed(trees)
    for tree in trees:
        if not tree.controllers and tree.version == 1:
            continue
        reason = managed or _why_closed(tree)
        if not reason:
            used.append(tree)
        else:
            why |= dict.fromkeys(tree.controllers, reason)
    given = {name for tree in used for name in tree.controllers}
    lacking = [name for name in ("pids", "memory") if name not in given]
    if len(lacking) == 2 or (demanded and lacking):
        if not trees:
            raise NoControlGroups(f"no control groups are mounted below {TREES}")
        raise NoControlGroups(
            "; ".join(dict.fromkeys(why.get(name, f"this agent's group has no controller {name}") for name in lacking))
        )
    return used


def _is_managed(trees: Iterable[Tree]) -> str:
    """Why this agent may not manage its group, although it could; "" if it may."""
    if not Path("/run/systemd/system").is_dir():
        return ""
    for tree in trees:
        own = tree.own.parent if tree.own.name == AGENTS else tree.own
        with suppress(OSError):
            if own.stat().st_uid == os.geteuid() != 0:
                return ""
        for name in ("trusted.delegate", "user.delegate"):
            with suppress(OSError):
                if os.getxattr(own, name) == b"1":
                    return ""
    return (
        "systemd manages the group of this agent, and has not delegated it (Delegate=yes in the unit, or systemd-run "
        "--scope --property=Delegate=yes before the command)"
    )


def _why_closed(tree: Tree) -> str:
    """Why no group can be made in a tree; "" if one can."""
    base = tree.own.parent if tree.own.name == AGENTS else tree.own
    if os.access(base, os.W_OK) and os.access(base / "cgroup.procs", os.W_OK):
        return ""
    is_fixed = os.statvfs(base).f_flag & os.ST_RDONLY if base.exists() else 0
    return f"{base} is mounted read-only" if is_fixed else f"{base} cannot be written by user {os.geteuid()}"


def processes_default(trees: Iterable[Tree], slots: int, cpus: int) -> int:
    """How many processes and threads a worker may have by default: many, but all workers leave some to the agent."""
    most = [_number(Path("/proc/sys/kernel/pid_max")), _number(Path("/proc/sys/kernel/threads-max"))]
    for tree in trees:
        most += [_number(above / "pids.max") for above in _own_and_above(tree.own)]
    bound = min((number for number in most if number), default=1 << 22)
    fair = max(_PROCESSES_LEAST, (bound - _PROCESSES_KEPT) // slots)
    return min(max(_PROCESSES_DEFAULT, _PROCESSES_PER_CPU * cpus), fair)


def _own_and_above(folder: Path) -> list[Path]:
    return [place for place in (folder, *folder.parents) if place.is_relative_to(TREES)]


def make_room(base: Path, controllers: Sequence[str]) -> None:
    """Moves this process with its parents and children out of a group of version 2, and lets controllers act on the
    groups in it. Raises OSError.
    """
    is_top = not (base / "cgroup.type").exists()
    moved: list[int] = []
    try:
        if not is_top:
            (base / AGENTS).mkdir(exist_ok=True)
            for pid in _members(base):
                if _is_of_us(pid):
                    _write(base / AGENTS / "cgroup.procs", pid)
                    moved.append(pid)
        _enable(base, controllers)
    except OSError as error:
        for pid in moved:
            with suppress(OSError):
                _write(base / "cgroup.procs", pid)
        with suppress(OSError):
            (base / AGENTS).rmdir()
        if error.errno == errno.EBUSY and (others := _members(base)):
            words = f"other processes are in the group of this agent (such as {others[0]}); start it in one of its own"
            raise OSError(errno.EBUSY, words, str(base)) from error
        raise


def _is_of_us(pid: int) -> bool:
    """Whether a process is this one, one of those that started it, or one that it has started."""
    return os.getpid() in _line(pid) or pid in _line(os.getpid())


def _line(pid: int) -> list[int]:
    """A process and those above it."""
    line = []
    while pid and pid not in line:
        line.append(pid)
        pid = parent_of(pid)
    return line


def _enable(folder: Path, controllers: Sequence[str]) -> None:
    """Raises OSError if processes or memory cannot be limited; a share of the processors is not needed."""
    for name in controllers:
        try:
            _write(folder / "cgroup.subtree_control", f"+{name}")
        except OSError:
            if name != "cpu":
                raise


def _kill_all(folder: Path) -> None:
    try:
        _write(folder / "cgroup.kill", 1)
    except OSError:
        pass
    else:
        return
    # Before Linux 5.14, and in version 1.
    with suppress(OSError):
        _write(folder / "pids.max", 0)
    for pid in _members(folder):
        _kill_member(pid, folder)


def _kill_member(pid: int, folder: Path) -> None:
    """Kills a process if it still is in a group: its number may be another one's by now."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return
    try:
        tail = str(folder).removeprefix(str(folder.parents[1]))
        if any(line.endswith(tail) for line in _read(f"/proc/{pid}/cgroup").splitlines()):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except OSError:
        pass
    finally:
        os.close(descriptor)


def _removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _folders_in(folder: Path) -> list[Path]:
    try:
        return [Path(entry) for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _members(folder: Path) -> list[int]:
    return [int(line) for line in _read(str(folder / "cgroup.procs")).split()]


def _number(file: Path) -> int:
    """The number in a file; 0 if it holds none."""
    text = _read(str(file)).strip()
    return int(text) if text.isdigit() else 0


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def _write(path: Path, value: object) -> None:
    """Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, str(value).encode())
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        os.close(descriptor)
