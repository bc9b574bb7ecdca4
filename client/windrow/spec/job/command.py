"""Steps of type `command`: a shell command that runs once, beside the parallel steps of a pipeline.

It becomes one mini-batch without input, so leases, deadlines, logs and lost nodes work as for any other mini-batch.
Unlike those, it is not retried when it fails: it may have written part of its output.
Reference: docs/reference/azure-ml/parallel-job.md#command-steps.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from collections.abc import Mapping as MappingType
from typing import Any

from windrow.spec.effective.job import EffectiveStep, OutputInput, StepInput, StepOutput
from windrow.spec.environments.environment import read_environment
from windrow.spec.job.task import check_references, code_folder
from windrow.spec.naming.expressions import expand_groups, references
from windrow.spec.reading.context import Context, Origin, origin_of
from windrow.spec.reading.keys import Resolve, as_mapping, check_keys, read_scalar, read_text
from windrow.spec.reading.nodes import Mapping, Node, Scalar, is_null, shown
from windrow.spec.reading.problems import StepCode
from windrow.spec.settings.fields import INT_MAX, worker_needs
from windrow.spec.settings.schema import LIMITS, RESOURCES

_OPTION = re.compile(r"--?[A-Za-z]")
ALLOW_PATH = "WINDROW_ALLOW_PATH"
"""The variable of a step: as --allow_path in the arguments of a parallel one, with several paths."""
NO_CODE = ""
"""In place of the code folder of a command without code."""

_FIXED: MappingType[str, Any] = {
    "rank_mini_batch_count": 1,
    "max_concurrency_per_instance": 1,
    "instance_count": 1,
    "max_retries": 0,
    "mini_batch_error_threshold": 0,
    "may_shut_down": False,
}


def read_command(
    name: str,
    settings: Mapping,
    variables: dict[str, str],
    inputs: dict[str, StepInput],
    outputs: dict[str, StepOutput],
    input_state: Callable[[str], bool | None],
    compute: str,
    unpacked: str,
    resolve: Resolve,
    context: Context,
) -> tuple[EffectiveStep, str]:
    """The effective step, and its code folder (or NO_CODE). `unpacked` stands for the digest of its code, `resolve`
    gives the literals that its settings refer to.

    `input_state(name)` says whether an input of the step has a value, or None if the step has no such input.
    """
    key, entries = f"jobs.{name}", settings.entries
    code = entries.get("code")
    folder = NO_CODE if code is None or is_null(code) else code_folder(code, f"{key}.code", context)
    if folder and code is not None:
        code_key = context.problems.as_spelled(f"{key}.code")
        context.codes.append(StepCode(name, folder, code.place, code_key, variables=variables))
    command = _command(settings, f"{key}.command", outputs, input_state, context)
    resources = as_mapping(entries.get("resources"), f"{key}.resources", context)
    needs: dict[str, Any] = {}
    if resources is not None:
        needs = _read_resources(resources, f"{key}.resources", key, resolve, context)
    limits = as_mapping(entries.get("limits"), f"{key}.limits", context)
    timeout_s, origin = INT_MAX, Origin("default")
    if limits is not None:
        check_keys(limits, LIMITS, f"{key}.limits", context)
        given = limits.entries.get("timeout")
        value = (
            None if is_null(given) else read_scalar(given, LIMITS["timeout"], f"{key}.limits.timeout", context, resolve)
        )
        if given is not None and value is not None:
            timeout_s, origin = int(value), origin_of(given)
    context.origins[f"{key}.run_invocation_timeout_s"] = origin
    step = EffectiveStep(
        name=name,
        allow_path=_allowed_paths(variables, entries.get("environment_variables", settings), key, context),
        code_digest=unpacked,
        entry_script="",
        inputs=inputs,
        input_data=(),
        command=command,
        depends_on=tuple(dict.fromkeys(given.step for given in inputs.values() if isinstance(given, OutputInput))),
        environment_variables=variables,
        outputs=outputs,
        environment=read_environment(entries.get("environment"), f"{key}.environment", context),
        compute=compute,
        run_invocation_timeout_s=timeout_s,
        **_FIXED,
        **needs,
    )
    return step, folder


def _allowed_paths(variables: MappingType[str, str], node: Node, key: str, context: Context) -> tuple[str, ...]:
    """What it needs beyond its inputs and outputs where scripts are confined. A command has no program_arguments."""
    paths = tuple(variables.get(ALLOW_PATH, "").split())
    for path in paths:
        if not path.startswith("/"):
            wrong = f'{ALLOW_PATH} has "{path}"; it must be absolute paths on the nodes, separated by spaces.'
            context.problems.error(node, f"{key}.environment_variables", wrong)
            return ()
    return paths


def _command(
    settings: Mapping,
    key: str,
    outputs: dict[str, StepOutput],
    input_state: Callable[[str], bool | None],
    context: Context,
) -> str:
    node = settings.entries.get("command")
    if node is None or is_null(node) or (isinstance(node, Scalar) and not node.text.strip()):
        missing = "is missing; write the shell command to run, such as python train.py."
        context.problems.error(settings if node is None else node, key, missing)
        return ""
    if read_text(node, key, context) is None or not isinstance(node, Scalar):
        return ""
    if "\0" in node.text:
        context.problems.error(node, key, "contains a NUL character, which no command can; remove it.")
        return ""
    try:
        command = expand_groups(
            node.text, lambda reference: reference.scope == "inputs" and input_state(reference.name) is False
        )
        found = references(command)
    except ValueError as error:
        context.problems.error(node, key, f"cannot be read: {error}.")
        return ""
    check_references(found, node, key, outputs, input_state, context)
    joined, options = _with_options_joined(command.strip())
    if options:
        context.problems.warn(
            node,
            key,
            f"has lines that begin with an option, such as {options[0]}: they are joined with the line before. In a "
            "folded text (`>-`), lines that are indented further stay lines of their own; indent all lines alike.",
        )
    return joined


def _with_options_joined(command: str) -> tuple[str, list[str]]:
    """Return a command whose lines that begin with an option belong to the line before, and the first word of each such
    line. A shell would take the option for a program (exit code 127).
    """
    if "<<" in command:
        return command, []  # text of a here-document may begin with anything
    lines, options = list[str](), list[str]()
    for line in command.split("\n"):
        text = line.strip()
        before = lines[-1].strip() if lines else ""
        is_whole = before and not before.startswith("#") and not before.endswith("\\")
        is_quoted = any("\n".join(lines).count(quote) % 2 for quote in "\"'")
        if _OPTION.match(text) and is_whole and not is_quoted:
            lines[-1] = f"{lines[-1].rstrip()} {text}"
            options.append(text.split()[0])
        else:
            lines.append(line)
    return "\n".join(lines), options


def _read_resources(resources: Mapping, key: str, step_key: str, resolve: Resolve, context: Context) -> dict[str, Any]:
    """What the command needs of its node."""
    check_keys(resources, RESOURCES, key, context)
    needs: dict[str, Any] = {}
    for name, setting in {**{name: name for name in worker_needs()}, "shm_size": "shared_memory_bytes"}.items():
        given = resources.entries.get(name)
        value = None if is_null(given) else read_scalar(given, RESOURCES[name], f"{key}.{name}", context, resolve)
        if given is not None and value is not None:
            needs[setting] = value
            context.origins[f"{step_key}.{setting}"] = origin_of(given)
    least, least_key = resources.entries.get("min_nodes"), f"{key}.min_nodes"
    if least is not None and read_scalar(least, RESOURCES["min_nodes"], least_key, context, resolve) not in (None, 1):
        context.problems.warn(least, least_key, f"{shown(least)} has no effect: a command runs once, on one node.")
    count, key = resources.entries.get("instance_count"), f"{key}.instance_count"
    if count is None or is_null(count):
        return needs
    if read_scalar(count, RESOURCES["instance_count"], key, context, resolve) not in (None, 1):
        context.problems.warn(count, key, f"{shown(count)} has no effect: a command runs once, on one node.")
    return needs
