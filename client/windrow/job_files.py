"""Which job file each job was made from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from windrow.errors import NotFound
from windrow.job import Job

if TYPE_CHECKING:
    from windrow.client import Client


def with_job_files(client: Client, jobs: Iterable[Job]) -> Iterator[tuple[Job, str]]:
    """Each job with the absolute path of its job file, in the order given; without those that are gone meanwhile."""
    for job in jobs:
        try:
            document = client.document(job.job_id)
        except NotFound:
            continue
        yield job, document["job_file"]
