"""The rows of Azure ML's tables of keys and arguments: each with its value, its edges, and values beyond them, and
what comes of them.

Reference: docs/reference/azure-ml/parallel-job.md#parallel-steps, #tasks, #inputs-and-outputs, #program-arguments.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from windrow.spec import Environment
from windrow.spec.settings.arguments import RUNTIME_ARGUMENTS
from windrow.spec.settings.schema import INPUT, OUTPUT, RESOURCES, RETRY_SETTINGS, STEP, TASK


class Sets(NamedTuple):
    """It is taken: this setting of the step has this value."""

    setting: str
    value: Any


class Refused(NamedTuple):
    """It is an error at this key, which says this."""

    key: str
    words: str


TAKEN = ""
"""It is taken; what it does, if anything, is tested elsewhere."""

Outcome = str | Sets | Refused
Rows = dict[str, list[tuple[str, Outcome]]]

TASK_YAML = "task: {type: run_function, code: ./src, entry_script: score.py"
INT = "from -1 to 2147483647"
SECONDS = "a whole number of seconds from 1 to 259200"

STEP_ROWS: Rows = {
    "type": [
        ("type: parallel", TAKEN),
        ("type: PARALLEL", TAKEN),
        ("type: paralel", Refused("type", '"parallel"')),
    ],
    "name": [("name: score it", TAKEN)],
    "display_name": [("display_name: Score it", TAKEN)],
    "description": [("description: what it does", TAKEN)],
    "tags": [("tags: {owner: me}", TAKEN), ("tags: {}", TAKEN)],
    "properties": [("properties: {a: b}", TAKEN)],
    "comment": [("comment: any", TAKEN)],
    "component": [
        ("component: ./nothing.yml", Refused("component", "does not exist")),
        ("component: azureml:score:1", Refused("component", "is not a registered component")),
        ("component: azureml:score@latest", Refused("component", "is not a registered component")),
    ],
    "compute": [
        ("compute: azureml:cpu", Sets("compute", "cpu")),
        ("compute: cpu", Sets("compute", "cpu")),
        ("compute: /subscriptions/s/resourceGroups/g/providers/m/workspaces/w/computes/cpu", Sets("compute", "cpu")),
        ("compute: local", Sets("compute", "")),
        ("compute: azureml:serverless", Sets("compute", "")),
        ("compute: azureml:my cpu", Refused("compute", "a pool of nodes")),
    ],
    "job_tier": [("job_tier: spot", TAKEN)],
    "queue_settings": [("queue_settings: {job_tier: spot}", TAKEN)],
    "inputs": [("inputs: 3", Refused("inputs", "a mapping"))],
    "outputs": [("outputs: 3", Refused("outputs", "a mapping"))],
    "input_data": [
        ("input_data: ${{inputs.images}}", Sets("input_data", ("images",))),
        ("input_data: ${{ inputs.images }}", Sets("input_data", ("images",))),
        ("input_data: ['${{inputs.images}}']", Sets("input_data", ("images",))),
        ("input_data:", Refused("input_data", "missing")),
        ("input_data: ./images", Refused("input_data", "${{inputs.x}}")),
        ("input_data: ${{outputs.scores}}", Refused("input_data", "inputs")),
    ],
    "mini_batch_size": [
        ("mini_batch_size: '7'", Sets("mini_batch_size", 7)),
        ("mini_batch_size: 7", Sets("mini_batch_size", 7)),
        ("mini_batch_size: 1", Sets("mini_batch_size", 1)),
        ("mini_batch_size: 3Gb", Sets("mini_batch_size", 3 << 30)),
        ("mini_batch_size: ${{parent.inputs.n}}", Sets("mini_batch_size", 7)),
        ("mini_batch_size: 100 kb", Refused("mini_batch_size", "optionally followed directly by kb")),
        ("mini_batch_size: 10kbmb", Refused("mini_batch_size", '"10kbmb"')),
        ("mini_batch_size: -1", Refused("mini_batch_size", "-1")),
    ],
    "partition_keys": [
        ("partition_keys: []", Sets("partition_keys", ())),
        ("partition_keys: store", Refused("partition_keys", "JSON text")),
        ("partition_keys: '{\"a\": 1}'", Refused("partition_keys", "JSON text")),
    ],
    "resources": [("resources: {}", TAKEN), ("resources: 3", Refused("resources", "a mapping"))],
    "max_concurrency_per_instance": [
        ("max_concurrency_per_instance: 4", Sets("max_concurrency_per_instance", 4)),
        ("max_concurrency_per_instance: 1", Sets("max_concurrency_per_instance", 1)),
        ("max_concurrency_per_instance: ${{parent.inputs.n}}", Sets("max_concurrency_per_instance", 7)),
        ("max_concurrency_per_instance: 0", Refused("max_concurrency_per_instance", "from 1")),
    ],
    "logging_level": [
        ("logging_level: WARNING", Sets("logging_level", "WARNING")),
        ("logging_level: Debug", Sets("logging_level", "DEBUG")),
        ("logging_level: ERROR", Refused("logging_level", "one of WARNING, INFO, DEBUG")),
    ],
    "error_threshold": [
        ("error_threshold: 10", Sets("error_threshold", 10)),
        ("error_threshold: -1", Sets("error_threshold", -1)),
        ("error_threshold: 2147483647", Sets("error_threshold", 2**31 - 1)),
        ("error_threshold: -2", Refused("error_threshold", INT)),
        ("error_threshold: 2147483648", Refused("error_threshold", INT)),
    ],
    "mini_batch_error_threshold": [
        ("mini_batch_error_threshold: 5", Sets("mini_batch_error_threshold", 5)),
        ("mini_batch_error_threshold: 0", Sets("mini_batch_error_threshold", 0)),
        ("mini_batch_error_threshold: 2147483647", Sets("mini_batch_error_threshold", 2**31 - 1)),
        ("mini_batch_error_threshold: -2", Refused("mini_batch_error_threshold", INT)),
        ("mini_batch_error_threshold: 2147483648", Refused("mini_batch_error_threshold", INT)),
    ],
    "retry_settings": [("retry_settings: {}", TAKEN), ("retry_settings: 2", Refused("retry_settings", "a mapping"))],
    "environment_variables": [
        ("environment_variables: {A: b}", Sets("environment_variables", {"A": "b"})),
        ("environment_variables: {}", Sets("environment_variables", {})),
        ("environment_variables: {A: [b]}", Refused("environment_variables.A", "a list")),
        ("environment_variables: A=b", Refused("environment_variables", "a mapping")),
    ],
    "identity": [("identity: {type: managed}", TAKEN)],
    "task": [("task:", Refused("task", "missing")), ("task: score.py", Refused("task", "a mapping"))],
    "is_deterministic": [
        ("is_deterministic: true", Sets("reuse", True)),
        ("is_deterministic: false", Sets("reuse", False)),
        ("is_deterministic: sometimes", Refused("is_deterministic", "true or false")),
    ],
    "output_data": [("output_data: ${{outputs.scores}}", TAKEN)],
}

RESOURCE_ROWS: Rows = {
    "instance_count": [
        ("instance_count: 1", Sets("instance_count", 1)),
        ("instance_count: -1", Sets("instance_count", -1)),
        ("instance_count: 0", Refused("resources.instance_count", "from 1")),
        ("instance_count: 1.5", Refused("resources.instance_count", "1.5")),
    ],
    "instance_type": [("instance_type: STANDARD_D2", TAKEN)],
    "properties": [("properties: {a: b}", TAKEN)],
    "locations": [("locations: [westeurope]", TAKEN)],
    "max_instance_count": [("max_instance_count: 3", TAKEN)],
    "shm_size": [
        ("shm_size: 2g", Sets("shared_memory_bytes", 2 << 30)),
        ("shm_size: 512M", Sets("shared_memory_bytes", 512 << 20)),
        ("shm_size: 0g", Refused("resources.shm_size", "b, k, m or g")),
        ("shm_size: 2gb", Refused("resources.shm_size", "b, k, m or g")),
    ],
    "docker_args": [("docker_args: --cpus 1", TAKEN), ("docker_args: [--cpus, '1']", TAKEN)],
    "max_concurrency_per_instance": [
        ("max_concurrency_per_instance: 2", Sets("max_concurrency_per_instance", 2)),
        ("max_concurrency_per_instance: 0", Refused("resources.max_concurrency_per_instance", "from 1")),
    ],
    "cpus_per_worker": [
        ("cpus_per_worker: 0.25", Sets("cpus_per_worker", 0.25)),
        ("cpus_per_worker: 0", Refused("resources.cpus_per_worker", "0")),
    ],
    "memory_per_worker": [
        ("memory_per_worker: 4gb", Sets("memory_per_worker", 4 << 30)),
        ("memory_per_worker: much", Refused("resources.memory_per_worker", "much")),
    ],
    "gpus_per_worker": [
        ("gpus_per_worker: 2", Sets("gpus_per_worker", 2)),
        ("gpus_per_worker: 1.5", Refused("resources.gpus_per_worker", "1.5")),
    ],
    "min_nodes": [
        ("min_nodes: 1", Sets("min_nodes", 1)),
        ("min_nodes: 0", Refused("resources.min_nodes", "0")),
    ],
}

RETRY_ROWS: Rows = {
    "max_retries": [
        ("max_retries: 2", Sets("max_retries", 2)),
        ("max_retries: 0", Sets("max_retries", 0)),
        ("max_retries: 2147483647", Sets("max_retries", 2**31 - 1)),
        ("max_retries: '${{parent.inputs.n}}'", Sets("max_retries", 7)),
        ("max_retries: -1", Refused("retry_settings.max_retries", "from 0 to 2147483647")),
    ],
    "timeout": [
        ("timeout: 60", Sets("run_invocation_timeout_s", 60)),
        ("timeout: 1", Sets("run_invocation_timeout_s", 1)),
        ("timeout: 259200", Sets("run_invocation_timeout_s", 259_200)),
        ("timeout: '${{parent.inputs.n}}'", Sets("run_invocation_timeout_s", 7)),
        ("timeout: 0", Refused("retry_settings.timeout", SECONDS)),
        ("timeout: 259201", Refused("retry_settings.timeout", SECONDS)),
        ("timeout: soon", Refused("retry_settings.timeout", SECONDS)),
    ],
}

TASK_ROWS: Rows = {
    "type": [
        (TASK_YAML + "}", TAKEN),
        (TASK_YAML.replace("run_function", "function") + "}", TAKEN),
        (TASK_YAML.replace("run_function", "model") + "}", Refused("task.type", "run_function")),
        (TASK_YAML.replace("run_function", "command") + "}", Refused("task.type", "run_function")),
    ],
    "code": [
        (TASK_YAML.replace("./src", "src") + "}", TAKEN),
        (TASK_YAML.replace("./src", "./nowhere") + "}", Refused("task.code", "does not exist")),
        (TASK_YAML.replace("./src", "./one.csv") + "}", Refused("task.code", "is a file")),
    ],
    "entry_script": [
        (TASK_YAML + "}", Sets("entry_script", "score.py")),
        (TASK_YAML.replace("score.py", "score") + "}", Sets("entry_script", "score")),
        (TASK_YAML.replace("score.py", "../one.csv") + "}", Refused("task.entry_script", "inside")),
        (TASK_YAML.replace("score.py", "absent.py") + "}", Refused("task.entry_script", "does not exist")),
        (
            TASK_YAML.replace("./src", ".").replace("score.py", "one.csv") + "}",
            Refused("task.entry_script", "is not Python, and workers run Python scripts"),
        ),
    ],
    "program_arguments": [
        (TASK_YAML + ", program_arguments: --a b}", Sets("arguments", ("--a", "b"))),
        (TASK_YAML + ", program_arguments: ''}", Sets("arguments", ())),
        (TASK_YAML + ', program_arguments: "--a \'b"}', Refused("task.program_arguments", "quote")),
    ],
    "args": [(TASK_YAML + ", args: --a b}", Sets("arguments", ("--a", "b")))],
    "model": [(TASK_YAML + ", model: azureml:m:1}", TAKEN)],
    "append_row_to": [
        (TASK_YAML + ", append_row_to: '${{outputs.scores}}'}", Sets("append_row_to", "scores")),
        (TASK_YAML + "}", Sets("append_row_to", None)),
        (TASK_YAML + ", append_row_to: '${{outputs.other}}'}", Refused("task.append_row_to", '"other"')),
        (TASK_YAML + ", append_row_to: scores}", Refused("task.append_row_to", "${{outputs.x}}")),
    ],
    "environment": [
        (TASK_YAML + ", environment: azureml:e:1}", TAKEN),
        (TASK_YAML + ", environment: azureml:e@latest}", TAKEN),
        (
            TASK_YAML + ", environment: {name: n, version: '1', image: i, conda_file: {dependencies: [pip]}}}",
            Sets("environment", Environment(None, ("pip",))),
        ),
        (TASK_YAML + ", environment: {name: n, version: '1', image: i}}", Sets("environment", None)),
        (
            TASK_YAML + ", environment: {image: i, conda_file: ./c.yml}}",
            Refused("task.environment.conda_file", "does not exist"),
        ),
        (TASK_YAML + ", environment: [a]}", Refused("task.environment", "is a list")),
    ],
}

IMAGES = "inputs: {images: {type: uri_folder, path: ./images"
SIDE = "inputs: {images: {type: uri_folder, path: ./images}, side: {"
INPUT_ROWS: Rows = {
    "type": [
        *(
            (f"inputs: {{images: {{type: {kind}, path: {path}}}}}", TAKEN)
            for kind, path in (("uri_folder", "./images"), ("uri_file", "./one.csv"), ("mltable", "./table"))
        ),
        *(
            (SIDE + f"type: {kind}, value: {value}}}}}", TAKEN)
            for kind, value in (("string", "a"), ("integer", 3), ("number", 1.5), ("boolean", "true"))
        ),
        ("inputs: {images: {type: folder, path: ./images}}", Refused("inputs.images.type", "uri_folder, uri_file")),
        ("inputs: {images: {type: string, value: a}}", Refused("input_data", "images")),
    ],
    "path": [
        (IMAGES + "}}", TAKEN),
        ("inputs: {images: {path: ./nowhere}}", Refused("inputs.images.path", "does not exist")),
        ("inputs: {images: {type: uri_folder}}", Refused("inputs.images", "path")),
    ],
    "mode": [
        *(
            (IMAGES + f", mode: {mode}}}}}", TAKEN)
            for mode in ("mount", "ro_mount", "rw_mount", "download", "direct", "RO_MOUNT")
        ),
        *(
            (
                IMAGES.replace("uri_folder", "mltable").replace("images}", "table}").replace("./images", "./table")
                + f", mode: {mode}}}}}",
                TAKEN,
            )
            for mode in ("eval_mount", "eval_download", "direct")
        ),
        (IMAGES + ", mode: eval_mount}}", Refused("inputs.images.mode", "mltable")),
        (IMAGES + ", mode: upload}}", Refused("inputs.images.mode", "ro_mount")),
    ],
    "value": [(SIDE + "type: integer, value: 3}}", TAKEN)],
    "default": [(SIDE + "type: integer, default: 3}}", TAKEN)],
    "optional": [
        (SIDE + "type: string, optional: true}}", TAKEN),
        (SIDE + "type: string, optional: perhaps}}", Refused("inputs.side.optional", "true or false")),
    ],
    "description": [(SIDE + "type: string, value: a, description: why}}", TAKEN)],
    "enum": [(SIDE + "type: string, value: a, enum: [a, b]}}", TAKEN)],
    "min": [(SIDE + "type: integer, value: 3, min: 3}}", TAKEN)],
    "max": [(SIDE + "type: integer, value: 3, max: 3}}", TAKEN)],
    "path_on_compute": [(IMAGES + ", path_on_compute: /tmp/x}}", TAKEN)],
    "datastore": [(IMAGES + ", datastore: azureml:store}}", TAKEN)],
}

SCORES = "outputs: {scores: {type: uri_file"
OUTPUT_ROWS: Rows = {
    "type": [
        *((f"outputs: {{scores: {{type: {kind}}}}}", TAKEN) for kind in ("uri_folder", "uri_file", "mltable")),
        ("outputs:\n  scores:", TAKEN),
        ("outputs: {scores: {type: folder}}", Refused("outputs.scores.type", "uri_folder, uri_file")),
    ],
    "path": [
        (SCORES + ", path: ./rows.csv}}", TAKEN),
        (SCORES + ", path: 'azureml://datastores/${{default_datastore}}/paths/${{name}}/rows.csv'}}", TAKEN),
    ],
    "mode": [
        *((SCORES + f", mode: {mode}}}}}", TAKEN) for mode in ("rw_mount", "upload", "mount", "direct")),
        (SCORES + ", mode: ro_mount}}", Refused("outputs.scores.mode", "rw_mount")),
        (SCORES + ", mode: download}}", Refused("outputs.scores.mode", "rw_mount")),
    ],
    "description": [(SCORES + ", description: rows}}", TAKEN)],
    "make_folder": [
        (SCORES + ", make_folder: true}}", TAKEN),
        (SCORES + ", make_folder: false}}", Refused("outputs.scores.make_folder", "type uri_folder")),
    ],
    "is_control": [
        ("outputs: {scores: {type: uri_file}, more: {type: boolean, is_control: true}}", TAKEN),
        (SCORES + ", is_control: false}}", TAKEN),
        (SCORES + ", is_control: true}}", Refused("outputs.scores.is_control", "type: boolean")),
    ],
    "early_available": [(SCORES + ", early_available: true}}", TAKEN)],
    "optional": [(SCORES + ", optional: true}}", TAKEN)],
    "name": [(SCORES + ", name: asset}}", TAKEN)],
    "version": [(SCORES + ", version: '1'}}", TAKEN)],
    "path_on_compute": [(SCORES + ", path_on_compute: /tmp/x}}", TAKEN)],
}


def timeout(setting: str) -> list[tuple[str, Outcome]]:
    """Values of an argument that is a timeout."""
    bad = Refused("task.program_arguments", SECONDS)
    values = [("60", 60), ("1", 1), ("259200", 259_200), ("${{inputs.n}}", 7)]
    return [*((text, Sets(setting, value)) for text, value in values), ("0", bad), ("259201", bad), ("soon", bad)]


def words(*taken: str, bad: str, said: str) -> list[tuple[str, Outcome]]:
    """Values of an argument whose effect is tested elsewhere."""
    return [*((text, TAKEN) for text in taken), (bad, Refused("task.program_arguments", said))]


def count(setting: str) -> list[tuple[str, Outcome]]:
    """Values of an argument that is a threshold."""
    bad = Refused("task.program_arguments", INT)
    values = [("5", 5), ("-1", -1), ("2147483647", 2**31 - 1)]
    return [*((text, Sets(setting, value)) for text, value in values), ("-2", bad), ("2147483648", bad)]


ARGUMENT_ROWS: Rows = {
    "error_threshold": count("error_threshold"),
    "mini_batch_error_threshold": count("mini_batch_error_threshold"),
    "allowed_failed_count": count("mini_batch_error_threshold"),
    "allowed_failed_percent": [
        ("12.5", Sets("allowed_failed_percent", 12.5)),
        ("0", Sets("allowed_failed_percent", 0.0)),
        ("100", Sets("allowed_failed_percent", 100.0)),
        ("100.1", Refused("task.program_arguments", "from 0 to 100")),
        ("-1", Refused("task.program_arguments", "from 0 to 100")),
    ],
    "task_overhead_timeout": timeout("task_overhead_timeout_s"),
    "progress_update_timeout": timeout("progress_update_timeout_s"),
    "first_task_creation_timeout": timeout("first_task_creation_timeout_s"),
    "run_invocation_timeout": timeout("run_invocation_timeout_s"),
    "copy_logs_to_parent": words("True", "false", bad="perhaps", said="true or false"),
    "resource_monitor_interval": words("600", "0", "2147483647", bad="-1", said="from 0 to 2147483647"),
    "metrics_name_prefix": [("mine", TAKEN)],
    "push_metrics_to_parent": words("True", "false", bad="perhaps", said="true or false"),
    "append_row_dataframe_header": words("True", "false", bad="perhaps", said="true or false"),
    "profiling_module": words("cProfile", "profile", bad="yappi", said="cProfile, profile"),
    "process_count_per_node": [
        ("3", Sets("max_concurrency_per_instance", 3)),
        ("1", Sets("max_concurrency_per_instance", 1)),
        ("0", Refused("task.program_arguments", "from 1")),
    ],
    "rank_mini_batch_count": [("0", TAKEN), ("-3", TAKEN), ("x", Refused("task.program_arguments", "a whole number"))],
    "run_max_try": [
        ("1", Sets("max_retries", 0)),
        ("3", Sets("max_retries", 2)),
        ("0", Refused("task.program_arguments", "from 1")),
    ],
    "mini_batch_size": [
        ("5", Sets("mini_batch_size", 5)),
        ("2mb", Sets("mini_batch_size", 2 << 20)),
        ("2tb", Refused("task.program_arguments", "kb, mb or gb")),
    ],
    "logging_level": [
        ("debug", Sets("logging_level", "DEBUG")),
        ("LOUD", Refused("task.program_arguments", "WARNING, INFO, DEBUG")),
    ],
    "append_row_file_name": words("rows.csv", bad="a/b", said="without a folder"),
}


def inside(key: str, rows: Rows) -> Rows:
    """Rows of a mapping below a key of the step."""
    return {name: [(f"{key}: {{{text}}}", outcome) for text, outcome in cases] for name, cases in rows.items()}


def argument(name: str, value: str) -> str:
    """A task with one runtime argument."""
    return (
        "inputs: {images: {path: ./images}, n: 7}\n"
        f'{TASK_YAML}, append_row_to: "${{{{outputs.scores}}}}", program_arguments: "--{name} {value}"}}'
    )


TABLES: dict[str, tuple[Rows, set[str]]] = {
    "step": (STEP_ROWS, set(STEP) - {"$schema", "services", "limits"}),
    "resources": (inside("resources", RESOURCE_ROWS), set(RESOURCES)),
    "retry_settings": (inside("retry_settings", RETRY_ROWS), set(RETRY_SETTINGS)),
    "task": (TASK_ROWS, set(TASK)),
    "input": (INPUT_ROWS, set(INPUT)),
    "output": (OUTPUT_ROWS, set(OUTPUT)),
    "argument": (
        {name: [(argument(name, text), outcome) for text, outcome in cases] for name, cases in ARGUMENT_ROWS.items()},
        set(RUNTIME_ARGUMENTS),
    ),
}
