"""Which job file each job was made from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from windrow.errors import NotFound
from windrow.job import Job


class JobCalls(Protocol):
    """What of a client looks for earlier jobs."""

    def get(self, job_id: str) -> Job:
        """A job as it stands. Raises NotFound."""

    def document(self, job_id: str) -> dict[str, Any]:
        """The effective job as it was submitted. Raises NotFound."""

    def list_jobs(self) -> Iterator[Job]:
        """All jobs, newest first."""


def with_job_files(client: JobCalls, jobs: Iterable[Job]) -> Iterator[tuple[Job, str]]:
    """Each job with the absolute path of its job file, in the order given; without those that are gone meanwhile."""
    for job in jobs:
        try:
            document = client.document(job.job_id)
        except NotFound:
            continue
        yield job, document["job_file"]
