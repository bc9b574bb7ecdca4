"""Reads jobs from the store, so that clients see only what is durable."""

from __future__ import annotations

import json

from windrow_master.core.ids import JobKey
from windrow_master.core.records import JobRow, StepRow
from windrow_master.core.statuses import process_of
from windrow_master.store.protocol import StoreReader


class Jobs:
    """Finds jobs, whether they are running or ended long ago. Raises StateError."""

    def __init__(self, reader: StoreReader) -> None:
        self._reader = reader

    @property
    def reader(self) -> StoreReader:
        """The store's reader, for what belongs to a single step."""
        return self._reader

    def find(self, job_id: str) -> tuple[JobRow, list[StepRow]] | None:
        """Return a job and its steps, or None."""
        row = self._reader.job_by_id(job_id)
        return None if row is None else (row, self._reader.steps_of(row.job_key))

    def get(self, job_key: JobKey) -> tuple[JobRow, list[StepRow]]:
        """Return a job that exists, and its steps. Raises KeyError."""
        row = self._reader.job_by_key(job_key)
        if row is None:
            raise KeyError(job_key)
        return row, self._reader.steps_of(job_key)

    def find_request(self, request_id: str) -> JobKey | None:
        """Return the job that a request made, or None."""
        row = self._reader.job_by_request(request_id)
        return None if row is None else row.job_key

    def page(self, size: int, before: int | None, project: str = "") -> list[tuple[JobRow, list[StepRow]]]:
        """Jobs, newest first, older than the job with key `before`; if a project is given, only its jobs."""
        rows = self._reader.jobs_newest_first(size, before, project)
        return [(row, self._reader.steps_of(row.job_key)) for row in rows]

    def workers_of(self, step: StepRow, mini_batch: int) -> set[tuple[str, str, int]]:
        """Return (node id, node incarnation, process number) of every worker that had the mini-batch."""
        attempts = self._reader.attempts_of_mini_batch(step.step_id, mini_batch)
        return {
            (attempt.node_id, attempt.node_incarnation, process)
            for attempt in attempts
            if (process := process_of(attempt.phase, attempt.process_number)) is not None
        }

    def pipeline_outputs(self, job: JobRow) -> dict[str, tuple[str, str]]:
        """Names of the pipeline's outputs -> (step, output)."""
        outputs = json.loads(job.document).get("outputs", {})
        return {name: (bound["step"], bound["output"]) for name, bound in outputs.items()}
