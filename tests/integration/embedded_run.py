"""Drives real `windrow run` processes for tests, watches their durable progress, and kills what it is told to."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from windrow_master.core.states import AttemptState, Cause
from windrow_master.core.statuses import status_of

WINDROW = str(Path(sys.executable).with_name("windrow"))
TYPED = shlex.quote(WINDROW)
"""As it stands in a line for a shell."""
DEADLINE_S = 180.0
T = TypeVar("T")

JOB = """\
type: pipeline
experiment_name: integration
inputs:
  data: {{type: uri_folder, path: ./data}}
outputs:
  result: {{type: uri_file, path: ./out.txt}}
jobs:
  score:
    type: parallel
    mini_batch_size: "{size}"
    input_data: ${{{{inputs.data}}}}
    inputs: {{data: "${{{{parent.inputs.data}}}}"}}
    outputs: {{result: "${{{{parent.outputs.result}}}}"}}
    {settings}
    task:
      type: run_function
      code: ./code
      entry_script: entry.py
      append_row_to: ${{{{outputs.result}}}}
"""


def wait_until(condition: Callable[[], T], what: str, deadline_s: float = DEADLINE_S) -> T:
    """Wait until a condition holds and return what it gave; fail with `what` when it does not in time."""
    end = time.monotonic() + deadline_s
    while not (found := condition()):
        assert time.monotonic() < end, f"not within {deadline_s} s: {what}"
        time.sleep(0.01)
    return found


class EmbeddedRun:
    """A folder with a job, its data and its code, and the `windrow run` processes started there."""

    def __init__(self, folder: Path, script: str, files: int, *, size: int = 1, settings: str = "") -> None:
        self.folder = folder
        self.state = folder / ".windrow"
        self.output = folder / "out.txt"
        self.process: subprocess.Popen[str] | None = None
        (folder / "code").mkdir(parents=True)
        (folder / "code" / "entry.py").write_text(script)
        (folder / "data").mkdir()
        for number in range(files):
            (folder / "data" / f"f{number:05d}").write_text(str(number))
        (folder / "job.yml").write_text(JOB.format(size=size, settings=settings))

    def start(self, *options: str) -> subprocess.Popen[str]:
        """Start `windrow run job.yml`. Failed items alone do not change its exit code."""
        tolerant = () if "--strict" in options else ("--tolerate",)
        self.process = subprocess.Popen(
            [WINDROW, "run", "job.yml", "--no-progress", *tolerant, *options],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        return self.process

    def finish(self) -> tuple[int, str]:
        """Wait for the run; return (exit code, what it printed)."""
        assert self.process is not None
        try:
            text, _ = self.process.communicate(timeout=DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            text, _ = self.process.communicate()
            raise AssertionError(f"windrow run did not end within {DEADLINE_S} s; it printed:\n{text}") from None
        return self.process.returncode, text

    def run(self, *options: str) -> tuple[int, str]:
        """Run to the end; return (exit code, what it printed)."""
        self.start(*options)
        return self.finish()

    def pids(self, role: str) -> list[int]:
        """Live processes of a role: cli, master, agent or worker."""
        if role == "cli":
            assert self.process is not None
            return [self.process.pid]
        if role == "worker":
            return [pid for agent in self.pids("agent") for pid in children(agent) if _runs(pid, "boot.py")]
        try:
            known = json.loads((self.state / "embedded.json").read_text())
        except (FileNotFoundError, ValueError):
            return []
        pid = known.get(f"{role}_pid")
        return [pid] if pid and _runs(pid, f"windrow_{role}") else []

    def kill(self, *roles: str, unless_ended: bool = False) -> bool:
        """SIGKILL one process of each role, at once. False: the run has ended, where that is allowed."""
        victims: list[int] = []
        for role in roles:

            def found(role: str = role) -> list[int]:
                if unless_ended and self.process is not None and self.process.poll() is not None:
                    return [0]
                return self.pids(role)

            # What is seen is taken: a worker left by an agent killed before may be gone at another look.
            victims.append(wait_until(found, f"a live {role}")[0])
        if 0 in victims:
            return False
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return True

    def kill_all(self) -> str:
        """SIGKILL the command, the master and the agent; returns what was printed, when no process is left."""
        self.kill("cli", "master", "agent")
        _, text = self.finish()
        wait_until(lambda: not self.strays(), "no process is left")
        return text

    def committed(self) -> int:
        """Mini-batches with a durable outcome."""
        return sum(counters["succeeded"] + counters["failed"] for counters in self.counters())

    def counters(self) -> list[dict[str, int]]:
        """The stored counters of all steps."""
        database = self.state / "windrow.db"
        if not database.exists():
            return []
        with (
            contextlib.suppress(sqlite3.OperationalError),
            contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection,
        ):
            return [json.loads(row[0]) for row in connection.execute("SELECT counters FROM step ORDER BY step_id")]
        return []

    def strays(self) -> list[str]:
        """Command lines of processes that belong to this folder and still live."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and int(entry.name) != os.getpid():
                line = command_line(int(entry.name))
                if str(self.state) in line:
                    found.append(line)
        return found


def stored_attempts(state: Path) -> list[tuple[str, str]]:
    """(status, cause) of every stored attempt that has not succeeded."""
    with contextlib.closing(sqlite3.connect(f"file:{state / 'windrow.db'}?mode=ro", uri=True)) as connection:
        rows = connection.execute(
            "SELECT state, cause, phase FROM attempt WHERE state <> ? ORDER BY lease_id", (AttemptState.SUCCEEDED,)
        ).fetchall()
    return [(status_of(*row), Cause(row[1]).name.lower()) for row in rows]


def check_counts(run: EmbeddedRun) -> dict[str, int]:
    """In = ok + failed + cancelled, of items and of mini-batches; returns the counters."""
    (counters,) = run.counters()
    assert counters["planned"] == counters["succeeded"] + counters["failed"] + counters["cancelled"]
    assert counters["items_total"] == counters["items_ok"] + counters["items_failed"] + counters["items_cancelled"]
    return counters


def check_words(text: str, words: list[str]) -> None:
    """All of them are there, and no traceback of ours (one of the script's own is welcome)."""
    missing = [word for word in words if word not in text]
    assert not missing, f"{missing} not in:\n{text}"
    for ours in ("windrow_worker/", "windrow_agent/", "windrow_master/", "client/windrow/"):
        assert ours not in text, text


def command_line(pid: int) -> str:
    """What a process was started as; "" when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _runs(pid: int, what: str) -> bool:
    return what in command_line(pid)


def children(pid: int) -> list[int]:
    """Child processes of a process's first thread."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


@contextlib.contextmanager
def unreadable(file: Path) -> Iterator[Path]:
    """A folder stands in the place of a file: root may read all files, but not this."""
    aside = file.with_name("aside")
    file.rename(aside)
    file.mkdir()
    yield file
    file.rmdir()
    aside.rename(file)
