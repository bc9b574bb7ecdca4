"""A user for each job on this node: numbers of a range that nobody else has.

An agent that runs as root starts the workers of a job as that job's user. So the kernel keeps the files and processes
of jobs apart, whatever the sandbox. The first number of the range is the user of builders of environments, which are
for all jobs.

    FREE ──a step of the job is offered──► HELD ──its last step has left this node──► LEAVING ──nothing is left──► FREE

Invariants:

1. Two jobs never have one user at a time, also of two agents on one machine, and after any death of an agent: who has
   which user is written down before anything belongs to that user.
2. A user is free only when no process of it runs, and nothing of it is in the agent's folder, in its outputs, in the
   folders where all users may make files, and among what the kernel keeps for processes (System V IPC).
3. Users are given in turn, so that a number comes back as late as possible.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import pwd
import re
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from windrow.common.beneath import Folder, LinkRefused
from windrow.common.durable import write_whole
from windrow.common.journal import say
from windrow.common.notes import NoteDamaged, read_note, render
from windrow.common.removal import discard_tree
from windrow.common.users import permissions

from windrow_agent.config import AUTO_JOB_USERS, JOB_USERS_BLOCK, AgentConfig, users_of
from windrow_agent.node.strays import AWAITED, start_time
from windrow_agent.sandbox.access_lists import NotGiven, give_access, real_place, take_back
from windrow_agent.sandbox.builders import START
from windrow_agent.sandbox.confinement import is_below
from windrow_agent.sandbox.policy import closed_folders
from windrow_agent.steps.step import Step

NOTE = "job-users"
"""The file in the agent's folder that says which job has which user."""

CLAIMS = Path("/var/lib/windrow-job-users")
"""The folder in which the agents of this machine say which numbers are theirs."""

_CLAIM = re.compile(r"(\d+)-(\d+)")
_OPEN = frozenset(("steps", "environments"))
"""What users of jobs may reach in the agent's folder."""
_FOR_ALL = ("/dev/shm", "/dev/mqueue", "/tmp", "/var/tmp")
_RESERVED = {range(61184, 65520): "systemd uses it for services", range(65534, 65536): "it means nobody"}
_CAPABILITIES = {"CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3, "KILL": 5, "SETGID": 6, "SETUID": 7}
_KILL_ALL = (
    "import os, sys; user = int(sys.argv[1]); os.setgroups([]); os.setresgid(user, user, user); "
    "os.setresuid(user, user, user); os.kill(-1, 9)"
)
_KEPT = {"shm": "shmid", "sem": "semid", "msg": "msqid"}
"""System V IPC: the files below /proc/sysvipc, each with the name of its column of numbers."""
_REMOVE_KEPT = (
    "import ctypes, os, sys; user = int(sys.argv[1]); os.setgroups([]); os.setresgid(user, user, user); "
    "os.setresuid(user, user, user); libc = ctypes.CDLL(None)\n"
    "for kind, number in (word.split(':') for word in sys.argv[2:]):\n"
    "    getattr(libc, kind + 'ctl')(int(number), *([0, 0, 0] if kind == 'sem' else [0, None]))"
)
"""Removes (IPC_RMID) each `kind:number`, as the user that has made it: that needs no capability."""
_REMOVED_AT_ONCE = 1000
_END_S = 5.0
_REACH_S = 30.0


class NoJobUsers(Exception):
    """This agent cannot give users to jobs; the text says why."""


class UsersExhausted(Exception):
    """No user is free; the text says what to do."""


@dataclass(slots=True)
class _Holder:
    """Who has a user. `outputs`: the folders to which the user has access, with the steps that write there; `steps`:
    those of the job on this node. A step is named by its folder.
    """

    user: int
    outputs: dict[str, set[Path]] = field(default_factory=dict)
    steps: set[Path] = field(default_factory=set)


class JobUsers:
    """The users of one agent's jobs. Safe to use from several threads."""

    def __init__(self, config: AgentConfig) -> None:
        """Takes the range, and ends what an earlier agent in this folder has left running. Raises NoJobUsers."""
        self._folder = config.folder
        self._note = config.folder / NOTE
        self._closed = closed_folders(config)
        self._lock = threading.RLock()
        self._held: dict[str, _Holder] = {}
        self._earlier: dict[str, _Holder] = {}
        """Of jobs that an earlier agent in this folder had, and that have not come again."""
        self._leaving: dict[int, _Holder] = {}
        if why := _why_not() or _why_closed(config.folder):
            raise NoJobUsers(why)
        found = self._read()
        self._claim = _claim(config, [one["user"] for one in found.get("jobs", ())])
        self.users: range = self._claim.users
        self.builder = self.users[0]
        self._next = int(found.get("next", 0)) or self.users[0] + 1
        for one in found.get("jobs", ()):
            self._earlier[one["job"]] = _Holder(one["user"], {path: set() for path in one["outputs"]})
        end_processes({self.builder, *(holder.user for holder in self._earlier.values())})
        os.umask(0o022)
        try:
            _open_folder(config.folder)
            self._write()
        except OSError as error:
            self._claim.release(keep=bool(self._earlier))
            raise NoJobUsers(f"the agent's folder cannot be shared with them: {error}") from error

    def protection(self) -> str:
        """What they do, in words."""
        return f"each job has a user of its own ({self.users[1]}-{self.users[-1]})"

    def take(self, step: Step) -> None:
        """Gives a step the user of its job, and its folder to that user. Raises UsersExhausted, OSError."""
        with self._lock:
            job = step.spec.job_id
            holder = self._held.get(job)
            if holder is None:
                holder = self._earlier.pop(job) if job in self._earlier else _Holder(self._free())
                self._held[job] = holder
            holder.steps.add(step.folder)
            self._write()
            step.user = holder.user
        (self._folder / "steps").chmod(0o711)
        # Nobody else gets into it, so what is in it may be readable.
        os.chown(step.folder, os.geteuid(), step.user)
        step.folder.chmod(0o750)

    def _free(self) -> int:
        taken = {holder.user for holder in (*self._held.values(), *self._earlier.values(), *self._leaving.values())}
        numbers: range = self.users[1:]
        first = self._next - numbers[0] if self._next in numbers else 0
        for number in (*numbers[first:], *numbers[:first]):
            if number not in taken:
                self._next = number + 1
                return int(number)
        raise UsersExhausted(
            f"No user is left for this job on this node: {len(numbers)} jobs have steps or files here, as many as it "
            f"has users (--job-users {self.users[0]}-{self.users[-1]}; the first is for builders). Start the agent "
            "with a larger range, or let fewer jobs run here"
        )

    def open_outputs(self, step: Step) -> list[str]:
        """Makes the folders of a step's outputs, and gives its user access. Returns what is not given, in words."""
        notes: list[str] = []
        for path in _outputs_of(step):
            try:
                real = real_place(path)
            except (NotGiven, OSError) as error:
                notes.append(f"the output folder {path} is not given to the user of the job: {error}")
                continue
            if inside := next((one for one in self._closed if _is_windrows(real, one)), ""):
                notes.append(f"the output folder {path} is not given to the user of the job: {inside} is Windrow's")
                continue
            with self._lock:
                holder = self._held.get(step.spec.job_id)
                if holder is None or step.folder not in holder.steps:
                    return []  # it has ended meanwhile
                writers = holder.outputs.setdefault(real, set())
                is_new = not writers
                writers.add(step.folder)
                self._write()
            try:
                if is_new and not give_access(real, holder.user, self._closed):
                    notes.append(f"the output folder {path} holds so much that the script cannot change all of it")
            except NotGiven as error:
                notes.append(
                    f"the script cannot write to the output folder {path}: user {holder.user} gets no access, since "
                    f"{error}. Give the output another place, or let all users write there"
                )
        return notes

    def leave_outputs(self, step: Step) -> None:
        """The step has no process here any more: what its user has made in its outputs goes to their owners, unless
        other steps of the job write there.
        """
        with self._lock:
            holder = self._held.get(step.spec.job_id)
            if holder is None:
                return
            done = []
            for real, writers in holder.outputs.items():
                if step.folder in writers:
                    writers.remove(step.folder)
                    done += [real] * (not writers)
        self._hand_over(holder.user, done)
        with self._lock:
            again = [real for real in done if holder.outputs.get(real)]
            for real in set(done).difference(again):
                holder.outputs.pop(real, None)
            self._write()
        for real in again:
            # Another step of the job has come meanwhile.
            with suppress(NotGiven):
                give_access(real, holder.user, self._closed)

    def leave(self, step: Step) -> None:
        """The folder of a step is gone. With the last one of its job, the user becomes free."""
        with self._lock:
            holder = self._held.get(step.spec.job_id)
            if holder is None:
                return
            holder.steps.discard(step.folder)
            if holder.steps:
                return
            self._leaving[holder.user] = self._held.pop(step.spec.job_id)
        self._end(holder)

    def tidy(self) -> None:
        """Frees the users of jobs of an earlier agent in this folder that have not come again."""
        with self._lock:
            gone, self._earlier = list(self._earlier.values()), {}
            self._leaving |= {holder.user: holder for holder in gone}
        for holder in gone:
            self._end(holder)

    def close(self) -> None:
        """Frees all users, as the agent ends and its workers are gone: hands over all outputs, and removes the steps,
        which nobody needs any more. Who still has files then stays written down for the next agent in this folder.
        """
        discard_tree(self._folder / "steps")
        if not any(self._folder.glob("retired-*")):
            self.tidy()
        with self._lock:
            gone, self._held = list(self._held.values()), {}
            self._leaving |= {holder.user: holder for holder in gone}
        for holder in gone:
            self._end(holder)
        self._write()
        self._claim.release(keep=bool(self._earlier or self._leaving))

    def _end(self, holder: _Holder) -> None:
        """Frees a user that leaves. It stays written down if a process of it does not end."""
        if not end_processes({holder.user}):
            say(logging.WARNING, "processes of a job's user do not end; no other job gets it", user=holder.user)
            return
        self._hand_over(holder.user, holder.outputs)
        _remove_from_places_for_all(holder.user)
        _remove_kept(holder.user)
        with self._lock:
            self._leaving.pop(holder.user, None)
            self._write()

    def _hand_over(self, user: int, outputs: Iterable[str]) -> None:
        for path in outputs:
            try:
                take_back(path, user, self._closed)
            except FileNotFoundError:
                continue
            except OSError as error:
                say(logging.WARNING, "an output keeps the user of its job", path=path, user=user, why=str(error))

    def _read(self) -> dict[str, Any]:
        try:
            return read_note(self._note) or {}
        except (NoteDamaged, OSError) as error:
            raise NoJobUsers(
                f"{self._note} cannot be read, and says which users have files here: {error}. Remove the folder "
                f"{self._folder}, or start with another one (--folder)"
            ) from error

    def _write(self) -> None:
        """Raises OSError. Somebody who leaves stays written down until nothing is left."""
        # A job that leaves has no name any more: it may have come again.
        leaving = {f"\0{user}": holder for user, holder in self._leaving.items()}
        jobs = [
            {"job": job, "user": holder.user, "outputs": list(holder.outputs)}
            for job, holder in (*self._held.items(), *self._earlier.items(), *leaving.items())
        ]
        write_whole(self._note, render({"next": self._next, "jobs": jobs}), mode=0o600)


def put_away(config: AgentConfig) -> None:
    """Hands over what is left of users of jobs that an earlier agent in this folder had, where this one has none."""
    try:
        found = read_note(config.folder / NOTE)
    except (NoteDamaged, OSError):
        found = None
    if found is None or os.geteuid() != 0:
        return
    config.folder.chmod(0o700)
    for one in found["jobs"]:
        end_processes({one["user"]})
        for path in one["outputs"]:
            with suppress(OSError):
                take_back(path, one["user"], closed_folders(config))
        _remove_from_places_for_all(one["user"])
        _remove_kept(one["user"])
    (config.folder / NOTE).unlink()


# What a user can reach.


def obstacles(user: int, python: str, read: Sequence[str], write: Sequence[str]) -> tuple[list[str], list[str]]:
    """What a user cannot read, or run, of what it needs, and what it cannot write, each in words. `python`: the
    interpreter of its scripts. Raises OSError.
    """
    # By a process that becomes the user: a fork of this one, which has threads, may not do that.
    policy = json.dumps({"user": user, "confined": False, "abi": 0})
    reach = [python, "-I", "-S", str(Path(__file__).with_name("reach.py"))]
    process = subprocess.Popen(
        [sys.executable, "-I", str(START), policy, *reach],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ},
    )
    # Otherwise, reaping orphans would take its exit code.
    AWAITED.add(process.pid)
    try:
        said, _ = process.communicate(json.dumps({"read": list(read), "write": list(write)}).encode(), _REACH_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return [f"could not look at its inputs within {_REACH_S:g} s"], []
    finally:
        AWAITED.discard(process.pid)
    if process.returncode != 0:
        closed = _closed_to_others(python)
        # A Python that is broken or too old is told of when a worker starts.
        return [f"cannot run the Python {python}: {permissions(closed)}"] if closed else [], []
    found = json.loads(said)
    return (
        [f"cannot read {path}: {permissions(part)}" for path, part in found["read"]],
        [f"cannot write to {path}: {permissions(part)}" for path, part in found["write"]],
    )


def _closed_to_others(path: str) -> str:
    """The first folder above a path, or above what it leads to, that is closed to users without rights there."""
    for way in (path, os.path.realpath(path)):
        for above in reversed(Path(way).parents):
            with suppress(OSError):
                if not above.stat().st_mode & stat.S_IXOTH:
                    return str(above)
    return ""


def _outputs_of(step: Step) -> list[str]:
    """The folders in which the scripts of a step make files."""
    spec = step.spec
    found = [*spec.write_paths, *spec.output_folders, spec.output_path]
    return [path for path in dict.fromkeys(found) if path.startswith("/")]


def _is_windrows(real: str, closed: str) -> bool:
    """Whether an output is a place of Windrow's that no job gets. In the state of a run there are outputs."""
    return is_below(real, closed) and Path(real).relative_to(closed).parts[:1] not in (
        ("outputs",),
        ("jobs",),
        ("map",),
    )


# Processes and files that are left.


def end_processes(users: Collection[int]) -> bool:
    """Kills all processes of these users, and waits until they are gone; False if some do not end."""
    deadline = time.monotonic() + _END_S
    while running := {user for user, _ in _processes_of(users)}:
        if time.monotonic() > deadline:
            return False
        for user in running:
            # All at once, by one of them: they could start others faster than these are found.
            with suppress(OSError):
                subprocess.run([sys.executable, "-I", "-S", "-c", _KILL_ALL, str(user)], cwd="/", env={}, check=False)
        time.sleep(0.005)
    return True


def _processes_of(users: Collection[int]) -> Iterator[tuple[int, int]]:
    """The user and the number of each process of these users that is no zombie."""
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError, ValueError, StopIteration):
                lines = Path(entry.path, "status").read_text(errors="replace").splitlines()
                line = next(line for line in lines if line.startswith("Uid:"))
                user = int(line.split()[1])
                if user in users and start_time(int(entry.name)) is not None:
                    yield user, int(entry.name)


def _remove_from_places_for_all(user: int) -> None:
    """Removes what a user has left where all users may make files: the next one with its number would own it."""
    for place in _FOR_ALL:
        with suppress(OSError):
            for entry in list(os.scandir(place)):
                with suppress(OSError):
                    if entry.stat(follow_symlinks=False).st_uid != user:
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        discard_tree(entry.path)
                    else:
                        Path(entry.path).unlink()


def _remove_kept(user: int) -> None:
    """Removes the shared memory, semaphores and queues (System V) of a user, whose processes are gone: the kernel keeps
    them until the next start of the machine, and the memory with them.
    """
    words = [f"{kind}:{number}" for kind, number in _kept_of(user)]
    for at in range(0, len(words), _REMOVED_AT_ONCE):
        command = [sys.executable, "-I", "-S", "-c", _REMOVE_KEPT, str(user), *words[at : at + _REMOVED_AT_ONCE]]
        with suppress(OSError):
            subprocess.run(command, cwd="/", env={}, check=False, stderr=subprocess.DEVNULL)


def _kept_of(user: int) -> Iterator[tuple[str, int]]:
    """The kind and number of each of these, also where the user has made it and given it to another one."""
    for kind, number in _KEPT.items():
        with suppress(OSError):
            names, *lines = Path("/proc/sysvipc", kind).read_text().splitlines()
            columns = names.split()
            for line in lines:
                found = dict(zip(columns, line.split(), strict=False))
                if str(user) in (found["uid"], found["cuid"]):
                    yield kind, int(found[number])


# Whether there can be some, and which.


def possible() -> tuple[bool, str]:
    """Whether an agent of this process' user could give users to jobs, and which by default, or why not."""
    why = _why_not() or _why_taken(AUTO_JOB_USERS)
    return not why, why or f"{AUTO_JOB_USERS[0]}-{AUTO_JOB_USERS[-1]}"


def _why_not() -> str:
    if os.geteuid() != 0:
        return f"the agent runs as user {os.geteuid()}, and only root starts processes of other users (without --user)"
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("CapEff:"))
    held = int(line.split()[1], 16)
    lacking = [name for name, number in _CAPABILITIES.items() if not held >> number & 1]
    return f"the agent lacks the capabilities {', '.join(lacking)}" if lacking else ""


def _why_closed(folder: Path) -> str:
    """Why users of jobs cannot reach the agent's folder; "" if they can."""
    for above in reversed(Path(os.path.realpath(folder)).parents):
        if not above.stat().st_mode & stat.S_IXOTH:
            return (
                f"users of jobs cannot reach the agent's folder {folder}: {permissions(str(above))}. Choose another "
                "place (--folder /var/lib/windrow), or let all users pass (chmod o+x)"
            )
    return ""


def _why_taken(users: range) -> str:
    """Why these numbers may be somebody's; "" if they are nobody's."""
    for kind in ("uid", "gid"):
        mapped = [list(map(int, line.split())) for line in Path(f"/proc/self/{kind}_map").read_text().splitlines()]
        if not any(first <= users[0] and users[-1] < first + count for first, _, count in mapped):
            return f"this container has no users {users[0]}-{users[-1]} (/proc/self/{kind}_map)"
    for reserved, why in _RESERVED.items():
        if _overlap(users, reserved):
            return f"{reserved[0]}-{reserved[-1]} are no users for jobs: {why}"
    for file in ("/etc/passwd", "/etc/group"):
        for fields in _fields(file):
            if len(fields) > 2 and fields[2].isdigit() and int(fields[2]) in users:
                return f"{fields[2]} is {fields[0]} ({file})"
    for file in ("/etc/subuid", "/etc/subgid"):
        for fields in _fields(file):
            if len(fields) > 2 and fields[1].isdigit() and fields[2].isdigit():
                first = int(fields[1])
                if _overlap(users, range(first, first + int(fields[2]))):
                    return f"{first}-{first + int(fields[2]) - 1} are for containers of {fields[0]} ({file})"
    for user in (users[0], users[-1]):
        with suppress(KeyError):
            # Also of a directory, which may not list its users.
            return f"{user} is {pwd.getpwuid(user).pw_name}"
    return ""


def _fields(file: str) -> list[list[str]]:
    try:
        return [line.strip().split(":") for line in Path(file).read_text(errors="replace").splitlines()]
    except OSError:
        return []


def _overlap(one: range, other: range) -> bool:
    return max(one.start, other.start) < min(one.stop, other.stop)


@dataclass(slots=True)
class _Claim:
    """The numbers that are an agent's, as long as its file is locked, or its note names jobs."""

    users: range
    path: Path
    descriptor: int

    def release(self, *, keep: bool) -> None:
        if not keep:
            with _claims_locked():
                self.path.unlink(missing_ok=True)
        os.close(self.descriptor)


@contextmanager
def _claims_locked() -> Iterator[None]:
    descriptor = os.open(CLAIMS / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _claim(config: AgentConfig, used: Sequence[int]) -> _Claim:
    """Takes the numbers that the configuration names, or some that are free. `used`: those of jobs that still have
    files in the agent's folder. Raises NoJobUsers.
    """
    if config.job_users == "auto":
        count = JOB_USERS_BLOCK
        blocks = [AUTO_JOB_USERS[at : at + count] for at in range(0, len(AUTO_JOB_USERS), count)]
        blocks.sort(key=lambda block: not any(user in block for user in used))
    else:
        blocks = [users_of(config.job_users)]
    why = ""
    try:
        CLAIMS.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NoJobUsers(f"it cannot write down which users it takes: {error}") from error
    with _claims_locked():
        others = list(_others(config.folder))
        for users in blocks:
            if strange := next((user for user in used if user not in users), None):
                why = (
                    f"{config.folder} still holds files of jobs of another range, such as of user {strange}. Start the "
                    "agent once more with that range, or remove the folder"
                )
            elif found := next((folder for taken, folder in others if _overlap(users, taken)), None):
                why = (
                    f"the agent in {found} has users of {users[0]}-{users[-1]}, and files of its jobs may be theirs. "
                    f"Give each agent of this machine a range of its own; or, if it is no longer used, remove {found}"
                )
            elif not (why := _why_taken(users)):
                path = CLAIMS / f"{users[0]}-{users[-1]}"
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                os.write(descriptor, os.fsencode(config.folder))
                return _Claim(users, path, descriptor)
    raise NoJobUsers(why)


def _others(own: Path) -> Iterator[tuple[range, str]]:
    """The numbers of other agents, with their folders. Removes claims of agents that are gone with all their files."""
    for path in CLAIMS.iterdir():
        found = _CLAIM.fullmatch(path.name)
        if found is None:
            continue
        folder = os.fsdecode(path.read_bytes())
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if folder == str(own) or not _has_jobs(Path(folder) / NOTE):
                path.unlink()
                continue
        except BlockingIOError:
            pass
        finally:
            os.close(descriptor)
        yield range(int(found[1]), int(found[2]) + 1), folder


def _has_jobs(note: Path) -> bool:
    try:
        return bool((read_note(note) or {}).get("jobs"))
    except (NoteDamaged, OSError):
        return note.exists()


def _open_folder(folder: Path) -> None:
    """Lets users of jobs pass through the agent's folder, and closes what is not theirs in it. Scripts may have written
    there under an earlier agent: no link is followed. Raises LinkRefused, OSError.
    """
    with Folder.open(os.path.realpath(folder)) as own:
        for name in ("code", "staged", "workers"):
            own.make(name)
        for name in own.names():
            mode = own.status(name).st_mode
            if name in _OPEN and stat.S_ISLNK(mode):
                raise LinkRefused(str(folder / name))
            if name not in _OPEN and (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
                with _opened(own, name) as place:
                    os.chmod(place, stat.S_IMODE(mode) & 0o700)  # noqa: PTH101  a path of an open file
        os.fchmod(own.descriptor, 0o711)


@contextmanager
def _opened(folder: Folder, name: str) -> Iterator[str]:
    """A path that leads to exactly what has this name in a folder, and is no link. Raises OSError."""
    descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder.descriptor)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
