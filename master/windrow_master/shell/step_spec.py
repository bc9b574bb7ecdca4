"""Builds the StepSpec message: what an agent needs to know about a step."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from windrow.rpc.v1 import work_pb2
from windrow.spec.effective.job import (
    DataInput,
    EffectiveStep,
    Environment,
    LiteralInput,
    OutputInput,
    outputs_elsewhere,
    resolve_arguments,
)
from windrow.storage.urls import is_remote

from windrow_master.core.ids import step_identity
from windrow_master.core.records import JobRow, StepRow
from windrow_master.roots import Roots
from windrow_master.step_paths import StepPaths

if TYPE_CHECKING:
    from windrow_master.core.state import Job, Step

VALUE_CHARS_MAX = 4096
"""Longer values are in no variable: the kernel refuses a process with one that is very long."""


def step_spec(
    job: Job, step: Step, effective: EffectiveStep, paths: StepPaths, experiment: str, readable: Roots | None
) -> work_pb2.StepSpec:
    """The message for a step whose paths are resolved and whose reader is pinned. `experiment`: its name. `readable`:
    where MLTable files have to be; anywhere if None.
    """
    stored = stored_outputs(effective, paths)
    output_path = _output_path(effective, paths, stored)
    spec = _spec(job, step, step.plan.reader, effective, paths, experiment, stored, output_path, readable)
    spec.identity = step_identity(
        job.job_id, job.request_id, job.create_time, job.generation, job.document, step.ordinal
    )
    return spec


def replayed_step_spec(
    job: JobRow, step: StepRow, effective: EffectiveStep, paths: StepPaths, experiment: str, readable: Roots | None
) -> work_pb2.StepSpec:
    """The message for a replay of one mini-batch beside the job.

    All outputs are `stored_outputs` with their paths or addresses in the job, so that the script can be given another
    place for each.
    """
    stored = [
        work_pb2.StoredOutput(name=name, address=paths.outputs[name], is_file=wanted.type == "uri_file")
        for name, wanted in effective.outputs.items()
        if name in paths.outputs
    ]
    own = effective.append_row_to or next((output.name for output in stored), None)
    output_path = f"\0outputs/{own}\0" if own is not None else ""
    return _spec(job, step, step.reader, effective, paths, experiment, stored, output_path, readable)


def _spec(
    job: Job | JobRow,
    step: Step | StepRow,
    reader: bytes | None,
    effective: EffectiveStep,
    paths: StepPaths,
    experiment: str,
    stored: list[work_pb2.StoredOutput],
    output_path: str,
    readable: Roots | None,
) -> work_pb2.StepSpec:
    sides = side_inputs(effective, paths)
    inputs = paths.inputs | {side.name: f"\0{side.name}\0" for side in sides}
    outputs = paths.outputs | {output.name: f"\0outputs/{output.name}\0" for output in stored}
    words = resolve_arguments(effective, inputs, outputs)
    spec = work_pb2.StepSpec(
        step_id=step.step_id,
        job_id=job.job_id,
        step_name=effective.name,
        generation=job.generation,
        code_digest=effective.code_digest,
        entry_script=effective.entry_script,
        arguments=words if effective.command is None else (),
        command="" if effective.command is None else words[0],
        environment_variables={
            "AZUREML_ARM_PROJECT_NAME": experiment,
            **_places(effective, inputs, outputs),
            **effective.environment_variables,
        },
        reader=reader or b"{}",
        rows=json.dumps(
            {
                "action": "append_row" if effective.append_row_to is not None else "summary_only",
                "dataframe_to_csv": effective.rows.dataframe_to_csv,
                "dataframe_header": effective.rows.dataframe_header,
                "format": effective.rows.format,
                "returns": effective.rows_stand_for,
            }
        ).encode(),
        max_concurrency_per_instance=effective.max_concurrency_per_instance or 0,
        cpus_per_worker=effective.cpus_per_worker or 0,
        memory_per_worker=effective.memory_per_worker,
        gpus_per_worker=effective.gpus_per_worker,
        shared_memory_bytes=effective.shared_memory_bytes,
        logging_level=effective.logging_level,
        output_path=output_path,
        output_folders=[] if output_path.startswith("\0") else [output_path] * bool(output_path),
        priority=job.priority,
        weight=job.weight,
        side_inputs=sides,
        stored_outputs=stored,
        resource_monitor_interval=effective.resource_monitor_interval_s,
        profiling_module=effective.profiling_module or "",
        output_files=_output_files(effective, outputs) if effective.command is not None else {},
        artifacts=_artifacts(effective, outputs) if effective.command is not None else "",
        unmade_outputs=_unmade_outputs(effective, outputs) if effective.command is not None else {},
        read_paths=_read_paths(effective, paths, reader, readable),
        allowed_paths=effective.allow_path,
        write_paths=_write_paths(effective, paths, output_path),
        synced_paths=_synced_paths(effective, paths),
    )
    if effective.environment is not None:
        spec.environment.CopyFrom(_environment(effective.environment))
    spec.run_invocation_timeout.FromMilliseconds(int(effective.run_invocation_timeout_s * 1000))
    spec.task_overhead_timeout.FromMilliseconds(int(effective.task_overhead_timeout_s * 1000))
    return spec


def _environment(wanted: Environment) -> work_pb2.Environment:
    conda = None if wanted.conda is None else work_pb2.CondaList(**wanted.conda._asdict())
    return work_pb2.Environment(**{**wanted._asdict(), "conda": conda})


def _places(effective: EffectiveStep, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> dict[str, str]:
    """Where data is, in variables, as in the arguments (docs/reference/azure-ml/parallel-job.md#workers). For a command
    also values: what stands in its text is read by a shell, and what is in a variable is not.
    """
    values = {name: given.value for name, given in effective.inputs.items() if isinstance(given, LiteralInput)}
    shown = {name: value for name, value in values.items() if len(value) <= VALUE_CHARS_MAX and "\0" not in value}
    return {
        **({f"WINDROW_INPUT_{name}": value for name, value in shown.items()} if effective.command is not None else {}),
        **{f"AZURE_ML_INPUT_{name}": inputs[name] for name in effective.inputs if name not in values},
        **{f"AZURE_ML_OUTPUT_{name}": outputs[name] for name in effective.outputs if name in outputs},
    }


def _read_paths(effective: EffectiveStep, paths: StepPaths, reader: bytes | None, readable: Roots | None) -> list[str]:
    """The local places of the step's inputs, as far as they are known before its files are.

    What an MLTable file names outside its folder counts only where the job names the file: one that an earlier step has
    written may name anything.
    """
    found = []
    for name, given in effective.inputs.items():
        path = paths.inputs.get(name, "")
        if isinstance(given, LiteralInput) or not path or is_remote(path):
            continue
        if isinstance(given, OutputInput) and Path(path).is_symlink():
            # A script has put it in the place of its output; it may lead anywhere.
            continue
        found.append(path)
        if isinstance(given, DataInput) and given.type == "mltable":
            # Not at the top: most steps read no table.
            from windrow_master.planning.table_paths import places_in, read_definition

            definition = read_definition(os.fsencode(path), readable)
            found += [] if definition is None else [os.fsdecode(place) for _, place in places_in(*definition)]
    document = json.loads(reader or b"{}")
    for one in document.get("inputs", (document,)):
        if one.get("format") == "sorted_rows":
            found.append(str(Path(one["file"]).parent))
    return [path for path in dict.fromkeys(found) if path.startswith("/")]


def _write_paths(effective: EffectiveStep, paths: StepPaths, output_path: str) -> list[str]:
    """The local folders in which the step's script makes its outputs."""
    found = [output_path] if output_path and not output_path.startswith("\0") else []
    for name, wanted in effective.outputs.items():
        path = paths.outputs.get(name, "")
        if path and not is_remote(path) and name != effective.append_row_to:
            alone = wanted.type == "uri_file" or not wanted.make_folder
            found.append(str(Path(path).parent) if alone else path)
    return list(dict.fromkeys(found))


def _synced_paths(effective: EffectiveStep, paths: StepPaths) -> list[str]:
    """The local places of the outputs that the step's script makes; rows are the master's."""
    places = (paths.outputs.get(name, "") for name in effective.outputs if name != effective.append_row_to)
    return [place for place in places if place and not is_remote(place)]


def _output_files(effective: EffectiveStep, places: Mapping[str, str]) -> dict[str, str]:
    """The places of outputs that are single files. A remote output with mode `direct` is left out: only the script
    knows whether it is there."""
    found = {name: places[name] for name, wanted in effective.outputs.items() if wanted.type == "uri_file"}
    return {name: place for name, place in found.items() if not is_remote(place)}


def _unmade_outputs(effective: EffectiveStep, places: Mapping[str, str]) -> dict[str, str]:
    """The places of outputs whose folder the command makes itself; those with mode `direct` are in a store."""
    found = {name: places[name] for name, wanted in effective.outputs.items() if not wanted.make_folder}
    return {name: place for name, place in found.items() if not is_remote(place)}


def _artifacts(effective: EffectiveStep, places: Mapping[str, str]) -> str:
    """The folder that keeps `./outputs` of a command: its output named `artifacts`, as in Azure ML; empty if
    there is none."""
    wanted = effective.outputs.get("artifacts")
    if wanted is None or wanted.type == "uri_file" or is_remote(places["artifacts"]):
        return ""
    return places["artifacts"]


def _output_path(effective: EffectiveStep, paths: StepPaths, stored: list[work_pb2.StoredOutput]) -> str:
    """The output folder that the script gets: where its rows go, else its first output."""
    if effective.append_row_to is not None and paths.append_row is not None and not is_remote(paths.append_row):
        return str(Path(paths.append_row).parent)
    places = {output.name: f"\0outputs/{output.name}\0" for output in stored}
    for name, path in paths.outputs.items():
        if name in places and effective.outputs[name].type != "uri_file":
            return places[name]
        if not is_remote(path):
            return str(Path(path).parent) if effective.outputs[name].type == "uri_file" else path
    return ""


def stored_outputs(effective: EffectiveStep, paths: StepPaths) -> list[work_pb2.StoredOutput]:
    """The outputs that scripts write by themselves and agents upload to remote storage."""
    return [
        work_pb2.StoredOutput(
            name=name, address=paths.outputs[name], is_file=effective.outputs[name].type == "uri_file"
        )
        for name in outputs_elsewhere(effective)
        if is_remote(paths.outputs[name])
    ]


def side_inputs(effective: EffectiveStep, paths: StepPaths) -> list[work_pb2.SideInput]:
    """The side inputs that agents fetch before workers start. With mode `direct`, the script gets the address
    itself."""
    found = []
    for name, given in effective.inputs.items():
        if name in effective.input_data or isinstance(given, LiteralInput) or given.mode == "direct":
            continue
        copied = given.mode in ("download", "eval_download")
        if is_remote(paths.inputs[name]) or copied:
            found.append(work_pb2.SideInput(name=name, address=paths.inputs[name], writable=copied))
    return found
