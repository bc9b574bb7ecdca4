"""The task of a step: code folder, entry script, program arguments, and where rows go.

Reference: docs/reference/azure-ml/parallel-job.md#tasks, #program-arguments, #reading-arguments;
docs/reference/azure-ml/client.md#refusals, #old-names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable

from windrow.spec.effective.job import Environment, Rows, StepOutput
from windrow.spec.job.rows import read_rows_settings
from windrow.spec.naming.expressions import (
    Reference,
    expand_groups,
    references,
    split_arguments,
    whole_reference,
    written,
)
from windrow.spec.naming.locations import absolute, parse_location, why_unreachable
from windrow.spec.naming.names import is_entry_script
from windrow.spec.reading.context import Context
from windrow.spec.reading.keys import as_mapping, check_keys, read_scalar, read_text, unknown_name
from windrow.spec.reading.nodes import Mapping, Node, Place, Scalar, is_null, shown
from windrow.spec.reading.problems import did_you_mean
from windrow.spec.settings.schema import TASK

_SOURCE_BYTES_MAX = 1024 * 1024
_STAR = re.compile(rb"\bimport\s+\*")
_NOT_PYTHON = (
    "is not Python, and workers run Python scripts. Call it from one, with what it needs installed on the nodes: "
    "subprocess.run([...])."
)


class Task:
    """A task as read. Fields for which an error was noted keep their defaults."""

    def __init__(self) -> None:
        self.code_folder = ""
        self.entry_script = ""
        self.entry_source = b""
        self.arguments: list[str] = []
        self.arguments_place: Place | None = None
        self.append_row_to: str | None = None
        self.rows = Rows()
        self.environment: Environment | None = None


def read_task(
    node: Node | None,
    step: Node,
    key: str,
    outputs: dict[str, StepOutput],
    input_state: Callable[[str], bool | None],
    context: Context,
) -> Task:
    """Reads `task`.

    `input_state(name)` says whether an input of the step has a value, or None if the step has no such input.
    """
    task = Task()
    mapping = as_mapping(node, key, context)
    if mapping is None:
        if is_null(node):
            context.problems.error(
                step, key, "is missing; a parallel step needs a task with type, code and entry_script."
            )
        return task
    check_keys(mapping, TASK, key, context)
    _check_type(mapping, key, context)
    entries = mapping.entries
    task.code_folder = _task_code(mapping, key, context)
    task.entry_script, task.entry_source = _entry_script(mapping, task.code_folder, key, context)
    task.append_row_to = _append_row_to(entries.get("append_row_to"), outputs, f"{key}.append_row_to", context)
    arguments = entries.get("program_arguments")
    if not is_null(entries.get("args")):
        args = entries["args"]
        context.problems.warn(args, f"{key}.args", "is the old name of program_arguments, and is read as such.")
        if is_null(arguments):
            arguments = args
        else:
            context.problems.error(
                args, f"{key}.args", "is given together with program_arguments; keep only program_arguments."
            )
    if arguments is not None and not is_null(arguments):
        task.arguments = _arguments(arguments, f"{key}.program_arguments", outputs, input_state, context)
        task.arguments_place = arguments.place
    if task.code_folder:
        task.rows = read_rows_settings(task.code_folder, context)
    if not is_null(entries.get("environment")):
        from windrow.spec.environments.environment import read_environment

        task.environment = read_environment(entries["environment"], f"{key}.environment", context)
    return task


def _check_type(mapping: Mapping, key: str, context: Context) -> None:
    node = mapping.entries.get("type")
    if is_null(node):
        context.problems.error(mapping, f"{key}.type", 'is missing; use "type: run_function".')
    elif isinstance(node, Scalar) and node.text.strip().casefold() == "model":
        context.problems.error(
            node,
            f"{key}.type",
            '"model" is not supported; write an entry script and use "type: run_function".',
        )
    else:
        read_scalar(node, TASK["type"], f"{key}.type", context)
    if not is_null(mapping.entries.get("model")):
        model = mapping.entries["model"]
        context.problems.warn(
            model,
            f"{key}.model",
            f"{shown(model)} has no effect: it is for tasks of type model; give a model as an input.",
        )


def _task_code(mapping: Mapping, key: str, context: Context) -> str:
    node, key = mapping.entries.get("code"), f"{key}.code"
    if node is not None and not is_null(node):
        return code_folder(node, key, context)
    whole = (
        " A step's task replaces its component's task as a whole." if mapping.place.source.kind != "component" else ""
    )
    context.problems.error(
        mapping, key, f"is missing; name the folder that holds the entry script, relative to this file.{whole}"
    )
    return ""


def code_folder(node: Node, key: str, context: Context) -> str:
    """The absolute path of a code folder; "", with an error, if it is not a folder."""
    text = read_text(node, key, context)
    if text is None:
        return ""
    location = parse_location(text)
    if location.kind != "local":
        context.problems.error(node, key, why_unreachable(location, text))
        return ""
    folder = absolute(location.value, node.place.source.folder)
    if not os.path.isdir(folder):
        what = (
            "is a file; name the folder that holds it"
            if os.path.isfile(folder)
            else "does not exist; paths are relative to the file that holds them"
        )
        context.problems.error(node, key, f"{shown(node)} ({folder}) {what}.")
        return ""
    return folder


def may_shut_down(source: bytes) -> bool:
    """Whether an entry script may have a `shutdown()`, judging by its source; even a star import may provide one."""
    unknown = not source or len(source) >= _SOURCE_BYTES_MAX
    return unknown or b"shutdown" in source or _STAR.search(source) is not None


def _entry_script(mapping: Mapping, code_folder: str, key: str, context: Context) -> tuple[str, bytes]:
    """The script as named, and its source (empty if it cannot be read)."""
    node, key = mapping.entries.get("entry_script"), f"{key}.entry_script"
    if node is None or is_null(node):
        context.problems.error(
            mapping, key, "is missing; name the script with init and run, relative to the code folder."
        )
        return "", b""
    script = (read_text(node, key, context) or "").strip()
    while script.startswith("./"):
        script = script[2:].lstrip("/")
    if not is_entry_script(script):
        context.problems.error(
            node,
            key,
            f"{shown(node)} {_NOT_PYTHON}"
            if _is_other_file(code_folder, script)
            else f"{shown(node)} is neither a .py file inside the code folder (such as score.py) nor a "
            "dotted module (such as package.main).",
        )
        return "", b""
    if not code_folder:
        return script, b""
    if script.endswith(".py"):
        candidates = [os.path.join(code_folder, script)]
    else:
        module = os.path.join(code_folder, *script.split("."))
        candidates = [module + ".py", os.path.join(module, "__init__.py")]
    found = next(filter(os.path.isfile, candidates), None)
    if found is None:
        try:
            there = sorted(name for name in os.listdir(code_folder) if name.endswith(".py"))
        except OSError as error:
            context.problems.error(node, key, f"{shown(node)} cannot be found in {code_folder}: {error.strerror}.")
            return script, b""
        context.problems.error(
            node,
            key,
            f"{shown(node)} {_NOT_PYTHON}"
            if _is_other_file(code_folder, script)
            else f"{shown(node)} does not exist in {code_folder}.{did_you_mean(script, there)}",
        )
        return script, b""
    try:
        with open(found, "rb") as file:
            return script, file.read(_SOURCE_BYTES_MAX)
    except OSError:
        return script, b""  # packing the code folder reports it


def _is_other_file(code_folder: str, script: str) -> bool:
    """Whether the script is a file of the code folder whose name does not end in .py, such as `score.r`."""
    path = os.path.normpath(os.path.join(code_folder, script))
    is_inside = bool(code_folder) and path.startswith(os.path.join(code_folder, ""))
    return is_inside and not script.endswith(".py") and os.path.isfile(path)


def _append_row_to(node: Node | None, outputs: dict[str, StepOutput], key: str, context: Context) -> str | None:
    text = read_text(node, key, context)
    if text is None or node is None:
        return None
    try:
        reference = whole_reference(text)
    except ValueError as error:
        context.problems.error(node, key, f"is {shown(node)}; {error}.")
        return None
    if reference is None or reference.scope != "outputs":
        context.problems.error(
            node, key, f"is {shown(node)}; it must be one of the step's own outputs, as in ${{{{outputs.x}}}}."
        )
        return None
    if reference.name not in outputs:
        context.problems.error(node, key, unknown_name("output", reference.name, list(outputs)))
        return None
    return reference.name


def _arguments(
    node: Node, key: str, outputs: dict[str, StepOutput], input_state: Callable[[str], bool | None], context: Context
) -> list[str]:
    if read_text(node, key, context) is None or not isinstance(node, Scalar):
        return []
    text = node.text  # with the spaces around it: a backslash may precede the last one
    try:
        arguments = split_arguments(
            expand_groups(text, lambda reference: reference.scope == "inputs" and input_state(reference.name) is False)
        )
        found = [reference for argument in arguments for reference in references(argument)]
    except ValueError as error:
        context.problems.error(node, key, f"cannot be read: {error}.")
        return []
    check_references(found, node, key, outputs, input_state, context)
    return arguments


def check_references(
    found: Iterable[Reference],
    node: Node,
    key: str,
    outputs: dict[str, StepOutput],
    input_state: Callable[[str], bool | None],
    context: Context,
) -> None:
    """Notes an error for each reference in program arguments, or a command, that the step cannot resolve."""
    for reference in found:
        problem = _reference_problem(reference, outputs, input_state)
        if problem:
            context.problems.error(node, key, problem)


def _reference_problem(
    reference: Reference, outputs: dict[str, StepOutput], input_state: Callable[[str], bool | None]
) -> str:
    match reference.scope:
        case "inputs":
            state = input_state(reference.name)
            if state is None:
                return (
                    f"${{{{inputs.{reference.name}}}}} names an input that the step does not have; add it to "
                    "the step's inputs."
                )
            if state is False:
                return (
                    f"${{{{inputs.{reference.name}}}}} is optional and has no value; write $[[--flag "
                    f"${{{{inputs.{reference.name}}}}}]] around it."
                )
            return ""
        case "outputs":
            return "" if reference.name in outputs else unknown_name("output", reference.name, list(outputs))
    return (
        f"{written(reference)} cannot be used here: only ${{{{inputs.x}}}} and ${{{{outputs.x}}}} of the step itself "
        "are known; bind anything else to an input first."
    )
