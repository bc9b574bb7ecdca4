"""The provider of agents from Slurm."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from windrow.fleet.provider import Refused, Request, Seen, State, Unreachable
from windrow.fleet.providers.slurm import commands
from windrow.fleet.providers.slurm.batch_script import batch_script, log_file, submission
from windrow.fleet.providers.slurm.settings import SlurmSettings
from windrow.fleet.providers.slurm.states import reason_of, state_of

SUBMIT_LIMIT_S = 60
ASK_LIMIT_S = 30
REMEMBERED_S = 3600
"""So long an allocation that has ended and left squeue is listed."""
PUT_OFF_DAYS = 300
"""So far away is the start of a job that is being cancelled."""
PUT_OFF_SEEN = timedelta(days=PUT_OFF_DAYS / 2)
LOG_BYTES_MAX, LOG_LINES_MAX = 2000, 8
"""Of the end of an agent's log, so much is shown."""
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_SHOWN = ("JobState", "Reason", "ExitCode", "Restarts", "StartTime", "EndTime", "NodeList", "BatchHost")


class _Job(NamedTuple):
    """A job of this user, as squeue or sacct show it."""

    id: str
    state: str
    reason: str
    name: str

    @property
    def seen(self) -> Seen:
        return Seen(self.name, self.id, state_of(self.state), reason_of(self.state, self.reason))


class SlurmProvider:
    """Keeps the contract of `windrow.fleet.provider.Provider` with Slurm's own commands, as the user who runs it.

    A job is one of the group's allocations if it is that user's, is no array, and has a name of the group.
    """

    def __init__(self, settings: SlurmSettings, prefix: str) -> None:
        self._settings = settings
        self._prefix = prefix
        self._unended: set[str] = set()
        """Jobs that had not ended when they were last seen."""
        self._left: dict[str, tuple[Seen, float]] = {}
        """Jobs that have ended, and when they were last heard of: soon squeue has forgotten them."""
        self._has_looked = False
        self._has_accounting = True

    def submit(self, request: Request) -> str:
        """Submit the batch job of an allocation, and return its number."""
        try:
            self._settings.log_path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise Refused(
                f"the folder of logs {self._settings.log_path} cannot be made: {error.strerror}; set slurm.log_folder"
            ) from None
        script = batch_script(self._settings, request)
        try:
            told = commands.run(submission(self._settings, request), time_limit_s=SUBMIT_LIMIT_S, stdin=script)
        except commands.Failed as error:
            raise Refused(str(error)) from None
        number = told.strip().partition(";")[0]
        if not number.isdecimal():
            raise Unreachable(f"sbatch printed {told.strip()[:200]!r} where the number of a job belongs")
        self._unended.add(number)
        return number

    def allocations(self) -> Sequence[Seen]:
        """The group's jobs that squeue shows, and those that accounting knows to have ended."""
        jobs = list(self._queue())
        for job in jobs:
            if job.state == "PENDING" and job.reason == "BeginTime":
                self._finish_cancel(job)
        shown = {job.id for job in jobs}
        self._learn_of_ends(self._unended - shown)
        self._unended = {job.id for job in jobs if not job.seen.state.has_ended}
        left = [seen for seen, _ in self._left.values() if seen.engine_id not in shown]
        for job in jobs:
            if job.id not in self._unended:
                self._left[job.id] = (job.seen, time.monotonic())
        return _one_each([*left, *(job.seen for job in jobs)])

    def cancel(self, seen: Seen, *, only_queued: bool) -> bool:
        """End a job. `scancel --state=PENDING` looks first and cancels then, so a job may start in between. Slurm moves
        the start of a job only if it is pending, and does that in one step: one that has been put off cannot start, and
        is ended then.
        """
        state = self._state(seen)
        if not only_queued:
            return state in (State.QUEUED, State.STARTED) and self._end(seen.engine_id)
        if state is not State.QUEUED:
            return False
        try:
            _scontrol("update", f"JobId={seen.engine_id}", f"StartTime=now+{PUT_OFF_DAYS}days")
        except commands.Failed:
            return False
        return self._end(seen.engine_id)

    def why(self, seen: Seen) -> str:
        """What scontrol or accounting say of a job, and how its log ends."""
        told = self._described(seen)
        if seen.state is State.QUEUED:
            return told
        path = log_file(self._settings, seen.name)
        ended = _end_of(path)
        return "\n".join(filter(None, (told, ended and f"{path} ends in:\n{ended}")))

    def _queue(self) -> Iterator[_Job]:
        """The group's jobs that the controller knows; it forgets those that ended after some minutes (MinJobAge)."""
        printed = commands.run(
            ["squeue", "--me", "--states=all", "--noheader", "--format=%i|%T|%r|%j"], time_limit_s=ASK_LIMIT_S
        )
        return self._ours(_Job(*fields) for fields in _rows(printed, 4))

    def _accounted(self, options: list[str]) -> Iterator[_Job]:
        """The group's jobs that accounting knows; none if it does not run, or not now: it only tells more of what is
        over.
        """
        if not self._has_accounting:
            return iter(())
        words = ["sacct", "--allocations", "--noheader", "--parsable2", "--format=JobID,State,ExitCode,JobName"]
        try:
            printed = commands.run([*words, *options], time_limit_s=ASK_LIMIT_S)
        except Unreachable:
            return iter(())
        except commands.Failed:
            self._has_accounting = False
            return iter(())
        jobs = (_Job(*fields) for fields in _rows(printed, 4))
        return self._ours(job._replace(reason=_exit_words(job.state, job.reason)) for job in jobs)

    def _learn_of_ends(self, gone: set[str]) -> None:
        """Ask accounting for the jobs that have left squeue; the first time, for those of the last day, whoever had
        submitted them.
        """
        now = time.monotonic()
        self._left = {number: kept for number, kept in self._left.items() if now - kept[1] < REMEMBERED_S}
        if not self._has_looked:
            options = ["--starttime=now-1days"]
        elif gone:
            options = [f"--jobs={','.join(sorted(gone))}"]
        else:
            return
        self._has_looked = True
        for job in self._accounted(options):
            if job.seen.state.has_ended:
                self._left[job.id] = (job.seen, now)

    def _ours(self, jobs: Iterable[_Job]) -> Iterator[_Job]:
        for job in jobs:
            # The number of an array's task, or of a part of a heterogeneous job, is no plain number.
            if job.id.isdecimal() and job.name.startswith(self._prefix) and _NAME.fullmatch(job.name):
                yield job

    def _end(self, number: str) -> bool:
        try:
            commands.run(["scancel", number], time_limit_s=ASK_LIMIT_S)
        except commands.Failed:
            return False
        return True

    def _finish_cancel(self, job: _Job) -> None:
        """End a job if `cancel` has put it off, and was cut off before it ended it: a fleet was killed, or Slurm fell
        silent. When a job is expected to start says nothing of that: it may wait for one that has no end.
        """
        with contextlib.suppress(Unreachable, commands.Failed):
            found = _fields(_scontrol("--oneliner", "show", "job", job.id))
            if found.get("JobName") == job.name and _is_far(found.get("EligibleTime", "")):
                self._end(job.id)

    def _state(self, seen: Seen) -> State | None:
        """The state of a job now; None: the controller does not know it. After a crash it may give the number of one
        that it has forgotten to another.
        """
        own = (seen.engine_id, seen.name)
        return next((job.seen.state for job in self._queue() if (job.id, job.name) == own), None)

    def _described(self, seen: Seen) -> str:
        try:
            found = _fields(_scontrol("--oneliner", "show", "job", seen.engine_id))
        except commands.Failed:
            jobs = self._accounted([f"--jobs={seen.engine_id}"])
            return "; ".join(f"{job.state} {job.reason}".strip() for job in jobs if job.name == seen.name)
        if found.get("JobName") != seen.name:
            return ""
        words = (f"{key}={found[key]}" for key in _SHOWN if found.get(key) not in (None, "", "(null)", "Unknown"))
        return " ".join(words)


def _scontrol(*words: str) -> str:
    return commands.run(["scontrol", *words], time_limit_s=ASK_LIMIT_S)


def _fields(printed: str) -> dict[str, str]:
    """What scontrol tells of a job."""
    return dict(re.findall(r"(\S+?)=(\S*)", printed))


def _is_far(moment: str) -> bool:
    """Whether a moment, as Slurm writes it, is about as far away as the start of a job that `cancel` has put off."""
    try:
        return datetime.fromisoformat(moment) > datetime.now() + PUT_OFF_SEEN
    except ValueError:
        return False


def _rows(printed: str, columns: int) -> Iterator[list[str]]:
    """Lines of columns. The last is the name, which may hold what parts the others; lines of another form are none of
    ours.
    """
    for line in printed.splitlines():
        fields = line.split("|", columns - 1)
        if len(fields) == columns:
            yield fields


def _one_each(seen: Sequence[Seen]) -> list[Seen]:
    """One job for each name: one that has not ended if there is any, else the last."""
    best: dict[str, Seen] = {}
    for one in seen:
        if one.name not in best or best[one.name].state.has_ended:
            best[one.name] = one
    return list(best.values())


def _exit_words(state: str, code: str) -> str:
    """What accounting tells of how a job ended: a code and a signal, as in "1:0"."""
    return f"exit code {code}" if state.startswith(("FAILED", "OUT_OF_MEMORY")) else ""


def _end_of(path: Path) -> str:
    """The last lines of a log; "" if it is not there, is empty, or is not seen from here."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LOG_BYTES_MAX))
            lines = file.read(LOG_BYTES_MAX).decode(errors="replace").splitlines()
    except OSError:
        return ""
    return "\n".join(lines[-LOG_LINES_MAX:])
