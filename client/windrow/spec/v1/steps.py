"""Turns the steps of a v1 pipeline into those of v2. Reference: docs/reference/azure-ml/parallel-job.md#version-1."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from windrow.spec.naming.locations import absolute
from windrow.spec.reading.context import Context
from windrow.spec.reading.from_python import mapping, scalar, sequence
from windrow.spec.reading.keys import as_mapping
from windrow.spec.reading.nodes import Mapping, Node, Scalar, is_null, shown
from windrow.spec.reading.problems import did_you_mean
from windrow.spec.reading.yaml_files import read_yaml
from windrow.spec.settings.arguments import quoted_options
from windrow.spec.v1.arguments import Names, check_parallel_arguments, joined, read_arguments, shell_quote
from windrow.spec.v1.data import Sources
from windrow.spec.v1.environments import Environment, merged_variables, read_environment
from windrow.spec.v1.reading import checked, entry, read_mapping, text_of
from windrow.spec.v1.run_config import NO_CONFIG, RunConfig, code_and_script, read_config_file, read_run_config
from windrow.spec.v1.schema import PARALLEL_STEP, SCRIPT_STEP

STEP_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
STEP_TYPES = ("ParallelRunStep", "PythonScriptStep")
_OTHER_TYPES = (
    "AdlaStep",
    "AzureBatchStep",
    "DatabricksStep",
    "DatabricsStep",
    "DataTransferStep",
    "EstimatorStep",
    "HyperDriveStep",
    "MpiStep",
    "RScriptStep",
)


class StepText(NamedTuple):
    """A step as written: its key in the file, its name in v2, its content."""

    key: str
    name: str
    type: str
    entries: Mapping


def step_text(node: Mapping, key: str, fallback: str, context: Context) -> StepText | None:
    """Finds out what kind of step this is, and its name. None, with an error, for kinds that are not supported."""
    written = text_of(node, "type", key, context)
    kind = written.text.strip() if written else ""
    found = next((name for name in STEP_TYPES if name.casefold() == kind.casefold()), None)
    if found is None:
        if kind in _OTHER_TYPES:
            what = f"is {kind}, which Windrow does not support; do its work in a PythonScriptStep"
        else:
            what = f"is {shown(written)}" if written else "is missing"
            what += f"; it must be {' or '.join(STEP_TYPES)}"
        context.problems.error(written or node, f"{key}.type", f"{what}.{did_you_mean(kind, STEP_TYPES)}")
        return None
    name = text_of(node, "name", key, context)
    called = name.text.strip() if name else fallback
    if found == "ParallelRunStep" and name and not (STEP_NAME.fullmatch(called) and 3 <= len(called) <= 32):
        context.problems.warn(
            name,
            f"{key}.name",
            f"is {shown(name)}, which runs here; Azure ML takes only 3 to 32 lowercase letters, digits and dashes, "
            "starting with a letter and not ending with a dash.",
        )
    return StepText(key, called, found, node)


def parallel_step(step: StepText, sources: Sources, outputs: dict[str, Node], context: Context) -> Node:
    """Turns a ParallelRunStep into a step of type parallel."""
    node, key = step.entries, step.key
    read_mapping(node, PARALLEL_STEP, key, context)
    config, config_key, folder = _run_config(node, key, context)
    read = read_run_config(config, config_key, folder, context) if config else NO_CONFIG
    if not read.is_whole:
        context.broken_steps.add(step.name)
    _spell(step.name, key, read.spelled, context)
    parameters = _parameters(step.name, node, key, sources, context)
    given = sources.read_inputs(step.name, entry(node, "inputs"), f"{key}.inputs")
    side = sources.read_inputs(step.name, entry(node, "side_inputs"), f"{key}.side_inputs")
    inputs: dict[str, Node | None] = {}
    for kind, those in (("inputs", given), ("side_inputs", side), ("parameters", parameters)):
        for name, value in those.items():
            if name in inputs:
                context.problems.error(value, f"{key}.{kind}.{name}", "has the name of another input; rename it.")
                context.broken_steps.add(step.name)
            inputs[name] = value
    arguments_node = entry(node, "arguments")
    before = len(context.problems.errors)
    check_parallel_arguments(arguments_node, f"{key}.arguments", context)
    names = _names(node, outputs)
    own = read_arguments(arguments_node, names, f"{key}.arguments", context)
    broken = len(context.problems.errors) > before
    if not names.inputs and not any(argument.startswith("--rank_mini_batch_count") for argument in own):
        context.problems.error(
            entry(node, "inputs") or node,
            f"{key}.inputs",
            "has no input to divide; give it one, or run mini-batches without input: --rank_mini_batch_count N.",
        )
        context.broken_steps.add(step.name)
    if read.append_row and not outputs:
        context.problems.error(
            entry(node, "outputs") or node, f"{key}.outputs", "is missing; output_action append_row needs an output."
        )
        context.broken_steps.add(step.name)
    first = next(iter(outputs), None)
    rows = first if read.append_row else None
    arguments = [*read.arguments, *_claimed(read, first, given, own), *own]
    task = dict(read.task)
    place = arguments_node.place if arguments_node else node.place
    task["program_arguments"] = scalar(joined(arguments), place) if arguments and not broken else None
    task["append_row_to"] = scalar(f"${{{{outputs.{rows}}}}}", node.place) if rows else None
    entries = {
        "type": scalar("parallel", node.place),
        "description": entry(node, "description") or (entry(config, "description") if config else None),
        "comment": entry(node, "comment"),
        **read.entries,
        "inputs": mapping(inputs, node.place),
        "outputs": mapping(outputs, node.place),
        "input_data": _input_data(list(given), entry(node, "inputs") or node),
        "is_deterministic": checked(node, PARALLEL_STEP, "allow_reuse", key, context),
        "task": mapping(task, config.place if config else node.place),
    }
    compute = _compute(node, key, context)
    return mapping({**entries, "compute": compute} if compute else entries, node.place)


def script_step(step: StepText, sources: Sources, outputs: dict[str, Node], context: Context) -> Node:
    """Turns a PythonScriptStep into a step of type command."""
    node, key = step.entries, step.key
    read_mapping(node, SCRIPT_STEP, key, context)
    _spell(
        step.name,
        key,
        {"code": f"{key}.source_directory", "command": f"{key}.arguments", "environment": f"{key}.runconfig"},
        context,
    )
    parameters = _parameters(step.name, node, key, sources, context)
    given = sources.read_inputs(step.name, entry(node, "inputs"), f"{key}.inputs")
    arguments = read_arguments(entry(node, "arguments"), _names(node, outputs), f"{key}.arguments", context)
    code, script = code_and_script(node, "script_name", key, node.place.source.folder, context)
    if script is None:
        context.problems.error(node, f"{key}.script_name", "is missing; name the script, relative to source_directory.")
    environment, target = _run_configuration(node, key, context)
    if entry(node, "environment") is not None:
        environment = read_environment(node, key, node.place.source.folder, context)
    words = ["python", script.text.strip() if script else "", *arguments]
    # v1 gives a script its parameters as variables with these names.
    variables: dict[str, Node | None] = {
        f"AML_PARAMETER_{name}": scalar(f"${{{{inputs.{name}}}}}", value.place) for name, value in parameters.items()
    }
    set_there = environment.variables.entries if environment.variables else {}
    entries = {
        "type": scalar("command", node.place),
        "description": entry(node, "description"),
        "comment": entry(node, "comment"),
        "code": code,
        "command": scalar(joined(words, shell_quote), (script or node).place),
        "environment": environment.node,
        "environment_variables": mapping({**set_there, **variables}, node.place) if set_there or variables else None,
        "compute": _compute(node, key, context) or target,
        "inputs": mapping({**given, **parameters}, node.place),
        "outputs": mapping({name: _unmade(output) for name, output in outputs.items()}, node.place),
        "is_deterministic": checked(node, SCRIPT_STEP, "allow_reuse", key, context),
    }
    return mapping(entries, node.place)


def _unmade(output: Node) -> Node:
    """The output of a script that makes its folder itself, or writes one file there: a PipelineData."""
    if not isinstance(output, Mapping) or output.entries.get("name"):
        return output
    said = output.entries.get("make_folder")
    if isinstance(said, Scalar) and said.value is True:
        return mapping({key: node for key, node in output.entries.items() if key != "make_folder"}, output.place)
    return mapping({**output.entries, "make_folder": scalar(False, output.place)}, output.place)


def _parameters(step: str, node: Mapping, key: str, sources: Sources, context: Context) -> dict[str, Node]:
    """Turns a step's parameters into inputs: a value, or the parameter of the pipeline that `source` names."""
    parameters = _read_parameters(node, key, context)
    made: dict[str, Node] = {}
    for name, value in parameters.items():
        if isinstance(value, Scalar):
            made[name] = value
            continue
        source = text_of(value, "source", f"{key}.parameters.{name}", context) if isinstance(value, Mapping) else None
        if source is None:
            context.problems.error(
                value, f"{key}.parameters.{name}", f"is {shown(value)}; it must be a value, or source: <parameter>."
            )
            context.broken_steps.add(step)
            continue
        bound = sources.reference(source, f"{key}.parameters.{name}.source")
        if bound is not None:
            made[name] = bound
        else:
            context.broken_steps.add(step)
    return made


def _read_parameters(node: Mapping, key: str, context: Context) -> dict[str, Node]:
    """Reads a step's `parameters` as written."""
    parameters = entry(node, "parameters")
    if parameters is None:
        return {}
    if not isinstance(parameters, Mapping):
        context.problems.error(parameters, f"{key}.parameters", f"is {shown(parameters)}; it has to be a mapping.")
        return {}
    return parameters.entries


def _run_config(node: Mapping, key: str, context: Context) -> tuple[Mapping | None, str, str]:
    """The ParallelRunConfig of a step (inline, or from its file), the key under which its keys are shown, and the
    pipeline's folder.
    """
    written = entry(node, "parallel_run_config")
    key, folder = f"{key}.parallel_run_config", node.place.source.folder
    if isinstance(written, Mapping):
        return written, key, folder
    if not isinstance(written, Scalar):
        what = f"is {shown(written)}" if written else "is missing"
        context.problems.error(
            written or node, key, f"{what}; name the file of a ParallelRunConfig, relative to this file."
        )
        return None, key, folder
    path = absolute(written.text.strip().replace("\\", "/"), folder)
    if not os.path.isfile(path):
        what = "is a folder" if os.path.isdir(path) else "does not exist"
        context.problems.error(
            written,
            key,
            f"{shown(written)} {what} ({path}); name the file of a ParallelRunConfig, relative to this file.",
        )
        return None, key, folder
    return read_config_file(path, context), "parallel_run_config", folder


def _run_configuration(node: Mapping, key: str, context: Context) -> tuple[Environment, Scalar | None]:
    """Reads environment and compute of a script step from a `.runconfig` file."""
    written = text_of(node, "runconfig", key, context)
    if written is None:
        return Environment(), None
    path = absolute(written.text.strip().replace("\\", "/"), written.place.source.folder)
    if not os.path.isfile(path):
        context.problems.error(
            written, f"{key}.runconfig", f"{shown(written)} does not exist ({path}); paths are relative to this file."
        )
        return Environment(), None
    root = read_yaml(path, "job", context.problems)
    if not isinstance(root, Mapping):
        return Environment(), None
    target = root.entries.get("target")
    named = (
        isinstance(target, Scalar) and not is_null(target) and target.text.strip() not in ("", "local", "amlcompute")
    )
    environment = read_environment(root, "", written.place.source.folder, context)
    own = entry(root, "environmentVariables") or entry(root, "environment_variables")
    variables = as_mapping(merged_variables(environment, own), "environmentVariables", context)
    return environment._replace(variables=variables), target if named and isinstance(target, Scalar) else None


def _names(node: Mapping, outputs: dict[str, Node]) -> Names:
    """The names that a step's arguments can refer to, including names with errors."""

    def names(key: str) -> list[str]:
        there = entry(node, key)
        return list(there.entries) if isinstance(there, Mapping) else []

    return Names(names("parameters"), names("side_inputs"), names("inputs"), outputs)


def _compute(node: Mapping, key: str, context: Context) -> Scalar | None:
    return text_of(node, "compute", key, context) or text_of(node, "compute_target", key, context)


def _input_data(names: list[str], place: Node) -> Node | None:
    """The names of the divided inputs, as the value of `input_data`."""
    bound = [scalar(f"${{{{inputs.{name}}}}}", place.place) for name in names]
    return None if not bound else bound[0] if len(bound) == 1 else sequence(bound, place.place)


def _claimed(config: RunConfig, output: str | None, inputs: dict[str, Node], own: list[str]) -> list[str]:
    """Arguments of v1's runtime that the script's source asks for and v2's runtime lacks:
    docs/reference/azure-ml/parallel-job.md#reserved-arguments. Settings that both have are passed by
    `windrow.spec.settings.arguments.runtime_values`.
    """
    script, code = config.task.get("entry_script"), config.task.get("code")
    if not isinstance(script, Scalar) or not isinstance(code, Scalar):
        return []
    path = os.path.join(absolute(code.text.strip(), code.place.source.folder), script.text.strip())
    try:
        with open(path, "rb") as file:
            asked = quoted_options(file.read())
    except OSError:
        return []  # reading the task reports it
    values = {"scoring_module_name": script.text.strip()}
    if output is not None:
        values["output"] = f"${{{{outputs.{output}}}}}"
    for number, name in enumerate(inputs):
        values |= {f"input_fds_{number}": name, f"input_ds_{number}": name}
    taken = {argument.removeprefix("--").partition("=")[0] for argument in own}
    return [
        word for name, value in values.items() if name in asked and name not in taken for word in (f"--{name}", value)
    ]


def _spell(step: str, key: str, spelled: dict[str, str], context: Context) -> None:
    """Records how the user spells a step's keys: as `spelled` says, all others below the step's own key."""
    names = context.problems.spelled
    names[f"jobs.{step}"] = key
    names[f"jobs.{step}.is_deterministic"] = f"{key}.allow_reuse"
    names[f"jobs.{step}.input_data"] = f"{key}.inputs"
    names[f"jobs.{step}.task.program_arguments"] = f"{key}.arguments"
    for v2, v1 in spelled.items():
        names[f"jobs.{step}.{v2}"] = v1
