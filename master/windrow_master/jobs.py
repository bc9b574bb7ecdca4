"""Reads jobs: from the core while they live there, else from the store."""

from __future__ import annotations

import json

from windrow_master.core.core import Core
from windrow_master.core.ids import JobKey
from windrow_master.core.records import JobRow, StepRow
from windrow_master.store.protocol import StoreReader


class Jobs:
    """One way to look jobs up, whether they run or ended long ago."""

    def __init__(self, core: Core, reader: StoreReader) -> None:
        self._core = core
        self._reader = reader

    def find(self, job_id: str) -> tuple[JobRow, list[StepRow]] | None:
        """A job and its steps, or None."""
        key = self._core.state.job_keys.get(job_id)
        if key is not None:
            return self._live(key)
        row = self._reader.job_by_id(job_id)
        return None if row is None else (row, self._reader.steps_of(row.job_key))

    def find_request(self, request_id: str) -> str | None:
        """The job that a request made, or None."""
        for job in self._core.state.jobs.values():
            if job.request_id == request_id:
                return job.job_id
        row = self._reader.job_by_request(request_id)
        return None if row is None else row.job_id

    def page(self, size: int, before: int | None) -> list[tuple[JobRow, list[StepRow]]]:
        """Jobs, newest first, older than the job with key `before`."""
        rows = self._reader.jobs_newest_first(size, before)
        return [
            self._live(row.job_key)
            if row.job_key in self._core.state.jobs
            else (row, self._reader.steps_of(row.job_key))
            for row in rows
        ]

    def pipeline_outputs(self, job: JobRow) -> dict[str, tuple[str, str]]:
        """Names of the pipeline's outputs -> (step, output)."""
        outputs = json.loads(job.document).get("outputs", {})
        return {name: (bound["step"], bound["output"]) for name, bound in outputs.items()}

    def _live(self, key: JobKey) -> tuple[JobRow, list[StepRow]]:
        job = self._core.state.jobs[key]
        return job.row(), [step.row() for step in job.steps]
