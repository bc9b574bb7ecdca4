"""The runtime's own arguments in `program_arguments`.

They are read here, and stay visible to the script; those of Windrow alone do so only if it names them.
Reference: docs/reference/azure-ml/parallel-job.md#reserved-arguments, #program-arguments, #undocumented-arguments,
#reading-arguments.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from windrow.spec.settings.fields import INT_MAX, Field, parse_value, step_needs, threshold, timeout
from windrow.spec.settings.schema import RETURNS, ROW_FORMATS


class RuntimeArgument(NamedTuple):
    """One argument.

    `sets` is the setting of the step that it overrides, or empty; see `Field.effect` for arguments without effect.
    """

    field: Field
    sets: str = ""


class FoundArgument(NamedTuple):
    """A runtime argument as it was found: as `written`, by its full `name`; `value` is None if none follows."""

    name: str
    written: str
    value: str | None


_TO_SCRIPT = "Azure ML's runtime claims this name; Windrow hands it to the script and does nothing else with it"

RUNTIME_ARGUMENTS: dict[str, RuntimeArgument] = {
    # Documented.
    "error_threshold": RuntimeArgument(threshold(), "error_threshold"),
    "allowed_failed_percent": RuntimeArgument(Field("number", 0, 100), "allowed_failed_percent"),
    "task_overhead_timeout": RuntimeArgument(timeout(), "task_overhead_timeout_s"),
    "progress_update_timeout": RuntimeArgument(timeout(), "progress_update_timeout_s"),
    "first_task_creation_timeout": RuntimeArgument(timeout(), "first_task_creation_timeout_s"),
    "copy_logs_to_parent": RuntimeArgument(Field("bool"), "copy_logs_to_parent"),
    "resource_monitor_interval": RuntimeArgument(
        Field("int", 0, INT_MAX, unit="seconds"), "resource_monitor_interval_s"
    ),
    "metrics_name_prefix": RuntimeArgument(Field("text"), "metrics_name_prefix"),
    "push_metrics_to_parent": RuntimeArgument(Field("bool"), "push_metrics_to_parent"),
    "append_row_dataframe_header": RuntimeArgument(Field("bool"), "dataframe_header"),
    "profiling_module": RuntimeArgument(Field("choice", choices=("cProfile", "profile")), "profiling_module"),
    "process_count_per_node": RuntimeArgument(Field("int", 1, INT_MAX), "max_concurrency_per_instance"),
    "run_invocation_timeout": RuntimeArgument(timeout(), "run_invocation_timeout_s"),
    "rank_mini_batch_count": RuntimeArgument(Field("int", -INT_MAX, INT_MAX), "rank_mini_batch_count"),
    # Of the command line that v1 builds, where the meaning is plain.
    "mini_batch_error_threshold": RuntimeArgument(threshold(), "mini_batch_error_threshold"),
    "allowed_failed_count": RuntimeArgument(threshold(), "mini_batch_error_threshold"),
    "run_max_try": RuntimeArgument(Field("int", 1, INT_MAX), "run_max_try"),
    "mini_batch_size": RuntimeArgument(Field("size"), "mini_batch_size"),
    "logging_level": RuntimeArgument(Field("choice", choices=("WARNING", "INFO", "DEBUG")), "logging_level"),
    "append_row_file_name": RuntimeArgument(Field("text"), "append_row_file_name"),
}

REPORT_ARGUMENTS = frozenset(
    (
        "copy_logs_to_parent",
        "resource_monitor_interval",
        "metrics_name_prefix",
        "push_metrics_to_parent",
        "profiling_module",
    )
)
"""Arguments that concern logs only. Scripts do not get them unless they are written out, and an abbreviation of one
with a value that it does not allow is the script's own argument."""

EXACT_ONLY: dict[str, RuntimeArgument] = {
    # Reserved in v1: a script of today may use these names for itself, so only a full match is even remarked on.
    "output": RuntimeArgument(Field("text")),
    "output_action": RuntimeArgument(Field("text", effect=_TO_SCRIPT)),
    "partition_keys": RuntimeArgument(Field("text"), "partition_keys"),
    # Seen in shipped components.
    "resume_from": RuntimeArgument(Field("text"), "resume_from"),
    "append_row_safe_output": RuntimeArgument(Field("bool")),  # rows are always whole
    "amlbi_async_mode": RuntimeArgument(Field("bool"), "amlbi_async_mode"),
    "amlbi_dataframe_mixed_types": RuntimeArgument(Field("bool"), "mixed_types"),
    "amlbi_file_format": RuntimeArgument(Field("choice", choices=("jsonl",)), "file_format"),
    "amlbi_mini_batch_rows": RuntimeArgument(Field("int", 1, INT_MAX), "mini_batch_rows"),
    # They go with amlbi_file_format, and say nothing more.
    "amlbi_pf_enabled": RuntimeArgument(Field("text")),
    "amlbi_pf_run_mode": RuntimeArgument(Field("text")),
}

OWN: dict[str, RuntimeArgument] = {
    # Beyond the original: only a full match counts, and no abbreviation of a name above is less unique for them.
    "append_row_format": RuntimeArgument(Field("choice", choices=ROW_FORMATS), "append_row_format"),
    "exact_row_index": RuntimeArgument(Field("bool"), "exact_row_index"),
    "returns": RuntimeArgument(Field("choice", choices=RETURNS), "returns"),
    "split": RuntimeArgument(Field("int", 1, INT_MAX, choices=("auto", "off")), "split"),
    "retry_delay": RuntimeArgument(Field("duration"), "retry_delay_s"),
    "rate_limit": RuntimeArgument(Field("rate"), "rate_limit"),
    "speculate": RuntimeArgument(Field("bool"), "speculate"),
    "allow_path": RuntimeArgument(Field("text"), "allow_path"),
    "idle_gpu_timeout": RuntimeArgument(timeout(), "idle_gpu_timeout_s"),
    **{name: RuntimeArgument(field, name) for name, field in step_needs().items()},
}

SCRIPTS_TOO = frozenset(("returns", "split", "retry_delay", "rate_limit", "speculate"))
"""Names of ours that scripts are likely to use for themselves: one without a value that ours allows is the script's."""

TOLD_IF_SCRIPTS = frozenset(("retry_delay", "rate_limit"))
"""Of these, a value without its unit may be a slip, so that it is told that the script gets them."""

ALL_ARGUMENTS: dict[str, RuntimeArgument] = {**RUNTIME_ARGUMENTS, **EXACT_ONLY, **OWN}


def find_runtime_arguments(arguments: Sequence[str]) -> Iterator[FoundArgument]:
    """Runtime arguments among split arguments, in order.

    Read as argparse does: `--name value` and `--name=value`, an exact name or a unique prefix of one. An ambiguous
    prefix is the script's own argument, and so is everything after a bare `--`.
    """
    for index, written in enumerate(arguments):
        if written == "--":
            return
        if not written.startswith("--"):
            continue
        option, equals, value = written.partition("=")
        name = full_name(option[2:])
        if name is None:
            continue
        if equals:
            yield FoundArgument(name, option, value)
            continue
        following = arguments[index + 1] if index + 1 < len(arguments) else None
        yield FoundArgument(name, option, None if following is None or following.startswith("--") else following)


def full_name(written: str) -> str | None:
    """The runtime argument that `written` (without dashes) names, exactly or by a unique prefix; else None."""
    if written in ALL_ARGUMENTS:
        return written
    matches = [name for table in (RUNTIME_ARGUMENTS, EXACT_ONLY) for name in table if name.startswith(written)]
    return matches[0] if written and len(matches) == 1 and matches[0] in RUNTIME_ARGUMENTS else None


def _is_scripts(found: FoundArgument) -> bool:
    """Whether an argument with a name of ours is the script's own, by its value."""
    if found.name not in SCRIPTS_TOO or (found.value and "${{" in found.value):
        return False
    try:
        parse_value(OWN[found.name].field, found.value)
    except ValueError:
        return True
    return False


_READ_BY_SCRIPT = re.compile(rb"""["']--([a-z0-9_]+)["']""")


def quoted_options(script: bytes) -> set[str]:
    """Names of the options that a script's source contains in quotes, as in `add_argument("--logging_level")`."""
    return {name.decode() for name in _READ_BY_SCRIPT.findall(script)}


def for_script(script: bytes, arguments: Sequence[str]) -> list[str]:
    """The arguments that a script gets: without those that only Windrow has, unless the script's source names them.

    No script that was written for Azure ML knows them, and one that refuses unknown arguments must run.
    """
    named = quoted_options(script)
    own = [
        found
        for found in find_runtime_arguments(arguments)
        if found.name in OWN and found.name not in named and not _is_scripts(found)
    ]
    left = list(arguments)
    for found in own:
        words = [f"{found.written}={found.value}"] if found.value is not None else [found.written]
        if words[0] not in left:
            words = [found.written] if found.value is None else [found.written, found.value]
        at = left.index(words[0])
        del left[at : at + len(words)]
    return left


def runtime_values(script: bytes, arguments: Sequence[str], settings: Mapping[str, Any]) -> list[str]:
    """Settings that a script reads from its arguments although `arguments` do not contain them, as `--name=value`.

    Azure ML's runtime passes all its arguments on, so scripts read settings that way. Windrow passes only those that
    the script's source names, so that a script may refuse unknown arguments. `settings` are the effective ones;
    settings without a value are left out.
    """
    named = quoted_options(script)
    given = {found.name for found in find_runtime_arguments(arguments)}
    if "max_retries" in settings:
        settings = {**settings, "run_max_try": settings["max_retries"] + 1}
    values = {
        name: settings.get(argument.sets)
        for name, argument in RUNTIME_ARGUMENTS.items()
        if name in named - given and argument.sets and name not in REPORT_ARGUMENTS
    }
    keys = settings.get("partition_keys")
    if keys and "partition_keys" in named - given:
        values["partition_keys"] = json.dumps(keys, ensure_ascii=False)
    return [f"--{name}={value}" for name, value in values.items() if value is not None]


def parse_partition_keys(text: str) -> tuple[str, ...]:
    """Parses partition keys that are given as JSON text. Raises ValueError, saying what is allowed."""
    allowed = 'it must be a list of text, also as JSON text such as ["store", "brand"]'
    try:
        keys = json.loads(text)
    except json.JSONDecodeError:
        raise ValueError(allowed) from None
    if not isinstance(keys, list) or not all(isinstance(name, str) for name in keys):
        raise ValueError(allowed)
    return checked_partition_keys(keys)


def checked_partition_keys(keys: Sequence[str]) -> tuple[str, ...]:
    """Returns partition keys, each a valid name that occurs only once. Raises ValueError."""
    repeated = sorted({name for name in keys if keys.count(name) > 1})
    if repeated:
        raise ValueError(f"{', '.join(repeated)} is named more than once")
    if "" in keys:
        raise ValueError("a key must have a name")
    return tuple(keys)
