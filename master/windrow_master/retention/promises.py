"""What would be lost with a job, and what keeps it.

Nothing that `retry`, `--since`, reuse, `mb show` or `job rows` promises goes without being said before: it is either a
loss, which is told, or a hindrance, which keeps the job. Some hindrances can be overridden, by a person who was told.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from windrow.common.quantities import first_few

from windrow_master.core.states import JobState
from windrow_master.retention.job_uses import JobUse

_NAMED = 3


class Hindrance(NamedTuple):
    """Why a job is kept. `reason`: an ErrorInfo reason of the protocol. `may_be_forced`: `--force` overrides it."""

    reason: str
    message: str
    may_be_forced: bool


class Consequences(NamedTuple):
    """What deleting a job means. `outputs_gone`, `outputs_kept`: the places of its outputs that go with it, and those
    that stay."""

    hindrances: tuple[Hindrance, ...]
    losses: tuple[str, ...]
    outputs_gone: tuple[str, ...]
    outputs_kept: tuple[str, ...]

    def hindrance(self, *, forced: bool) -> Hindrance | None:
        """What keeps the job; None if nothing does."""
        return next((one for one in self.hindrances if not (forced and one.may_be_forced)), None)


def consequences(
    job: JobUse,
    others: Sequence[JobUse],
    *,
    kept_below: Path | None,
    assets: Sequence[str] = (),
) -> Consequences:
    """What deleting `job` means.

    `others`: all other jobs that are there then, the newest first. `kept_below`: the folder in the state folder that
    holds the outputs of this job which have no other place; None if there is none. `assets`: data assets that are
    outputs there.
    """
    gone, kept = _outputs(job, kept_below)
    return Consequences(
        tuple(_hindrances(job, others, kept_below, assets)), tuple(_losses(job, others, gone)), gone, kept
    )


def _outputs(job: JobUse, kept_below: Path | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    inside = f"{kept_below}/"
    gone = tuple(place for place in job.outputs.values() if kept_below is not None and place.startswith(inside))
    return gone, tuple(place for place in job.outputs.values() if place not in gone)


def _hindrances(
    job: JobUse, others: Sequence[JobUse], kept_below: Path | None, assets: Sequence[str]
) -> list[Hindrance]:
    found: list[Hindrance] = []
    if not job.has_ended:
        state = job.state.name.lower()
        return [Hindrance("JOB_NOT_ENDED", f"Job {job.job_id} is {state}. Cancel it, or wait for its end.", False)]
    takers = [other for other in others if job.job_id in other.takes_over]
    readers = [other for other in others if kept_below is not None and _reads_below(other, kept_below)]
    reusers = [other for other in others if job.job_id in other.reused.values()]
    if busy := _named([other for other in (*takers, *readers, *reusers) if not other.has_ended]):
        found.append(
            Hindrance("JOB_NEEDED", f"Job {job.job_id} is needed by {busy}, which has not ended. Wait for that.", False)
        )
    if ended := _named([other for other in reusers if other.has_ended]):
        found.append(
            Hindrance(
                "JOB_NEEDED",
                f"Steps of {ended} were reused from job {job.job_id}: their mini-batches and rows, and the outputs "
                "that the master keeps for them, are those of this job. Delete the jobs that reused it first, or this "
                "one all the same with --force.",
                True,
            )
        )
    if unfinished := _named([one for one in takers if one.has_ended and job.job_id in one.takes_over_still]):
        found.append(
            Hindrance(
                "JOB_NEEDED",
                f"A retry of {unfinished} would take over results of job {job.job_id}, and fails without it. Retry "
                "that first, delete it first, or give it up with --force.",
                True,
            )
        )
    if job.takes_over and job.divided and _newest_result(job, others):
        found.append(
            Hindrance(
                "JOB_NEEDED",
                f"Job {job.job_id} has the newest results of {job.job_file or 'its job file'}, which the next "
                "`--since last` takes over; without it, everything runs again. Keep it, or give them up with --force.",
                True,
            )
        )
    if assets:
        found.append(
            Hindrance(
                "JOB_NEEDED",
                f"Outputs of job {job.job_id} that the master keeps are registered: {first_few(list(assets), _NAMED)}. "
                "What is registered would name nothing any more; --force deletes them all the same.",
                True,
            )
        )
    return found


def _losses(job: JobUse, others: Sequence[JobUse], gone: Sequence[str]) -> list[str]:
    losses = ["its history, logs, reports, mini-batches and rows (job show, job logs, job rows, mb show, mb replay)"]
    if job.state != JobState.COMPLETED:
        losses.append(f"its retry: it is {job.state.name.lower()}")
    if gone:
        losses.append(f"the outputs that the master keeps: {first_few(list(gone), _NAMED)}")
    if job.divided and _newest_result(job, others):
        losses.append(f"the results that the next `--since last` of {job.job_file or 'its job file'} would take over")
    if takers := _named([other for other in others if job.job_id in other.takes_over]):
        losses.append(
            f"what {takers} took over stays there, but a later --since no longer knows by which code it was made"
        )
    if job.may_be_reused:
        losses.append(f"later jobs cannot reuse {first_few(list(job.may_be_reused), _NAMED)}, which then run again")
    return losses


def _newest_result(job: JobUse, others: Sequence[JobUse]) -> bool:
    """Whether `--since last` of the same job file means this job."""
    return not any(
        other.divided and other.has_ended and other.job_file == job.job_file and other.job_key > job.job_key
        for other in others
    )


def _reads_below(job: JobUse, folder: Path) -> bool:
    return any(place == str(folder) or place.startswith(f"{folder}/") for place in job.reads)


def _named(jobs: Sequence[JobUse]) -> str:
    names = list(dict.fromkeys(f"job {job.job_id}" for job in jobs))
    return first_few(names, _NAMED) if names else ""
