"""What has changed between two jobs, in words.

`changes`: between a step and the earlier one whose results it takes over, of code, and of settings that decide rows.
How the input is divided, and how failures are handled, changes no result that is taken over. `differences`: all that
makes one run another (`EffectiveJob.run_digest`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from windrow.common.archives import ArchiveError, contents
from windrow.common.quantities import first_few
from windrow.spec.effective.job import EffectiveJob, EffectiveStep
from windrow.spec.settings.arguments import find_runtime_arguments

FILES_SHOWN = 5

_WORDS = {
    "resume_from": "--since",
    "max_retries": "retry_settings.max_retries",
    "run_invocation_timeout_s": "retry_settings.timeout",
    "retry_delay_s": "--retry_delay",
    "rate_limit": "--rate_limit",
    "returns": "--returns",
    "speculate": "--speculate",
    "allow_path": "--allow_path",
    "cpus_per_worker": "resources.cpus_per_worker",
    "memory_per_worker": "resources.memory_per_worker",
    "gpus_per_worker": "resources.gpus_per_worker",
    "min_nodes": "resources.min_nodes",
    "shared_memory_bytes": "resources.shm_size",
    "idle_gpu_timeout_s": "--idle_gpu_timeout",
    "split": "--split",
}
"""Settings that a job file does not call as a step does, without the unit."""
_TOLD = frozenset({"name", "code_digest", "entry_script", "arguments", "environment", "environment_variables"})
"""Fields of which `changes` tells."""
_BY_NAME = {"inputs": "the input", "outputs": "the output", "table_digests": "the MLTable file of the input"}

ArchiveOf: TypeAlias = Callable[[str], Path | None]
"""The archive of a code folder, by its digest; None if it is not here."""


def changes(before: EffectiveStep, step: EffectiveStep, archive_of: ArchiveOf) -> list[str]:
    """Each change in a few words; empty if the results are those that the step would have now. Raises OSError."""
    return [*_code(before, step, archive_of), *_settings(before, step)]


def differences(before: EffectiveJob, job: EffectiveJob, archive_of: ArchiveOf) -> list[str]:
    """What makes `job` another run than `before`, each difference in a few words. Raises OSError."""
    then, now = ({step.name: step for step in one.steps} for one in (before, job))
    told = [f"the step {name} is new" for name in now if name not in then]
    told += [f"the step {name} is gone" for name in then if name not in now]
    for name, step in now.items():
        if (old := then.get(name)) is None or old == step:
            continue
        found = [*changes(old, step, archive_of), *_others(old, step)]
        if not found and old.arguments != step.arguments:
            found = [f"arguments: {_shown(list(old.arguments))} is now {_shown(list(step.arguments))}"]
        told += [f"step {name}: {one}" if len(now) > 1 else one for one in found]
    if [*then] != [*now] and then.keys() == now.keys():
        told.append("the order of the steps")
    if before.outputs != job.outputs:
        told.append("the outputs of the job")
    if before.continue_on_step_failure != job.continue_on_step_failure:
        told.append("continue_on_step_failure")
    return told


def _others(before: EffectiveStep, step: EffectiveStep) -> Iterator[str]:
    """What `changes` does not tell of: how the input is divided, where rows go, how failures are handled."""
    for field, old in before._asdict().items():
        new = getattr(step, field)
        if old == new:
            continue
        if field in _BY_NAME:
            for name in sorted(old.keys() | new.keys()):
                divided = name in step.input_data or name in before.input_data
                # `changes` tells of other inputs.
                if old.get(name) != new.get(name) and (divided or field != "inputs"):
                    yield f"{_BY_NAME[field]} {name}"
        elif field not in _TOLD:
            word = _WORDS.get(field, field.removesuffix("_s"))
            scalar = all(isinstance(value, str | int | float | None) for value in (old, new))
            yield f"{word}: {_shown(old)} is now {_shown(new)}" if scalar else word


def _code(before: EffectiveStep, step: EffectiveStep, archive_of: ArchiveOf) -> Iterator[str]:
    if before.code_digest == step.code_digest:
        return
    old, new = archive_of(before.code_digest), archive_of(step.code_digest)
    if old is None or new is None:
        yield "the code"
        return
    try:
        then, now = _contents(old), _contents(new)
    except ArchiveError:
        yield "the code"
        return
    told = []
    for name in sorted(then.keys() | now.keys()):
        if then.get(name) != now.get(name):
            how = "new" if name not in then else "gone" if name not in now else "changed"
            told.append(f"{os.fsdecode(name)} ({how})")
    # Archives of equal files may differ in a mode.
    yield f"the code: {first_few(told, FILES_SHOWN, 'file')}" if told else "the code: which of its files are executable"


def _contents(archive: Path) -> dict[bytes, bytes]:
    """As of `contents`. An OSError names the archive, also where it is reading that fails."""
    try:
        return contents(archive, what="code")
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fspath(archive)) from error


def _settings(before: EffectiveStep, step: EffectiveStep) -> Iterator[str]:
    compared: list[tuple[str, Any, Any]] = [
        ("entry_script", before.entry_script, step.entry_script),
        ("arguments", _of_script(before.arguments), _of_script(step.arguments)),
        ("environment", before.environment, step.environment),
    ]
    variables = {**before.environment_variables, **step.environment_variables}
    for name in sorted(variables):
        if before.environment_variables.get(name) != step.environment_variables.get(name):
            # Its value may be a secret.
            yield f"the environment variable {name}"
    for what, old, new in compared:
        if old != new:
            yield f"{what}: {_shown(old)} is now {_shown(new)}"
    for name in sorted(step.inputs.keys() | before.inputs.keys()):
        divided = name in step.input_data or name in before.input_data
        if not divided and before.inputs.get(name) != step.inputs.get(name):
            yield f"the input {name}"


def _of_script(arguments: Sequence[str]) -> list[str]:
    """The arguments without those of the runtime, which decide no row."""
    left = list(arguments)
    for found in find_runtime_arguments(arguments):
        if found.written in left:
            at = left.index(found.written)
            del left[at : at + (1 if found.value is None else 2)]
        elif (whole := f"{found.written}={found.value}") in left:
            left.remove(whole)
    return left


def _shown(value: object) -> str:
    # Not at the top: the first run() waits for imports.
    from windrow.common.secret_values import shown_text, without_secrets

    if isinstance(value, list):
        value = " ".join(without_secrets(value)[0])
    text = "" if value is None else shown_text(str(value))
    return (text if len(text) <= 80 else f"{text[:79]}…") or "none"
