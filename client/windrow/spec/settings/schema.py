"""The keys of a job file, as tables.

A key that is in no table is unknown. A key with an `effect` text is read and checked, then reported as without effect.

Reference: docs/reference/azure-ml/parallel-job.md#pipelines, #parallel-steps, #tasks, #inputs-and-outputs;
docs/reference/azure-ml/client.md.
"""

from __future__ import annotations

from windrow.spec.settings.fields import INT_MAX, Field, step_needs, threshold, timeout

ITERATIONS_MAX = 1000
"""The most iterations of a loop, as in Azure ML."""

_TEXT = Field("text")
_NODE = Field("node")
_MAP = Field("map")

_HERE = "the agents that are running do the work"
_IDENTITY = Field("node", effect="identities are not supported; a script runs with the rights of its agent")
_RESOURCE = Field("node", effect=f"Windrow does not create machines; {_HERE}, or those of the pool that compute names")
_NEEDS = "what a worker needs is said by cpus_per_worker, memory_per_worker and gpus_per_worker"

PIPELINE: dict[str, Field] = {
    "$schema": _NODE,
    "type": _NODE,
    "name": _TEXT,
    "display_name": _TEXT,
    "experiment_name": _TEXT,
    "description": _TEXT,
    "tags": _MAP,
    "properties": Field("node", effect="properties are not kept; use tags"),
    "comment": _NODE,
    "inputs": _NODE,
    "outputs": _NODE,
    "settings": _NODE,
    "jobs": _NODE,
    "compute": _TEXT,
    "identity": _IDENTITY,
    "services": Field("node", effect="services on nodes are not supported"),
    "schedule": Field(
        "node", effect="schedules are not supported; use cron or a systemd timer with `windrow job create`"
    ),
}

PIPELINE_SETTINGS: dict[str, Field] = {
    "default_compute": _TEXT,
    "default_datastore": _TEXT,
    "continue_on_step_failure": Field("bool"),
    # As the vendor's client writes it.
    "continue_run_on_step_failure": Field("bool"),
    "force_rerun": Field("bool"),
}

_ANY_STEP: dict[str, Field] = {
    "$schema": _NODE,
    "type": _NODE,
    "name": _TEXT,
    "display_name": _TEXT,
    "description": _TEXT,
    "tags": Field("map", effect="tags of a step are not kept; use the pipeline's tags"),
    "properties": Field("node", effect="properties are not kept"),
    "comment": _NODE,
    "inputs": _NODE,
    "outputs": _NODE,
    "resources": _NODE,
    "environment_variables": _MAP,
    "identity": _IDENTITY,
    "is_deterministic": Field("bool"),
}

_PARALLEL: dict[str, Field] = {
    **_ANY_STEP,
    "input_data": _NODE,
    "mini_batch_size": Field("size"),
    "partition_keys": Field("texts"),
    "max_concurrency_per_instance": Field("int", 1, INT_MAX),
    "logging_level": Field("choice", choices=("WARNING", "INFO", "DEBUG")),
    "error_threshold": threshold(),
    "mini_batch_error_threshold": threshold(),
    "retry_settings": _NODE,
    "task": _NODE,
    "output_data": Field("text", effect="its effect in Azure ML is not documented; rows go to task.append_row_to"),
}

_COMMAND: dict[str, Field] = {
    **_ANY_STEP,
    "command": _TEXT,
    "code": _TEXT,
    "environment": _NODE,
    "limits": _NODE,
    "distribution": Field("node", effect="a command runs once, as one process, on one node"),
}

_IN_STEP: dict[str, Field] = {
    "component": _NODE,
    "compute": _TEXT,
    "services": Field("node", effect="services on nodes are not supported"),
    "job_tier": Field("node", effect=f"Windrow does not create machines; {_HERE}"),
    "queue_settings": Field("node", effect=f"Windrow does not create machines; {_HERE}"),
}

_IN_COMPONENT: dict[str, Field] = {
    "version": _NODE,
    "jobs": _NODE,
    # Written by the vendor's client when it dumps an anonymous component.
    "creation_context": _NODE,
    "id": _NODE,
    "code": _NODE,
}

STEP: dict[str, Field] = {
    **_PARALLEL,
    **_IN_STEP,
    "limits": Field("node", effect="limits of a parallel step are not supported; see retry_settings.timeout"),
}
COMPONENT: dict[str, Field] = {**_PARALLEL, **_IN_COMPONENT}
COMMAND_STEP: dict[str, Field] = {**_COMMAND, **_IN_STEP}
COMMAND_COMPONENT: dict[str, Field] = {**_IN_COMPONENT, **_COMMAND}

_OF_ITS_STEPS = "a pipeline that is a step does not have this setting itself; set it for the steps in it"
_OF_THE_JOB = (
    "as in Azure ML, only the job's own setting counts, not that of a pipeline that is a step; set it in the job"
)

_INNER_PIPELINE: dict[str, Field] = {
    **{name: Field("node", effect=_OF_ITS_STEPS) for name in (*STEP, *COMMAND_STEP) if name not in _ANY_STEP},
    **_ANY_STEP,
    **{name: Field("node", effect=_OF_ITS_STEPS) for name in ("resources", "environment_variables")},
    "jobs": _NODE,
    "settings": Field("node", effect=_OF_THE_JOB),
    "compute": Field("node", effect=f"{_OF_THE_JOB} (settings.default_compute), or for the steps in it"),
    "experiment_name": Field("text", effect=_OF_THE_JOB),
}
PIPELINE_STEP: dict[str, Field] = {**_INNER_PIPELINE, "component": _NODE}
PIPELINE_COMPONENT: dict[str, Field] = {**_INNER_PIPELINE, "version": _NODE, "creation_context": _NODE, "id": _NODE}

IF_ELSE: dict[str, Field] = {
    "type": _NODE,
    "name": _TEXT,
    "display_name": _TEXT,
    "description": _TEXT,
    "comment": _NODE,
    "condition": _NODE,
    "true_block": _NODE,
    "false_block": _NODE,
}
DO_WHILE: dict[str, Field] = {
    "type": _NODE,
    "name": _TEXT,
    "display_name": _TEXT,
    "description": _TEXT,
    "comment": _NODE,
    "body": _TEXT,
    "condition": _TEXT,
    "mapping": _NODE,
    "limits": _NODE,
}
DO_WHILE_LIMITS: dict[str, Field] = {"max_iteration_count": Field("int", 1, ITERATIONS_MAX)}

LIMITS: dict[str, Field] = {"timeout": Field("int", 1, INT_MAX, unit="seconds")}

RETRY_SETTINGS: dict[str, Field] = {
    "max_retries": Field("int", 0, INT_MAX),
    "timeout": timeout(),
}

RESOURCES: dict[str, Field] = {
    # -1 means all there are, which is also what a step without the setting gets.
    "instance_count": Field("int", -1, INT_MAX),
    "instance_type": _NODE,
    "properties": Field("node", effect=f"they are settings of Azure ML's own clusters; {_NEEDS}"),
    "locations": _RESOURCE,
    "max_instance_count": Field("node", effect="Windrow does not create machines; instance_count bounds the nodes"),
    "shm_size": Field("memory"),
    "docker_args": Field("node", effect="workers do not run in containers"),
    # Step level is the documented place, but the documentation's layout suggests this one: both are read.
    "max_concurrency_per_instance": Field("int", 1, INT_MAX),
    # Windrow's own.
    **step_needs(),
}

TASK: dict[str, Field] = {
    "type": Field("choice", choices=("run_function", "function")),
    "code": _TEXT,
    "entry_script": _TEXT,
    "program_arguments": _TEXT,
    "args": _TEXT,
    "model": _NODE,
    "append_row_to": _TEXT,
    "environment": _NODE,
}

INPUT_MODES = ("ro_mount", "rw_mount", "mount", "download", "direct", "eval_mount", "eval_download")
OUTPUT_MODES = ("rw_mount", "mount", "upload", "direct")
DATA_TYPES = ("uri_folder", "uri_file", "mltable")
MODEL_TYPES = ("custom_model", "mlflow_model", "triton_model")
LITERAL_TYPES = ("string", "integer", "number", "boolean")

RETURNS = ("per_item", "per_group", "any")
"""What the rows that `run()` returns stand for: an item each, together all items, or nothing that is counted."""

ROW_FORMATS = ("text", "csv", "jsonl", "parquet")
"""The formats of a file of rows: lines of text, or a format whose name is also the extension.

Reference: docs/reference/azure-ml/parallel-job.md#rows.
"""


INPUT: dict[str, Field] = {
    "type": Field("choice", choices=DATA_TYPES + MODEL_TYPES + LITERAL_TYPES),
    "path": _TEXT,
    "mode": Field("choice", choices=INPUT_MODES),
    "default": _NODE,
    "value": _NODE,
    "optional": Field("bool"),
    "description": _TEXT,
    "enum": _NODE,
    "min": _NODE,
    "max": _NODE,
    "path_on_compute": Field("text", effect="data is read in place"),
    "datastore": Field(
        "text", effect="data in a datastore is named by its path, azureml://datastores/<name>/paths/<path>"
    ),
}

OUTPUT: dict[str, Field] = {
    "type": Field("choice", choices=DATA_TYPES + MODEL_TYPES + LITERAL_TYPES),
    "path": _TEXT,
    "mode": Field("choice", choices=OUTPUT_MODES),
    "description": _TEXT,
    "is_control": Field("bool"),
    "early_available": Field("bool", effect="other steps get an output when its step is done"),
    "optional": _NODE,
    "name": _TEXT,
    "version": _TEXT,
    "path_on_compute": Field("text", effect="outputs are written in place"),
    # Windrow's own: what v1's PipelineData means.
    "make_folder": Field("bool"),
}

PLACES: dict[str, dict[str, Field]] = {
    "": PIPELINE,
    "settings.": PIPELINE_SETTINGS,
    "jobs.<step>.limits.": LIMITS,
    "jobs.<step>.": STEP,
    "jobs.<step>.retry_settings.": RETRY_SETTINGS,
    "jobs.<step>.resources.": RESOURCES,
    "jobs.<step>.task.": TASK,
}
"""All tables by the place of their keys, to say where a misplaced key belongs."""


def belongs_to(key: str, table: dict[str, Field]) -> str:
    """The full path at which a key that `table` does not have is known; "" if there is none."""
    for place, other in reversed(PLACES.items()):
        if other is not table and key in other and not key.startswith("$"):
            return place + key
    return ""
