"""Settings as the options of a command line without a job file: who typed options can change those."""

from __future__ import annotations

import re

from windrow.common.failure_kinds import key_of
from windrow.spec.one_line.request import is_one_line

OPTIONS = {
    "retry_settings.timeout": "--timeout",
    "retry_settings.max_retries": "--max-retries",
    "mini_batch_size": "--mini-batch-size",
    "partition_keys": "--partition-keys",
    "max_concurrency_per_instance": "--workers",
    "resources.cpus_per_worker": "--cpus-per-worker",
    "resources.memory_per_worker": "--memory-per-worker",
    "resources.gpus_per_worker": "--gpus-per-worker",
    "resources.min_nodes": "--min-nodes",
    "--retry_delay": "--retry-delay",
    "--rate_limit": "--rate-limit",
    "--idle_gpu_timeout": "--idle-gpu-timeout",
}
"""By setting: the option of `windrow run`."""
MARKED = "marked"
"""The cause of items that the script itself has marked as failed, with a message of its own."""
_SPELLED = {**OPTIONS, **{name.removeprefix("resources."): option for name, option in OPTIONS.items()}}
_SETTINGS = re.compile(rf"(?<![-\w])({'|'.join(map(re.escape, _SPELLED))})(?!\w)")


def in_options(text: str, job_file: str) -> str:
    """A message of Windrow's about settings of a job, in the options of its command; as it is if the job has a job file
    of its own.
    """
    return _SETTINGS.sub(lambda found: _SPELLED[found[0]], text) if is_one_line(job_file) else text


def failure_in_options(cause: str, message: str, job_file: str) -> str:
    """The same of the message of a failure; what the script says stays."""
    if cause == MARKED or not is_one_line(job_file) or key_of(message).error:
        return message
    return in_options(message, job_file)
