"""Earlier jobs that a job continues: found by their job file, or by `--since`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from windrow.errors import NotFound
from windrow.sdk.job import Job
from windrow.spec.earlier_results import LAST, refuse_nothing_divided, with_results_of

if TYPE_CHECKING:
    from windrow.spec import EffectiveJob


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


def taking_over(client: JobCalls, job: EffectiveJob, wanted: str) -> EffectiveJob:
    """The job as it takes over results; as it is, where `wanted` is `last` and there is no earlier one.

    Raises NotFound, UsageError.
    """
    refuse_nothing_divided(job, wanted)
    earlier = last_of(client, job.job_file) if wanted == LAST else client.get(wanted).job_id
    return job if earlier is None else with_results_of(job, earlier)


def last_of(client: JobCalls, job_file: str) -> str | None:
    """What `last` means; None: there is none."""
    # One that failed before it had any result would hide those of the job before it.
    ended = (job for job in client.list_jobs() if job.state.ended and job.parallel.mini_batches.succeeded)
    return next((job.job_id for job, written in with_job_files(client, ended) if written == job_file), None)
