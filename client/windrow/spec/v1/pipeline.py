"""A v1 file as the tree of a v2 pipeline. Reference: docs/reference/azure-ml/parallel-job.md#version-1."""

from __future__ import annotations

import os
from collections.abc import Sequence

from windrow.spec.naming.names import NAME
from windrow.spec.reading.context import Context
from windrow.spec.reading.from_python import mapping, scalar
from windrow.spec.reading.nodes import Mapping, Node, is_null, shown
from windrow.spec.reading.nodes import Sequence as ListNode
from windrow.spec.v1.arguments import joined
from windrow.spec.v1.data import Sources
from windrow.spec.v1.reading import entry, read_mapping, text_of
from windrow.spec.v1.run_config import read_run_config
from windrow.spec.v1.schema import PIPELINE
from windrow.spec.v1.steps import StepText, parallel_step, script_step, step_text

CONFIG_STEP, CONFIG_INPUT, CONFIG_OUTPUT = "parallel_run_step", "input", "output"
"""Names of the step, input and output when a ParallelRunConfig is run by itself."""


TOP_KEYS = ("pipeline", "parallel_run_config")


def own_sets(sets: Sequence[str]) -> tuple[list[str], list[str]]:
    """Separates settings given beside a v1 file: those with the file's own keys, and those with keys of the v2 tree."""
    own = [text for text in sets if text.strip().partition(".")[0] in TOP_KEYS]
    return own, [text for text in sets if text not in own]


def translate(root: Node, sets: Sequence[str], context: Context) -> Node | None:
    """Returns the v2 tree of a v1 file, or None if errors leave nothing to read. `sets`: the settings given beside
    the file (`--set`), with keys of the v2 tree.
    """
    if not isinstance(root, Mapping):
        return None
    for name in root.entries:
        if name not in TOP_KEYS:
            known = "schedules are not supported" if name == "Schedule" else "it is not a key of v1"
            context.problems.warn(root.key_places[name], name, f"has no effect: {known}.")
    key = next(name for name in TOP_KEYS if name in root.entries)
    node = root.entries[key]
    if is_null(node):
        context.problems.error(node, key, "is empty; put its content below it.")
        return None
    return _pipeline(node, context) if key == "pipeline" else _lone_config(node, sets, context)


def _pipeline(node: Node, context: Context) -> Node | None:
    pipeline = read_mapping(node, PIPELINE, "pipeline", context)
    if pipeline is None:
        return None
    sources = Sources(context)
    sources.read_references(entry(pipeline, "data_references"), "pipeline.data_references")
    sources.read_parameters(entry(pipeline, "parameters"), "pipeline.parameters")
    steps = _steps(pipeline, context)
    # All destinations first: the step that writes one may come after the one that reads it.
    outputs = {
        step.name: sources.read_outputs(step.name, entry(step.entries, "outputs"), f"{step.key}.outputs")
        for step in steps
    }
    jobs: dict[str, Node | None] = {}
    for step in steps:
        make = parallel_step if step.type == "ParallelRunStep" else script_step
        jobs[step.name] = make(step, sources, outputs[step.name], context)
    if context.problems.errors and not jobs:
        return None
    compute = text_of(pipeline, "default_compute", "pipeline", context)
    context.problems.spelled["settings.default_compute"] = "pipeline.default_compute"
    context.problems.spelled["jobs"] = "pipeline.steps"
    return mapping(
        {
            "type": scalar("pipeline", pipeline.place),
            # Names of jobs are unique; v1's are not.
            "display_name": text_of(pipeline, "name", "pipeline", context),
            "description": text_of(pipeline, "description", "pipeline", context),
            "settings": mapping({"default_compute": compute}, pipeline.place) if compute else None,
            "inputs": mapping(sources.inputs, pipeline.place),
            "jobs": mapping(jobs, pipeline.place),
        },
        pipeline.place,
    )


def _steps(pipeline: Mapping, context: Context) -> list[StepText]:
    """Reads the steps in their order, each with a name of its own."""
    node = entry(pipeline, "steps")
    written: dict[str, Node] = {}
    if isinstance(node, Mapping):
        written = node.entries
    elif isinstance(node, ListNode):
        written = {str(number): item for number, item in enumerate(node.items)}
    if not written:
        what = f"is {shown(node)}; it has to hold steps" if node else "is missing; a pipeline needs steps"
        context.problems.error(node or pipeline, "pipeline.steps", f"{what}, by name.")
        return []
    found: list[StepText] = []
    for called, item in written.items():
        key = f"pipeline.steps.{called}"
        if not isinstance(item, Mapping):
            context.problems.error(item, key, f"is {shown(item)}; a step is a mapping with a type.")
            continue
        step = step_text(item, key, called if not called.isdigit() else f"step_{called}", context)
        if step is None:
            continue
        if not NAME.fullmatch(step.name):
            step = step._replace(name=called)  # `Prepare data` is for people
        if any(other.name == step.name for other in found):
            context.problems.error(
                item, f"{key}.name", f'"{step.name}" is already the name of another step; rename one of them.'
            )
            continue
        found.append(step)
    return found


def _lone_config(node: Node, sets: Sequence[str], context: Context) -> Node | None:
    """Makes a pipeline of one step from a ParallelRunConfig alone. Its data is given beside the file."""
    if not isinstance(node, Mapping):
        context.problems.error(node, "parallel_run_config", f"is {shown(node)}; it has to be a mapping of settings.")
        return None
    read = read_run_config(node, "parallel_run_config", os.getcwd(), context)
    for v2, v1 in read.spelled.items():
        context.problems.spelled[f"jobs.{CONFIG_STEP}.{v2}"] = v1
    if not read.is_whole:
        context.broken_steps.add(CONFIG_STEP)
    if not any(text.partition("=")[0].strip().startswith(f"inputs.{CONFIG_INPUT}") for text in sets):
        context.problems.error(
            node,
            "parallel_run_config",
            f"does not name the data to run on: add --set inputs.{CONFIG_INPUT}.path=PATH (and "
            f"--set outputs.{CONFIG_OUTPUT}.path=PATH for the place of the output), or name this file as the "
            "parallel_run_config of a step in a pipeline file.",
        )
        return None
    task = dict(read.task)
    task["program_arguments"] = scalar(joined(read.arguments), node.place) if read.arguments else None
    task["append_row_to"] = scalar(f"${{{{outputs.{CONFIG_OUTPUT}}}}}", node.place) if read.append_row else None

    def bound(scope: str, name: str) -> Node:
        return mapping({name: scalar(f"${{{{parent.{scope}.{name}}}}}", node.place)}, node.place)

    step = {
        "type": scalar("parallel", node.place),
        "description": entry(node, "description"),
        **read.entries,
        "inputs": bound("inputs", CONFIG_INPUT),
        "outputs": bound("outputs", CONFIG_OUTPUT),
        "input_data": scalar(f"${{{{inputs.{CONFIG_INPUT}}}}}", node.place),
        "task": mapping(task, node.place),
    }
    return mapping(
        {
            "type": scalar("pipeline", node.place),
            "inputs": mapping({CONFIG_INPUT: mapping({"path": scalar(None, node.place)}, node.place)}, node.place),
            "outputs": mapping({CONFIG_OUTPUT: scalar(None, node.place)}, node.place),
            "jobs": mapping({CONFIG_STEP: mapping(step, node.place)}, node.place),
        },
        node.place,
    )
