"""Earlier jobs that a job continues: found by their job file, or by `--since`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from windrow.errors import NotFound
from windrow.sdk.job import Job
from windrow.sdk.job_names import find, only_job
from windrow.spec.earlier_results import LAST, refuse_nothing_divided, with_results_of

if TYPE_CHECKING:
    from windrow.spec import EffectiveJob


class JobCalls(Protocol):
    """The part of a client that finds earlier jobs."""

    def get(self, job_id: str) -> Job:
        """Return the current state of a job. Raises NotFound."""

    def document(self, job_id: str) -> dict[str, Any]:
        """The effective job as it was submitted. Raises NotFound."""

    def list_jobs(self) -> Iterator[Job]:
        """All jobs, newest first."""


def with_job_files(client: JobCalls, jobs: Iterable[Job]) -> Iterator[tuple[Job, str]]:
    """Yield each job with the absolute path of its job file, in order. Leaves out jobs that no longer exist."""
    for job in jobs:
        try:
            document = client.document(job.job_id)
        except NotFound:
            continue
        yield job, document["job_file"]


def taking_over(client: JobCalls, job: EffectiveJob, wanted: str) -> EffectiveJob:
    """The job with results of an earlier one taken over; unchanged if `wanted` is `last` and there is none.

    Raises NotFound, UsageError.
    """
    refuse_nothing_divided(job, wanted)
    earlier = last_of(client, job.job_file) if wanted == LAST else find(client, only_job(wanted)).job_id
    return job if earlier is None else with_results_of(job, earlier)


def last_of(client: JobCalls, job_file: str) -> str | None:
    """The job that `last` means; None if there is none."""
    # A job that failed without any result would hide the results of the one before it.
    ended = (job for job in client.list_jobs() if job.state.ended and job.parallel.mini_batches.succeeded)
    return next((job.job_id for job, written in with_job_files(client, ended) if written == job_file), None)
