"""What a check finds, and what the damage means for the job and step concerned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from windrow_master.core.states import ENDED_JOBS, ENDED_STEPS
from windrow_master.salvage.folder import DamagedState
from windrow_master.store.found import FoundJob, FoundStep

_ENDED_JOBS = frozenset(map(int, ENDED_JOBS))
_ENDED_STEPS = frozenset(map(int, ENDED_STEPS))

AGAIN = "run the job again with `--since` and the name of this one, to take over its finished results"
_MEANS_STEP = {
    False: f"the step cannot continue; {AGAIN}",
    True: "its output stays as it is, but reports, retries and `--since` that need this are refused",
}
"""What damage to a step means, by whether the step has ended."""
_MEANS_JOB = {
    False: "no master starts with it; salvage saves the rows of its mini-batches",
    True: "it has ended, and its output stays as it is; no master shows or retries it",
}
_MEANS = {
    "job": "no master starts with it; salvage takes its name from the folder of its steps, and saves their rows",
    "node": "no master starts with it; jobs and rows can be read",
    "counted": "no master starts with it; jobs and rows can be read",
    "master": "no master starts with it; jobs and rows can be read",
    "segment": "its rows are not put into an output; salvage saves those that have their checksum",
    "output": "the file is no longer known as Windrow's; a step that writes there fails",
    "asset": "it cannot be used; all others can",
    "token": "no master starts with it; jobs and rows can be read",
    "queue": "no master starts with it; jobs and rows can be read",
    "fleet": "no master starts with it; jobs and rows can be read",
    "allocation": "no master starts with it; jobs and rows can be read",
    "ledger": "no master starts with it if its job has not ended, and usage cannot be shown; jobs and rows can be read",
}
"""What damage to a row means, by table."""


class Damage(NamedTuple):
    """One finding. `where`: the file, or the table and row; `what`: how the damage shows."""

    where: str
    what: str


def has_ended(found: FoundJob | FoundStep | None) -> bool:
    """Whether a job or a step is known to have ended."""
    ended = _ENDED_JOBS if isinstance(found, FoundJob) else _ENDED_STEPS
    return found is not None and found.state in ended


def means_for_step(step: FoundStep) -> str:
    """The meaning of damage to something that a step needs."""
    return _MEANS_STEP[has_ended(step)]


def means_for_job(job: FoundJob | None) -> str:
    """The meaning of damage to something that a job needs."""
    return _MEANS_JOB[has_ended(job)]


class Meanings:
    """Says which job and step a row belongs to, as far as that can be read, and what its damage means."""

    def __init__(self, state: DamagedState) -> None:
        self._jobs = {job.job_key: job for job in state.records.jobs()}
        self._steps = {step.step_id: step for step in state.records.steps()}

    def of_row(self, table: str, row: Sequence[Any]) -> str:
        """The meaning of a damaged row of one of the tables in WHOLE_ROWS."""
        if table == "job_document":
            job = self._jobs.get(row[0])
            name = f"job {job.job_id!r}" if job is not None else f"job number {row[0]}"
            return f"it is of {name}: {means_for_job(job)}"
        if table == "step":
            job = self._jobs.get(row[1])
            name = f"of job {job.job_id!r}" if job is not None else f"of job number {row[1]}"
            return f"it is step {row[3]!r} {name}: {means_for_job(job)}"
        if table == "step_document":
            return f"it is {self.of_step(row[0])}"
        if table == "segment":
            return f"rows {self.of_step(row[1], _MEANS[table])}"
        return f"{row[0]}: {_MEANS[table]}" if table in ("output", "asset") else _MEANS[table]

    def of_step(self, step_id: int, meaning: str | None = None) -> str:
        """The meaning of damage to something that belongs to a step."""
        step = self._steps.get(step_id)
        job = None if step is None else self._jobs.get(step.job_key)
        name = f"step {step_id}" if step is None or job is None else named(job, step)
        return f"of {name}: {meaning or means_for_job(job)}"


def steps_of(state: DamagedState) -> Iterator[tuple[FoundJob, FoundStep]]:
    """The steps whose rows are sound, each with its job."""
    jobs = {job.job_key: job for job in state.records.jobs()}
    for step in (*state.records.steps(), *state.lost_steps()):
        if step.job_key in jobs:
            yield jobs[step.job_key], step


def named(job: FoundJob, step: FoundStep) -> str:
    """The names of a step and its job, for messages."""
    return f"step {step.name!r} of job {job.job_id!r}"


def unread(error: OSError) -> str:
    """The words for a file that cannot be read."""
    return "it is gone" if isinstance(error, FileNotFoundError) else f"it cannot be read: {error.strerror}"
