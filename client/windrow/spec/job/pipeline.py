"""A pipeline file as a whole: its steps, bound to each other, become one effective job.

Order: pipeline keys; every step's keys; all outputs (readers need their types); inputs (followed across steps);
settings and tasks; finally what concerns several steps at once.
Reference: docs/reference/azure-ml/parallel-job.md#pipelines, #parallel-steps, #tasks, #inputs-and-outputs;
docs/reference/azure-ml/client.md#spellings, #refusals.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping as MappingType
from typing import NamedTuple

from windrow.spec.effective.checks import find_cycle
from windrow.spec.effective.job import DataInput, EffectiveJob, EffectiveStep, OutputInput, StepOutput
from windrow.spec.job.bindings import Bindings
from windrow.spec.job.command import read_command
from windrow.spec.job.components import StepNodes
from windrow.spec.job.division import (
    check_file_format,
    check_modes,
    check_no_input_data,
    check_size_unit,
    check_tables,
    read_input_data,
    table_digests,
)
from windrow.spec.job.graph import Graph, read_graph
from windrow.spec.job.order import order_steps
from windrow.spec.job.origins import note_code, note_origins, note_pipeline_origins
from windrow.spec.job.pipeline_settings import read_pipeline_settings, read_reuse
from windrow.spec.job.pools import step_pool
from windrow.spec.job.rows import make_rows, name_rows_file, rows_origin
from windrow.spec.job.step_settings import StepSettings
from windrow.spec.job.task import may_shut_down, read_task
from windrow.spec.naming.expressions import Reference
from windrow.spec.naming.names import JOB_NAME, is_file_name
from windrow.spec.reading.context import Context, Origin, origin_of
from windrow.spec.reading.keys import Resolve, as_mapping, check_keys, read_text, read_text_map
from windrow.spec.reading.nodes import Mapping, Node, Scalar, is_null, shown
from windrow.spec.reading.problems import Problem, StepCode
from windrow.spec.settings.arguments import for_script, runtime_values
from windrow.spec.settings.schema import PIPELINE

_UNPACKED = "0" * 64
"""In place of the code digest until `build_effective` puts it in."""


class LoadedJob(NamedTuple):
    """A job file, read and checked; its code is still in folders.

    `code_folders` maps step names to absolute folders; `warnings` are what the user should know, and
    `notes` what is told at the end, or on request; `origins` says for
    `jobs.<step>.<setting>` (by effective names) where each setting comes from. `libraries` are those that the Python of
    the scripts needs for the table a step reads. `own_inputs` and `own_outputs` are those at relative paths, which are
    this machine's, by step and name; each with the key that tells a user which it is. `codes`: where the steps name
    their code. `build_effective` makes the job that is submitted.
    """

    job: EffectiveJob
    code_folders: dict[str, str]
    warnings: tuple[Problem, ...]
    origins: dict[str, Origin]
    libraries: dict[str, tuple[str, ...]]
    own_inputs: dict[tuple[str, str], str]
    own_outputs: dict[tuple[str, str], str]
    codes: tuple[StepCode, ...] = ()
    notes: tuple[Problem, ...] = ()

    def with_exact_row_index(self) -> LoadedJob:
        """The job with the records of all its tables counted while they are divided."""
        steps = tuple(step._replace(exact_row_index=True) for step in self.job.steps)
        return self._replace(job=self.job._replace(steps=steps))


def read_pipeline(root: Node, job_file: str, context: Context) -> LoadedJob | None:
    """Reads a whole pipeline; None if an error was noted."""
    pipeline = as_mapping(root, "", context)
    if pipeline is None or not _is_pipeline(pipeline, context):
        return None
    check_keys(pipeline, PIPELINE, "", context)
    entries = pipeline.entries
    context.job_name = _job_name(entries.get("name"), context)
    settings = read_pipeline_settings(pipeline, context)
    note_pipeline_origins(entries.get("settings"), context)
    graph = read_graph(pipeline, context)
    steps = graph.steps()
    bindings = Bindings(
        as_mapping(entries.get("inputs"), "inputs", context),
        as_mapping(entries.get("outputs"), "outputs", context),
        graph,
        context,
    )
    bindings.read_outputs()
    for name in graph.members:
        if name:
            bindings.inputs_of(name)  # notes the errors of inputs of nested pipelines
    effective = [_step(name, nodes, bindings, context) for name, nodes in steps.items()]
    libraries = {step.name: _libraries(step, bindings, context) for step, _ in effective}
    code_folders = {step.name: folder for step, folder in effective}
    made = [step for step, _ in effective]
    if graph.choices or graph.loops:
        # Few job files have control nodes.
        from windrow.spec.job.conditions import with_control

        made = with_control(made, graph, bindings, context)
    made = order_steps(made, graph, bindings.waits)
    _check_cycle(made, steps, context)
    _check_places(made, steps, graph, context)
    if context.problems.errors:
        return None
    job = EffectiveJob(
        name=context.job_name,
        display_name=read_text(entries.get("display_name"), "display_name", context)
        or context.job_name
        or os.path.splitext(os.path.basename(job_file))[0],
        experiment_name=read_text(entries.get("experiment_name"), "experiment_name", context)
        or os.path.basename(os.getcwd())
        or "windrow",
        description=read_text(entries.get("description"), "description", context) or "",
        tags=read_text_map(entries.get("tags"), "tags", context),
        job_file=job_file,
        warnings=tuple(str(warning) for warning in context.problems.warnings),
        steps=tuple(made),
        outputs=bindings.pipeline_outputs(),
        continue_on_step_failure=settings.continue_on_step_failure,
    )
    if context.problems.errors:
        return None
    own_inputs: dict[tuple[str, str], str] = {}
    own_outputs: dict[tuple[str, str], str] = {}
    for step in made:
        for name in step.inputs:
            resolved = bindings.resolved(step.name, name)
            if resolved is not None:
                context.origins.setdefault(f"jobs.{step.name}.inputs.{name}", origin_of(resolved.place))
            if resolved is not None and resolved.own:
                own_inputs[step.name, name] = context.problems.as_spelled(resolved.own)
        for name in step.outputs:
            if (key := f"jobs.{step.name}.outputs.{name}") in context.own_outputs:
                own_outputs[step.name, name] = context.problems.as_spelled(key)
    warnings = tuple(context.problems.warnings)
    codes, notes = tuple(context.codes), tuple(context.problems.notes)
    return LoadedJob(job, code_folders, warnings, context.origins, libraries, own_inputs, own_outputs, codes, notes)


def build_effective(
    loaded: LoadedJob,
    code_digests: dict[str, str],
    *,
    data_paths: dict[tuple[str, str], str] | None = None,
    kept_outputs: MappingType[tuple[str, str], str | None] | None = None,
    name: str | None = None,
    priority: int = 0,
    weight: int = 1,
) -> EffectiveJob:
    """The job to submit: each step's code digest put in.

    `code_digests` maps the folders of `loaded.code_folders` to the digests of their archives; `data_paths` maps inputs,
    by step and name, to where their data is now; `kept_outputs` maps outputs that the master keeps for the client to
    the path below the folder of the job file that a download fills, None where there is no such path. `name` wins over
    the job file's. Raises KeyError for a folder without a digest.
    """
    moved, kept = data_paths or {}, kept_outputs or {}
    steps: list[EffectiveStep] = []
    for step in loaded.job.steps:
        inputs = {
            key: given._replace(path=moved[step.name, key])
            if isinstance(given, DataInput) and (step.name, key) in moved
            else given
            for key, given in step.inputs.items()
        }
        outputs = {
            key: _in_default_place(output) if (step.name, key) in kept else output
            for key, output in step.outputs.items()
        }
        digest = code_digests[loaded.code_folders[step.name]]
        steps.append(step._replace(code_digest=digest, inputs=inputs, outputs=outputs))
    fetch = {f"{step}.{output}": path for (step, output), path in kept.items() if path is not None}
    return loaded.job._replace(
        steps=tuple(steps), fetch=fetch, name=name or loaded.job.name, priority=priority, weight=weight
    )


def _in_default_place(output: StepOutput) -> StepOutput:
    """An output in the master's default place, under the file's own name if it is one file."""
    file_name = os.path.basename(output.path or "")
    named = output.type == "uri_file" and is_file_name(file_name)
    return output._replace(path=None, file_name=file_name if named else output.file_name)


def _is_pipeline(pipeline: Mapping, context: Context) -> bool:
    node = pipeline.entries.get("type")
    written = node.text.strip().casefold() if isinstance(node, Scalar) else ""
    place: Node = node if node is not None else pipeline
    if written == "pipeline":
        return True
    if "trigger" in pipeline.entries and "create_job" in pipeline.entries:
        # Hardly any file is one.
        from windrow.spec.job.schedules import schedule_refusal

        context.problems.error(pipeline, "", schedule_refusal(pipeline))
    elif "pipeline" in pipeline.entries or "parallel_run_config" in pipeline.entries:
        context.problems.error(
            place,
            "type",
            "does not go with the keys of Azure ML v1 (pipeline, parallel_run_config); remove it, or write the file as "
            '"type: pipeline" with a "type: parallel" step.',
        )
    elif written == "parallel":
        context.problems.error(
            place,
            "type",
            'is "parallel": a parallel job exists only as a step; write a file with "type: pipeline" '
            "and name this one as a step's component.",
        )
    else:
        what = f"is {shown(place)}" if node is not None and not is_null(node) else "is missing"
        context.problems.error(place, "type", f'{what}; a job file needs "type: pipeline".')
    return False


def _job_name(node: Node | None, context: Context) -> str | None:
    name = read_text(node, "name", context)
    if name is not None and node is not None and not JOB_NAME.fullmatch(name):
        context.problems.error(
            node,
            "name",
            f"is {shown(node)}; it must be at most 64 ASCII letters, digits, _, . and -, starting "
            "with a letter or digit.",
        )
        return None
    return name


def _step(name: str, nodes: StepNodes, bindings: Bindings, context: Context) -> tuple[EffectiveStep, str]:
    key = f"jobs.{name}"
    inputs = bindings.inputs_of(name)
    entries = nodes.settings.entries

    def literal(reference: Reference) -> str:
        return bindings.literal(name, reference)

    variables = _variables(entries.get("environment_variables"), f"{key}.environment_variables", context, literal)
    outputs = bindings.outputs_of(name)

    def input_state(wanted: str) -> bool | None:
        return bindings.input_state(name, wanted)

    note_origins(key, entries, context)
    compute = step_pool(entries, key, context, literal)
    reuse = read_reuse(entries.get("is_deterministic"), key, context) and bool(outputs)
    if nodes.type == "command":
        command, folder = read_command(
            name, nodes.settings, variables, inputs, outputs, input_state, compute, _UNPACKED, literal, context
        )
        return command._replace(reuse=reuse), folder
    settings = StepSettings(key, context, literal)
    settings.read_keys(nodes.settings)
    task = read_task(entries.get("task"), nodes.place, f"{key}.task", outputs, input_state, context)
    if task.arguments_place:
        settings.read_arguments(task.arguments, task.arguments_place)
    values = settings.finish()
    if values["rank_mini_batch_count"]:
        check_no_input_data(entries.get("input_data"), values, name, context)
        input_data: tuple[str, ...] = ()
    else:
        input_data = read_input_data(nodes, name, bindings, context)
    divided = {wanted: inputs[wanted] for wanted in input_data if wanted in inputs}
    check_file_format(divided, values, task.arguments_place, key, context)
    if values["file_format"] is None:
        check_modes(divided, entries.get("input_data"), key, context)
    header, file_name = values.pop("dataframe_header"), values.pop("append_row_file_name")
    row_format = values.pop("append_row_format")
    arguments_key = f"{key}.task.program_arguments"
    rows = make_rows(task.rows, header, row_format, task.arguments_place, arguments_key, context)
    if rows.format != "text" and task.arguments_place and not task.append_row_to:
        context.problems.warn(
            task.arguments_place,
            arguments_key,
            f"--append_row_format {rows.format} has no effect: without task.append_row_to, no rows are collected.",
        )
    if task.append_row_to:
        outputs[task.append_row_to] = name_rows_file(
            outputs[task.append_row_to],
            file_name,
            rows.format,
            task.arguments_place or nodes.settings.place,
            arguments_key,
            context,
            is_placed=f"{key}.outputs.{task.append_row_to}" in context.placed_outputs,
        )
    if task.code_folder:
        context.origins[f"{key}.rows"] = rows_origin(task.code_folder)
        note_code(name, entries.get("task"), task.code_folder, task.entry_script, variables, context)
    if values["file_format"] is None:
        check_size_unit(entries.get("mini_batch_size"), values["mini_batch_size"], divided, key, context)
    step = EffectiveStep(
        name=name,
        depends_on=tuple(dict.fromkeys(given.step for given in inputs.values() if isinstance(given, OutputInput))),
        code_digest=_UNPACKED,
        entry_script=task.entry_script,
        arguments=(
            *for_script(task.entry_source, task.arguments),
            *runtime_values(task.entry_source, task.arguments, values),
        ),
        environment_variables=variables,
        inputs=inputs,
        outputs=outputs,
        input_data=input_data,
        table_digests=table_digests(divided, context),
        append_row_to=task.append_row_to,
        may_shut_down=may_shut_down(task.entry_source),
        compute=compute,
        environment=task.environment,
        reuse=reuse,
        rows=rows,
        **values,
    )
    return step, task.code_folder


def _variables(node: Node | None, key: str, context: Context, resolve: Resolve) -> dict[str, str]:
    """The environment variables of a step. Notes errors for those that no process could get, and leaves them out."""
    variables = read_text_map(node, key, context, resolve)
    refused = [name for name in variables if not name or "=" in name or "\0" in name + variables[name]]
    for name in refused:
        assert node is not None
        context.problems.error(
            node,
            key,
            f"{json.dumps(name)} is not a valid environment variable name, or its value contains NUL; correct it.",
        )
    return {name: value for name, value in variables.items() if name not in refused}


def _libraries(step: EffectiveStep, bindings: Bindings, context: Context) -> tuple[str, ...]:
    """The libraries that the script's Python needs for the tables it reads and the rows it writes."""
    read = check_tables(step, bindings, context)
    return (*read, "pyarrow") if step.rows.format == "parquet" and "pyarrow" not in read else read


def _check_cycle(made: list[EffectiveStep], steps: dict[str, StepNodes], context: Context) -> None:
    cycle = find_cycle({step.name: step.depends_on for step in made})
    if cycle:
        circle = " -> ".join(cycle)
        context.problems.error(
            steps[cycle[0]].place,
            f"jobs.{cycle[0]}",
            f"waits for itself: {circle} (each waits for what the next one writes); remove one of these bindings.",
        )


def _goes_on(step: EffectiveStep, name: str, other: EffectiveStep, others: str, made: list[EffectiveStep]) -> bool:
    """Whether one of two steps goes on in the folder that the other has written, and waits for it: scripts write both
    outputs, so that they can add to what is there.
    """
    are_folders = {step.outputs[name].type, other.outputs[others].type} <= {"uri_folder", "mltable"}
    are_of_scripts = name != step.append_row_to and others != other.append_row_to
    return are_folders and are_of_scripts and (_waits(step, other, made) or _waits(other, step, made))


def _waits(step: EffectiveStep, other: EffectiveStep, made: list[EffectiveStep]) -> bool:
    """Whether a step begins only when another one has ended."""
    before = {one.name: one.depends_on for one in made}
    waited_for, open_ = set[str](), list(step.depends_on)
    while open_:
        one = open_.pop()
        if one not in waited_for:
            waited_for.add(one)
            open_ += before.get(one, ())
    return other.name in waited_for


def _check_places(made: list[EffectiveStep], steps: dict[str, StepNodes], graph: Graph, context: Context) -> None:
    """Notes an error for two outputs in one place, which would overwrite each other, and for an output in the place
    of an input, which would destroy it.
    """
    taken: dict[str, tuple[EffectiveStep, str, str]] = {}
    read_from = {
        given.path: (step.name, name)
        for step in made
        for name, given in step.inputs.items()
        if isinstance(given, DataInput)
    }
    for step in made:
        nodes = steps[step.name]
        for name, output in step.outputs.items():
            place, key = nodes.outputs.get(name, nodes.place), f"jobs.{step.name}.outputs.{name}"
            context.origins[key] = origin_of(place)
            if output.path is None or key in context.placed_outputs:
                continue
            if any(other in graph.iterations for other in graph.around(step.name)):
                context.problems.error(
                    place,
                    key,
                    f"{output.path} would be written by each iteration of a loop; leave the path out, so that each has "
                    "a place of its own. A command step after the loop can copy the output of the last one.",
                )
            elif output.path in taken and not _goes_on(step, name, *taken[output.path][:2], made):
                other = context.problems.as_spelled(taken[output.path][2])
                context.problems.error(
                    place, key, f"{output.path} is also the path of {other}; give each output a different path."
                )
            elif output.path in read_from:
                reader, wanted = read_from[output.path]
                context.problems.error(
                    place, key, f"{output.path} is also read, as input {wanted} of step {reader}; write somewhere else."
                )
            elif any(output.path.startswith(path.rstrip("/") + "/") for path in read_from):
                context.problems.warn(
                    place,
                    key,
                    f"{output.path} is inside a folder that is read; the next run would read this output as input.",
                )
            taken[output.path] = step, name, key
