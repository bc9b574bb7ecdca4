"""Messages in the words of the command line: who runs a script without a job file has typed options, not settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from windrow.sdk.job import Job, Step
from windrow.spec.one_line.request import is_one_line

_OPTIONS = {
    "retry_settings.timeout": "--timeout",
    "retry_settings.max_retries": "--max-retries",
    "mini_batch_size": "--mini-batch-size",
    "partition_keys": "--partition-keys",
    "max_concurrency_per_instance": "--workers",
    "--retry_delay": "--retry-delay",
    "--rate_limit": "--rate-limit",
}
_SETTINGS = re.compile("|".join(map(re.escape, _OPTIONS)))


def typed(text: str, document: Mapping[str, Any]) -> str:
    """A message about settings of a job, in the options of its command; as it is if the job has a job file of its
    own.
    """
    if not is_one_line(document.get("job_file", "")):
        return text
    return _SETTINGS.sub(lambda found: _OPTIONS[found[0]], text)


def as_typed(job: Job, document: Mapping[str, Any]) -> Job:
    """The job with all messages about its settings as `typed`. What the script says stays."""

    def of(step: Step) -> Step:
        kinds = tuple(
            kind
            if kind.error
            else kind._replace(message=typed(kind.message, document), detail=typed(kind.detail, document))
            for kind in step.failure_kinds
        )
        return step._replace(message=typed(step.message, document), failure_kinds=kinds)

    return job._replace(message=typed(job.message, document), steps=tuple(map(of, job.steps)))
