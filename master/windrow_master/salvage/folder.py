"""A state folder that may be damaged, read from outside: its files, and what can be read of its store."""

from __future__ import annotations

import json

from windrow_master.files.state_files import StateFiles, StepFiles
from windrow_master.store.found import FoundJob, FoundStep
from windrow_master.store.sqlite.saved_records import SavedRecords


class DamagedState:
    """A state folder that may be damaged: where its files are, and what can be read of its database."""

    def __init__(self, files: StateFiles, records: SavedRecords) -> None:
        self.files = files
        self.records = records

    def step_files(self, job: FoundJob, step: FoundStep) -> StepFiles:
        """The files of a step."""
        return self.files.step(job.job_id, step.step_id)

    def lost_steps(self) -> list[FoundStep]:
        """Steps whose row is damaged, as far as their folders and the other records show.

        If only one step of a job is lost, it gets its name from the job's document; otherwise it is named by its
        number.
        """
        jobs = {job.job_id: job for job in self.records.jobs()}
        steps = self.records.steps()
        known = {step.step_id for step in steps}
        found: dict[int, list[int]] = {}
        for job_id, number, _ in self.files.steps_found():
            job = jobs.get(job_id)
            if job is not None and number not in known:
                found.setdefault(job.job_key, []).append(number)
        lost = []
        for job in jobs.values():
            taken = {step.ordinal for step in steps if step.job_key == job.job_key}
            free = [(at, name) for at, name in enumerate(_step_names(job.document)) if at not in taken]
            numbers = found.get(job.job_key, [])
            for number in numbers:
                at, name = free[0] if len(free) == len(numbers) == 1 else (-1, f"step-{number}")
                document = self.records.step_document(number)
                lost.append(FoundStep(number, job.job_key, at, name, -1, "", None, None, *document))
        return lost


def _step_names(document: bytes) -> list[str]:
    try:
        return [str(step["name"]) for step in json.loads(document or b"{}").get("steps", [])]
    except (ValueError, LookupError, TypeError, AttributeError):
        return []
