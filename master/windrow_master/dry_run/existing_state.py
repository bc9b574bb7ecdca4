"""What a state folder already holds, read without changing it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from windrow.spec.effective.document import DocumentError
from windrow.spec.effective.job import EffectiveJob, EffectiveStep

from windrow_master.core.counters import Counters
from windrow_master.core.records import JobRow
from windrow_master.core.states import ENDED_JOBS, JobState
from windrow_master.files.errors import StateDamaged, StateError
from windrow_master.files.lock import is_locked
from windrow_master.files.state_files import StateFiles
from windrow_master.shell.earlier import EarlierJobs, EarlierStep, NothingToResume
from windrow_master.step_paths import StepPaths
from windrow_master.store.protocol import Traces
from windrow_master.store.records import OutputRow
from windrow_master.store.sqlite.untouched import need_sound_files, untouched_reader

CANDIDATES_SHOWN = 5
JOBS_LOOKED_AT = 1000
T = TypeVar("T")


class Unreadable(Exception):
    """The state folder cannot be read without changing it; the text says why."""


class ExistingState:
    """The content of a state folder, which need not exist."""

    def __init__(self, state: Path) -> None:
        self._files = StateFiles(state)
        self._path = self._files.database
        self._reader = untouched_reader(self._path)
        self.is_there = self._path.is_file()

    def outputs_at(self, path: str) -> Sequence[OutputRow]:
        """The outputs that Windrow has written at a path. Raises Unreadable."""
        return self._ask(lambda: self._reader.outputs_at(path), [])

    def outputs_written(self) -> list[str]:
        """The paths of the outputs of all jobs; none if they cannot be read."""

        def found() -> list[str]:
            jobs = self._reader.jobs_newest_first(JOBS_LOOKED_AT)
            steps = (step for job in jobs for step in self._reader.steps_of(job.job_key))
            return [path for step in steps for path in StepPaths.from_json(step.paths).outputs.values()]

        try:
            return self._ask(found, [])
        except Unreadable:
            return []

    def free_name(self, wanted: str, length_max: int = 64) -> str:
        """The name that a job gets if it wants this one: with a number appended if an earlier job has it. Raises
        Unreadable.
        """
        name, number = wanted, 1
        while self._ask(partial(self._reader.job_by_id, name), None) is not None:
            number += 1
            suffix = f"-{number}"
            name = f"{wanted[: length_max - len(suffix)]}{suffix}"
        return name

    def unfinished(self, job: EffectiveJob) -> tuple[str, str, bool] | None:
        """The unfinished run of a job file: its name, its state, and whether it is equal to the job. Raises
        Unreadable."""
        rows: list[JobRow] = self._ask(lambda: self._reader.jobs_newest_first(JOBS_LOOKED_AT), [])
        found = None
        for row in rows:
            if row.state in ENDED_JOBS or row.state == JobState.CANCELLING or not _is_of(row, job.job_file):
                continue
            equal = row.run_digest == job.run_digest
            if found is None or equal:
                found = (row.job_id, JobState(row.state).name.lower(), equal)
            if equal:
                break
        return found

    def named(self, name: str) -> list[str]:
        """The jobs that a name may mean: the one of exactly this name, else those whose names begin so, at most
        CANDIDATES_SHOWN. Raises Unreadable.
        """
        if self._ask(partial(self._reader.job_by_id, name), None) is not None:
            return [name]
        rows: list[JobRow] = self._ask(lambda: self._reader.jobs_newest_first(JOBS_LOOKED_AT), [])
        return [row.job_id for row in rows if row.job_id.startswith(name)][:CANDIDATES_SHOWN]

    def last_of(self, job_file: str) -> str | None:
        """The job that `--since last` means: the newest one of a job file that has ended and has a result to take
        over. Raises Unreadable.
        """
        rows: list[JobRow] = self._ask(lambda: self._reader.jobs_newest_first(JOBS_LOOKED_AT), [])
        for row in rows:
            if row.state in ENDED_JOBS and _is_of(row, job_file) and self._ask(partial(self._has_results, row), False):
                return row.job_id
        return None

    def earlier(self, step: EffectiveStep) -> tuple[EarlierJobs, EarlierStep] | None:
        """The earlier job and step from which a step takes over results; None if it takes over nothing. Raises
        NothingToResume, Unreadable.
        """
        if step.resume_from is None:
            return None
        if not self.is_there:
            raise NothingToResume(
                f"There is no job named {step.resume_from!r}, whose results are to be taken over: "
                f"{self._files.folder} has no runs. Give its state folder with --state."
            )
        jobs = EarlierJobs(self._reader, self._files)
        found = self._ask(lambda: jobs.find(step), None)
        return None if found is None else (jobs, found)

    def _has_results(self, job: JobRow) -> bool:
        commands = {step.name for step in EffectiveJob.from_json(job.document).steps if step.command is not None}
        steps = (step for step in self._reader.steps_of(job.job_key) if step.name not in commands)
        return any(Counters.from_json(step.counters).succeeded for step in steps)

    def _ask(self, question: Callable[[], T], nothing: T) -> T:
        try:
            traces = Traces(beside=self._files.signs_of_use())
            need_sound_files(self._path, traces, is_live=is_locked(self._files.lock))
            return question() if self.is_there else nothing
        except StateDamaged as damage:
            raise Unreadable(str(damage)) from damage
        except (OSError, StateError) as error:
            raise Unreadable(f"{self._path} cannot be read without changing it: {error}") from error


def _is_of(row: JobRow, job_file: str) -> bool:
    try:
        return EffectiveJob.from_json(row.document).job_file == job_file
    except DocumentError:
        return False  # of another version
