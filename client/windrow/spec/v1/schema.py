"""The keys of v1 files, as tables.

Reference: docs/reference/azure-ml/parallel-job.md#version-1, #reserved-arguments.
"""

from __future__ import annotations

from windrow.spec.settings.fields import INT_MAX, TIMEOUT_S_MAX, Field, threshold

_TEXT = Field("text")
_NODE = Field("node")

PIPELINE: dict[str, Field] = {
    "name": _TEXT,
    "description": _TEXT,
    "default_compute": _TEXT,
    "data_references": _NODE,
    "parameters": _NODE,
    "steps": _NODE,
}

RUN_CONFIG: dict[str, Field] = {
    "environment": _NODE,
    "environment_name": _TEXT,
    "environment_dir_path": _TEXT,
    "entry_script": _TEXT,
    "source_directory": _TEXT,
    "error_threshold": threshold(),
    "allowed_failed_count": threshold(),
    "allowed_failed_percent": Field("number", 0, 100),
    "output_action": Field("choice", choices=("append_row", "summary_only")),
    "append_row_file_name": _TEXT,
    "compute_target_name": _TEXT,
    "compute_target": _TEXT,
    "node_count": Field("int", 1, INT_MAX),
    "process_count_per_node": Field("int", 1, INT_MAX),
    "mini_batch_size": Field("size"),
    "partition_keys": _NODE,
    "run_invocation_timeout": Field("int", 1, TIMEOUT_S_MAX, unit="seconds"),
    "run_max_try": Field("int", 1, INT_MAX),
    "logging_level": Field("choice", choices=("WARNING", "INFO", "DEBUG")),
    "environment_variables": _NODE,
    "description": _TEXT,
}

_STEP: dict[str, Field] = {
    "type": _TEXT,
    "name": _TEXT,
    "description": _TEXT,
    "comment": _NODE,
    "arguments": _NODE,
    "parameters": _NODE,
    "inputs": _NODE,
    "outputs": _NODE,
    "allow_reuse": Field("bool"),
    "source_directory": _TEXT,
    "compute": _TEXT,
    "compute_target": _TEXT,
}

PARALLEL_STEP: dict[str, Field] = {**_STEP, "parallel_run_config": _NODE, "side_inputs": _NODE, "script_name": _TEXT}

SCRIPT_STEP: dict[str, Field] = {
    **_STEP,
    "script_name": _TEXT,
    # Not of v1's files: what `windrow.ml.v1` has of a run configuration.
    "environment": _NODE,
    "runconfig": _TEXT,
    "runconfig_parameters": Field("node", effect="parameters of a run configuration are not supported"),
}

_READ_IN_PLACE = "data is read in place"

DATA_REFERENCE: dict[str, Field] = {
    "dataset_name": _TEXT,
    "dataset_version": _TEXT,
    "dataset_id": Field("text", effect="datasets are found by their names"),
    "datastore": _TEXT,
    "path_on_datastore": _TEXT,
    "path": _TEXT,
    "type": Field("choice", choices=("uri_folder", "uri_file", "mltable")),
    "bind_mode": _TEXT,
    "data_reference_name": Field("text", effect="the key in data_references is the name"),
    "path_on_compute": Field("text", effect=_READ_IN_PLACE),
    "overwrite": Field("bool", effect=_READ_IN_PLACE),
}

INPUT: dict[str, Field] = {
    "source": _TEXT,
    "bind_mode": _TEXT,
    # Not in v1's files: what its Python API says by `parse_delimited_files` and its like.
    "as_table": Field("bool"),
    "type": Field("text", effect="a source has its own type"),
    "path_on_compute": Field("text", effect=_READ_IN_PLACE),
    "overwrite": Field("bool", effect=_READ_IN_PLACE),
}

OUTPUT: dict[str, Field] = {
    "destination": _TEXT,
    "datastore": _TEXT,
    "path_on_datastore": _TEXT,
    "path": _TEXT,
    "bind_mode": _TEXT,
    # Not in v1's files: what its Python API says by `register_on_complete`.
    "register_as": _TEXT,
    # As what the API's classes mean: false for a PipelineData, which is what a file has.
    "make_folder": Field("bool"),
    "type": Field("text", effect="a script makes its output as a folder or a file; other outputs are folders"),
    "path_on_compute": Field("text", effect="outputs are written in place"),
    "overwrite": Field("bool", effect="each job has outputs of its own"),
    "is_directory": Field("bool", effect="a script makes its output as a folder or a file; other outputs are folders"),
}

INPUT_MODES = {"mount": "ro_mount", "download": "download", "direct": "direct"}
OUTPUT_MODES = {"mount": "rw_mount", "upload": "upload"}

PARAMETER_TYPES = {"int": "integer", "float": "number", "string": "string", "str": "string", "bool": "boolean"}

RESERVED_ARGUMENTS = (
    "mini_batch_size",
    "error_threshold",
    "allowed_failed_count",
    "allowed_failed_percent",
    "output",
    "output_action",
    "logging_level",
    "process_count_per_node",
    "run_invocation_timeout",
    "run_max_try",
    "append_row_file_name",
    "partition_keys",
)
"""Names that the runtime takes from the ParallelRunConfig; a step's arguments may not use them."""
