"""Prepares a step: resolves the paths of its inputs and outputs, makes its folders, and writes its planning request."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from windrow.spec.effective.job import DEFAULT_ROWS_FILE, DataInput, EffectiveJob, EffectiveStep, OutputInput
from windrow.storage.urls import is_remote, parse_url

from windrow_master.datastores import Datastores, UnknownDatastore
from windrow_master.files.durable import make_durable
from windrow_master.files.state_files import StepFiles
from windrow_master.limits import Limits
from windrow_master.output_places import OutputPlaces
from windrow_master.roots import Roots
from windrow_master.step_paths import StepPaths


class PreparationFailed(Exception):
    """A step cannot begin. The message says why."""


def resolved(step: EffectiveStep, places: Datastores, *, lenient: bool) -> EffectiveStep:
    """The step with its datastore addresses resolved. Raises UnknownDatastore.

    `lenient`: an output in an unknown datastore goes to the default place of outputs.
    """
    inputs = {
        name: given._replace(path=places.resolve(given.path)) if isinstance(given, DataInput) else given
        for name, given in step.inputs.items()
    }
    outputs = dict(step.outputs)
    for name, output in step.outputs.items():
        if output.path is not None:
            try:
                outputs[name] = output._replace(path=places.resolve(output.path))
            except UnknownDatastore:
                if not lenient:
                    raise
                outputs[name] = output._replace(path=None)
    return step._replace(inputs=inputs, outputs=outputs)


def resolve(
    job: EffectiveJob, step: EffectiveStep, job_id: str, outputs_root: Path, earlier: dict[str, StepPaths]
) -> StepPaths:
    """The paths of a step whose datastore addresses are resolved. `earlier`: the paths of the steps before it, by
    name."""
    inputs: dict[str, str] = {}
    for name, given in step.inputs.items():
        if isinstance(given, OutputInput) and given.is_value:
            inputs[name] = earlier[given.step].values[given.output]
        elif isinstance(given, OutputInput):
            inputs[name] = earlier[given.step].outputs[given.output]
        elif isinstance(given, DataInput):
            inputs[name] = given.path
        else:
            inputs[name] = given.value
    outputs: dict[str, str] = {}
    append_row = None
    remote_rows: str | None = None
    for name, wanted in step.outputs.items():
        is_file = wanted.type == "uri_file"
        if wanted.path is not None and is_remote(wanted.path):
            url = parse_url(wanted.path.replace("${{name}}", job_id))
            outputs[name] = str(url)
            if name == step.append_row_to:
                remote_rows = str(url if is_file else url.below(wanted.file_name or DEFAULT_ROWS_FILE))
            continue
        if wanted.path is not None:
            path = Path(wanted.path.replace("${{name}}", job_id))
        else:
            path = outputs_root / job_id / _output_folder(job, step, name)
        if is_file and wanted.path is None:
            path = path / (wanted.file_name or (DEFAULT_ROWS_FILE if name == step.append_row_to else name))
        if name == step.append_row_to:
            append_row = path if is_file else path / (wanted.file_name or DEFAULT_ROWS_FILE)
        outputs[name] = str(path)
    return StepPaths(inputs, outputs, str(append_row) if append_row is not None else remote_rows)


def _output_folder(job: EffectiveJob, step: EffectiveStep, name: str) -> str:
    """The default folder of an output: its name in the pipeline if it has one, else `<step>/<output>`."""
    for pipeline_name, bound in job.outputs.items():
        if bound.step == step.name and bound.output == name:
            return pipeline_name
    return f"{step.name}/{name}"


def make_folders(
    step: EffectiveStep, paths: StepPaths, files: StepFiles, roots: Roots | None, places: OutputPlaces
) -> StepPaths:
    """Make the step's own folder and those of its outputs, durably. Workers expect them to exist.

    Return the paths with what they lead to now, unless that is known already. `roots`: outputs must be below these;
    anywhere if None. Raises PreparationFailed.
    """
    if paths.places is None:
        paths = places.remember(paths)
    try:
        # The folder is jobs/<job>/steps/<id>; its fourth parent is the state folder.
        make_durable(files.segments, files.folder.parents[3])
    except OSError as error:
        raise PreparationFailed(
            f"The step's folder {files.folder} cannot be made: {error.strerror}. Check the disk of the state folder, "
            "then retry the job."
        ) from error
    for name, path in paths.outputs.items():
        is_file = step.outputs[name].type == "uri_file"
        if is_remote(path):
            if roots is not None and not roots.hold(path):
                raise PreparationFailed(f"Output {name!r}: {path} is outside the datastores of this master ({roots}).")
            continue
        place = Path(path).parent if is_file else Path(path)
        # This was checked when the job was submitted, but a link may have been made since.
        if roots is not None and not roots.hold(path):
            raise PreparationFailed(
                f"Output {name!r}: {path} leaves the datastores of this master ({roots}) through a link. Remove "
                "the link, or give the output another path."
            )
        if why := places.refuse_kept(path, paths):
            raise PreparationFailed(f"Output {name!r}: {why}.")
        try:
            with places.make(place, paths) as folder:
                writable = os.access(".", os.W_OK | os.X_OK, dir_fd=folder.descriptor)
        except OSError as error:
            raise PreparationFailed(
                f"The folder of output {name!r} cannot be made: {place}: {error.strerror}. Give the output "
                "another path (or none), or give the master's user write permission there."
            ) from error
        if not writable:
            raise PreparationFailed(
                f"The folder of output {name!r} cannot be written: {place}. Give the output another path."
            )
        if is_file and Path(path).is_dir():
            raise PreparationFailed(f"Output {name!r} should be the file {path}, but that is a folder.")
    return paths


def planning_request(
    step: EffectiveStep,
    paths: StepPaths,
    files: StepFiles,
    places: Datastores,
    roots: Roots | None,
    rows_folder: Path | None,
    earlier: dict[str, Any] | None,
    slow: Sequence[tuple[int, int, int]] = (),
    unmade: Collection[tuple[str, str]] = (),
    memory_bytes_max: int = Limits().planner_memory_bytes,
) -> dict[str, Any]:
    """The request to the planner, without its checkpoint (docs/contracts.md, section 3).

    `unmade`: the outputs of other steps, by step and name, that may be a folder or a file.
    """
    inputs = []
    for name in step.input_data:
        data = step.inputs[name]
        assert isinstance(data, DataInput | OutputInput), "checked when the document was read"
        either = isinstance(data, OutputInput) and (data.step, data.output) in unmade and data.type == "uri_folder"
        # For the planner, a uri_file may also be a folder.
        kind = "uri_file" if either else data.type
        inputs.append({"name": name, "type": kind, "path": paths.inputs[name], "mode": data.mode})
    return {
        "step_folder": str(files.folder),
        "inputs": inputs,
        "mini_batch_size": step.mini_batch_size,
        "mini_batch_rows": step.mini_batch_rows,
        "rank_mini_batch_count": step.rank_mini_batch_count,
        "file_format": step.file_format,
        "exact_row_index": step.exact_row_index,
        "mixed_types": step.mixed_types,
        "partition_keys": list(step.partition_keys),
        "datastores": places.places,
        "roots": None if roots is None else roots.folders,
        "rows_folder": None if rows_folder is None else str(rows_folder),
        "earlier": earlier,
        "slow": list(slow),
        "memory_bytes_max": memory_bytes_max,
    }
