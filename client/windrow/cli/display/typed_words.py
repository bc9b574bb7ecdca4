"""Messages in the words of the command line: who runs a script without a job file has typed options, not settings."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from windrow.common.quantities import first_few
from windrow.sdk.job import Job, Step
from windrow.spec.one_line.request import is_one_line
from windrow.spec.one_line.words import OPTIONS, failure_in_options, in_options
from windrow.spec.reading.problems import Problem

if TYPE_CHECKING:
    from windrow.cli.options.run_options import RunOptions
    from windrow.sdk.mini_batch import Attempt, MiniBatch, MiniBatchDetails

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
    if option := OPTIONS.get(setting):
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
    return in_options(text, document.get("job_file", ""))


def attempts_as_typed(mini_batch: MiniBatch, document: Mapping[str, Any]) -> MiniBatch:
    """A mini-batch with the message of its last attempt as `typed`."""
    last = mini_batch.last_attempt
    return mini_batch if last is None else mini_batch._replace(last_attempt=_attempt(last, document))


def details_as_typed(found: MiniBatchDetails, document: Mapping[str, Any]) -> MiniBatchDetails:
    """The same of everything that is known about a mini-batch."""
    file = document.get("job_file", "")
    return found._replace(
        mini_batch=attempts_as_typed(found.mini_batch, document),
        attempts=tuple(_attempt(one, document) for one in found.attempts),
        failed_items=tuple(
            one._replace(message=failure_in_options(one.cause, one.message, file)) for one in found.failed_items
        ),
    )


def _attempt(attempt: Attempt, document: Mapping[str, Any]) -> Attempt:
    file = document.get("job_file", "")
    return attempt._replace(message=failure_in_options(attempt.cause, attempt.message, file))


def as_typed(job: Job, document: Mapping[str, Any]) -> Job:
    """The job with all messages about its settings as `typed`. What the script says stays."""

    def of(step: Step) -> Step:
        kinds = tuple(
            kind._replace(message=failure_in_options(kind.cause, kind.message, document.get("job_file", "")))
            for kind in step.failure_kinds
        )
        return step._replace(message=typed(step.message, document), failure_kinds=kinds)

    return job._replace(message=typed(job.message, document), steps=tuple(map(of, job.steps)))
