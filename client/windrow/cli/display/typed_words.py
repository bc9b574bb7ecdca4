"""Messages in the words of the command line: who runs a script without a job file has typed options, not settings."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from windrow.common.quantities import first_few
from windrow.sdk.job import Job, Step
from windrow.spec.one_line.request import is_one_line
from windrow.spec.reading.problems import Problem

if TYPE_CHECKING:
    from windrow.cli.run_options import RunOptions

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


_IN_STEP = re.compile(r"jobs\.[^.]+\.(.*)")
INPUTS_NAMED = 3


def typed_problems(problems: Iterable[Problem], options: RunOptions) -> tuple[Problem, ...]:
    """Problems of a job file that was made for a command line, at the options that were typed; others as they are."""
    if not options.is_script:
        return tuple(problems)
    return tuple(_typed_problem(one, options) if is_one_line(one.file) else one for one in problems)


def _typed_problem(problem: Problem, options: RunOptions) -> Problem:
    # Where another setting was given: that is the command line, too.
    message = re.sub(rf"job \({re.escape(problem.file)}:\d+\)", "the command line", problem.message)
    return Problem(_place(problem.key, options), 0, 0, "", typed(message, {"job_file": problem.file}))


def _place(key: str, options: RunOptions) -> str:
    """What was typed for a setting of the job file, such as `--mini-batch-size -1`."""
    found = _IN_STEP.fullmatch(key)
    setting = found[1] if found else ""
    if option := _OPTIONS.get(setting):
        value = getattr(options, option[2:].replace("-", "_"))
        return option if value is None else f"{option} {shlex.quote(str(value))}"
    if setting.startswith("outputs"):
        return f"-o {shlex.quote(options.output or '')}"
    if setting.startswith("input"):
        return first_few(options.inputs, INPUTS_NAMED)
    if setting == "task.program_arguments" and options.arguments:
        return shlex.join(["--", *options.arguments])
    return options.job_file


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
