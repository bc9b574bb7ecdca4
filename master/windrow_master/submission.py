"""From a submitted document to a command for the core. Reference: docs/contracts.md, section 1."""

from __future__ import annotations

import secrets
import time
from pathlib import Path

from windrow.spec.effective import DataInput, EffectiveJob, EffectiveStep
from windrow.spec.effective_json import DocumentError

from windrow_master.artifacts import ArtifactFolder
from windrow_master.core import commands
from windrow_master.core.ids import JobKey
from windrow_master.core.settings import StepSettings
from windrow_master.jobs import Jobs

DOCUMENT_BYTES_MAX = 4 << 20


class SubmissionInvalid(Exception):
    """A document that cannot be accepted; `reason` is an ErrorInfo reason of the protocol."""

    def __init__(self, reason: str, message: str, metadata: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.metadata = metadata or {}


class Submissions:
    """Checks documents: the master trusts nothing that a client says."""

    def __init__(self, jobs: Jobs, artifacts: ArtifactFolder, *, embedded: bool, datastores: dict[str, Path]) -> None:
        """`datastores`: on a served master every path must resolve inside one of these roots."""
        self._jobs = jobs
        self._artifacts = artifacts
        self._embedded = embedded
        self._roots = [path.resolve() for path in datastores.values()]

    def command(self, request_id: str, document: bytes) -> commands.SubmitJob | JobKey:
        """The command to submit, or the job that this request made already. Raises SubmissionInvalid."""
        if not 1 <= len(request_id) <= 64:
            raise SubmissionInvalid("REQUEST_ID_INVALID", "request_id must have 1 to 64 characters.")
        known = self._jobs.find_request(request_id)
        if known is not None:
            return known
        if len(document) > DOCUMENT_BYTES_MAX:
            raise SubmissionInvalid(
                "JOB_INVALID", f"The job document has {len(document)} bytes; at most {DOCUMENT_BYTES_MAX} are accepted."
            )
        try:
            job = EffectiveJob.from_json(document)
        except DocumentError as error:
            raise SubmissionInvalid("JOB_INVALID", f"The job document is not valid: {error}") from error
        missing = sorted({step.code_digest for step in job.steps if self._artifacts.path(step.code_digest) is None})
        if missing:
            raise SubmissionInvalid(
                "ARTIFACT_MISSING",
                f"The code of the job is not here yet: {', '.join(missing)}. Upload it, then submit again.",
                {"digests": ",".join(missing)},
            )
        if not self._embedded:
            self._check_paths(job)
        job_id = job.name or make_job_id(job)
        if self._jobs.find(job_id) is not None:
            raise SubmissionInvalid(
                "JOB_EXISTS", f"A job named {job_id!r} exists already. Give this one another name, or none."
            )
        return commands.SubmitJob(
            job_id=job_id,
            request_id=request_id,
            document=document,
            run_digest=job.run_digest,
            steps=tuple(map(step_settings, job.steps)),
            priority=job.priority,
            weight=job.weight,
            warnings=tuple(job.warnings),
        )

    def _check_paths(self, job: EffectiveJob) -> None:
        for step in job.steps:
            given: dict[str, str | None] = {
                f"input {name!r}": data.path for name, data in step.inputs.items() if isinstance(data, DataInput)
            }
            given |= {f"output {name!r}": output.path for name, output in step.outputs.items()}
            for what, path in given.items():
                if path is not None and not any(Path(path).resolve().is_relative_to(root) for root in self._roots):
                    roots = ", ".join(map(str, self._roots)) or "(none)"
                    raise SubmissionInvalid(
                        "JOB_INVALID",
                        f"Step {step.name!r}, {what}: {path} is outside the datastores of this master ({roots}). "
                        f"Put the data there, or start the master with --datastore NAME={path}.",
                    )


def step_settings(step: EffectiveStep) -> StepSettings:
    """What the core has to know of a step."""
    return StepSettings(
        name=step.name,
        depends_on=tuple(step.depends_on),
        append_row=step.append_row_to is not None,
        error_threshold=step.error_threshold,
        mini_batch_error_threshold=step.mini_batch_error_threshold,
        allowed_failed_percent=step.allowed_failed_percent,
        max_retries=step.max_retries,
        first_task_creation_timeout_s=step.first_task_creation_timeout_s,
        progress_update_timeout_s=step.progress_update_timeout_s,
    )


def settings_of(document: bytes) -> tuple[StepSettings, ...]:
    """The settings of all steps of a stored document."""
    return tuple(step_settings(step) for step in EffectiveJob.from_json(document).steps)


def make_job_id(job: EffectiveJob) -> str:
    """A name for a job that brings none: what it is, when it came, and four random characters."""
    stem = "".join(char if char.isascii() and (char.isalnum() or char in "-_") else "-" for char in job.experiment_name)
    stem = stem.strip("-_")[:30] or "job"
    return f"{stem}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
