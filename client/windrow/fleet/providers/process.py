"""Agents as processes of this machine: a workstation gives its processors to the cluster while there is work.

They go on when the program of the fleet ends. Each allocation has a folder with a lock that a keeper
(`process_keeper`) holds as long as it lives; a process is never known by its number alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from windrow.common.removal import discard_tree
from windrow.common.signal_names import signal_name
from windrow.fleet.provider import Kind, Refused, Request, Seen, State
from windrow.fleet.providers import process_keeper
from windrow.fleet.providers.process_keeper import ENDED, STARTED
from windrow.spec.reading.context import Context
from windrow.spec.reading.keys import check_keys, read_text
from windrow.spec.reading.nodes import Mapping
from windrow.spec.settings.fields import Field

LOCK, LOG, AGENT_FOLDER = "lock", "log", "agent-folder"
KEPT_S = 3600.0
"""So long the folder of an allocation that has ended is kept."""
LOG_LINES = 5
_KEYS = {"folder": Field("text")}


class Settings(NamedTuple):
    """`folder`: for what is known of the processes, one folder for each allocation."""

    folder: Path


def read(mapping: Mapping, key: str, context: Context) -> Settings:
    """Read the keys below `process`."""
    check_keys(mapping, _KEYS, key, context)
    folder = read_text(mapping.entries.get("folder"), f"{key}.folder", context)
    if folder is None:
        state = os.environ.get("XDG_STATE_HOME") or str(Path("~/.local/state").expanduser())
        return Settings(Path(state, "windrow", "fleet"))
    return Settings(Path(context.source.folder, folder))


class Processes:
    """The allocations of one group on this machine."""

    def __init__(self, settings: Settings, prefix: str) -> None:
        self._folder = settings.folder.absolute()
        self._prefix = prefix

    def submit(self, request: Request) -> str:
        """Start an agent, with its keeper. Returns the keeper's process in words. Raises Refused."""
        folder = self._folder / request.name
        words = _own_program(request.agent.arguments)
        try:
            folder.mkdir(parents=True, mode=0o700)
            (folder / AGENT_FOLDER).write_text(request.agent.folder)
            lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                with (folder / LOG).open("ab") as log:
                    subprocess.run(
                        [sys.executable, "-I", process_keeper.__file__, str(folder), str(lock), *words],
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        env=_environment(request),
                        cwd=folder,
                        pass_fds=[lock],
                        start_new_session=True,
                        check=True,
                    )
            finally:
                os.close(lock)
            return _engine_id(int((folder / STARTED).read_text()))
        except (OSError, subprocess.CalledProcessError) as error:
            raise Refused(f"The agent cannot be started: {error}.") from error

    def allocations(self) -> Sequence[Seen]:
        """Those that live, and those that have ended in the last hour."""
        if not self._folder.is_dir():
            return []
        found = []
        for folder in sorted(self._folder.iterdir()):
            if self._is_own(folder) and (seen := self._look(folder)) is not None:
                found.append(seen)
        return found

    def cancel(self, seen: Seen, *, only_queued: bool) -> bool:
        """Ask an agent to drain; nothing is ever queued on this machine."""
        folder = self._folder / seen.name
        pid = _number_in(folder / STARTED)
        if only_queued or pid is None:
            return False
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:
            return False
        try:
            # As long as the lock is held, the number is that of its keeper: the descriptor stands for that process.
            if not _is_held(folder / LOCK):
                return False
            signal.pidfd_send_signal(descriptor, signal.SIGTERM)
        except ProcessLookupError:
            return False
        finally:
            os.close(descriptor)
        return True

    def why(self, seen: Seen) -> str:
        """How an agent ended, and the last lines that it wrote."""
        try:
            lines = (self._folder / seen.name / LOG).read_text(errors="replace").splitlines()[-LOG_LINES:]
        except OSError:
            lines = []
        return "\n".join([seen.reason, *lines]).strip()

    def _is_own(self, folder: Path) -> bool:
        return folder.name.startswith(self._prefix) and folder.is_dir()

    def _look(self, folder: Path) -> Seen | None:
        pid = _number_in(folder / STARTED)
        engine_id = "" if pid is None else _engine_id(pid)
        if _is_held(folder / LOCK):
            return Seen(folder.name, engine_id, State.STARTED)
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime > KEPT_S:
                _remove(folder)
                return None
        return Seen(folder.name, engine_id, *_ended(folder))


def _ended(folder: Path) -> tuple[State, str]:
    """How it ended."""
    try:
        how, _, number = (folder / ENDED).read_text().partition(" ")
    except OSError:
        return State.FAILED, "It was killed, with its keeper."
    if (how, number) == ("exit", "0"):
        return State.COMPLETED, ""
    if how == "exit":
        return State.FAILED, f"Its process ended with exit code {number}."
    if how == "signal":
        return State.FAILED, f"Its process was ended by {signal_name(int(number))}."
    return State.FAILED, f"{how} {number}."


def _remove(folder: Path) -> None:
    """Remove what is left of an allocation that has ended, with the folder of its agent."""
    with contextlib.suppress(OSError):
        agent = (folder / AGENT_FOLDER).read_text()
        if agent.endswith(folder.name):
            discard_tree(agent)
    discard_tree(folder)


def _is_held(lock: Path) -> bool:
    """Whether the keeper of an allocation lives. Those who look do not get in each other's way."""
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _number_in(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None


def _environment(request: Request) -> dict[str, str]:
    """The variables of an agent: not those by which the fleet reaches the master, which an agent takes for its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WINDROW_")}
    return {**kept, **request.agent.environment}


def _engine_id(pid: int) -> str:
    return f"process {pid}"


def _own_program(words: Sequence[str]) -> list[str]:
    """The words of a command; `windrow` is the one beside this Python, wherever PATH leads."""
    beside = Path(sys.executable).with_name("windrow")
    return [str(beside) if words[0] == "windrow" and beside.exists() else words[0], *words[1:]]


def show(settings: Settings, request: Request) -> str:
    """The command line."""
    variables = [f"{name}={shlex.quote(value)}" for name, value in request.agent.environment.items()]
    return " ".join([*variables, shlex.join(_own_program(request.agent.arguments))])


KIND = Kind(read, Processes, show)
