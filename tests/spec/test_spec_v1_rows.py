"""Every key of v1's tables, with values, edges, and values beyond them.

Reference: docs/reference/azure-ml/parallel-job.md#version-1. What both spellings come to is compared in
test_spec_v1.py.
"""

from __future__ import annotations

import pytest
from spec_workspace import Workspace
from windrow.spec import JobFileError, load_job
from windrow.spec.v1.schema import (
    DATA_REFERENCE,
    INPUT,
    OUTPUT,
    PARALLEL_STEP,
    PIPELINE,
    RESERVED_ARGUMENTS,
    RUN_CONFIG,
    SCRIPT_STEP,
)

TAKEN = ""
Case = tuple[str, str]
"""A key with its value, and what the error of that key says (empty: it is taken)."""
Rows = dict[str, list[Case]]

INT = "from -1 to 2147483647"
COUNT = "from 1 to 2147483647"

CONFIG_ROWS: Rows = {
    "environment": [
        ("environment: {name: e, docker: {baseImage: i}}", TAKEN),
        ("environment: azureml:known:1", TAKEN),
        ("environment: ./env.yml", TAKEN),
        ("environment: ./absent.yml", "does not exist"),
        ("environment: ./src", "is a folder"),
        ("environment: [a]", "a list"),
        ("environment:", TAKEN),
    ],
    "environment_name": [("environment_name: known", TAKEN)],
    "environment_dir_path": [
        ("environment_dir_path: envdir", TAKEN),
        ("environment_dir_path: absent", "does not exist"),
    ],
    "entry_script": [
        ("entry_script: score.py", TAKEN),
        ("entry_script: absent.py", "does not exist"),
        ("entry_script:", "is missing"),
        ("entry_script: ../one.csv", "inside the code folder"),
    ],
    "source_directory": [
        ("source_directory: src", TAKEN),
        ("source_directory: absent", "does not exist"),
        ("source_directory: one.csv", "is a file"),
    ],
    "error_threshold": [
        ("error_threshold: -1", TAKEN),
        ("error_threshold: 0", TAKEN),
        ("error_threshold: 2147483647", TAKEN),
        ("error_threshold: -2", INT),
        ("error_threshold: 2147483648", INT),
        ("error_threshold: some", INT),
        ("error_threshold: 1.5", INT),
        ("error_threshold:", "is missing"),
    ],
    "allowed_failed_count": [
        ("allowed_failed_count: -1", TAKEN),
        ("allowed_failed_count: 2147483647", TAKEN),
        ("allowed_failed_count: -2", INT),
        ("allowed_failed_count: 0.5", INT),
    ],
    "allowed_failed_percent": [
        ("allowed_failed_percent: 0", TAKEN),
        ("allowed_failed_percent: 100", TAKEN),
        ("allowed_failed_percent: 12.5", TAKEN),
        ("allowed_failed_percent: 100.1", "from 0 to 100"),
        ("allowed_failed_percent: -1", "from 0 to 100"),
    ],
    "output_action": [
        ("output_action: append_row", TAKEN),
        ("output_action: Summary_Only", TAKEN),
        ("output_action: append", "one of append_row, summary_only"),
        ("output_action:", "is missing"),
    ],
    "append_row_file_name": [
        ("append_row_file_name: rows.csv", TAKEN),
        *((f"append_row_file_name: 'a{char}b'", "without any of") for char in '~"#%&*:<>?/\\{|}'),
    ],
    "compute_target_name": [("compute_target_name: cpu", TAKEN), ("compute_target_name: [a]", "it must be text")],
    "compute_target": [("compute_target: cpu", TAKEN)],
    "node_count": [
        ("node_count: 1", TAKEN),
        ("node_count: 0", COUNT),
        ("node_count: -1", COUNT),
        ("node_count: two", COUNT),
    ],
    "process_count_per_node": [("process_count_per_node: 1", TAKEN), ("process_count_per_node: 0", COUNT)],
    "mini_batch_size": [
        ("mini_batch_size: 5", TAKEN),
        ("mini_batch_size: '5'", TAKEN),
        ("mini_batch_size: 10 kb", "optionally followed directly by kb"),
        ("mini_batch_size: 10kbmb", "optionally followed directly by kb"),
        ("mini_batch_size: -5", "optionally followed directly by kb"),
    ],
    "partition_keys": [
        ("partition_keys: []", TAKEN),
        ("partition_keys: [a, b]\n  mini_batch_size: 5", "cannot be combined with mini_batch_size"),
        ("partition_keys: [a, a]", "more than once"),
        ("partition_keys: a", "a list of text"),
        ("partition_keys: [[a]]", "a list of text"),
    ],
    "run_invocation_timeout": [
        ("run_invocation_timeout: 1", TAKEN),
        ("run_invocation_timeout: 259200", TAKEN),
        ("run_invocation_timeout: 0", "from 1 to 259200"),
        ("run_invocation_timeout: 259201", "from 1 to 259200"),
    ],
    "run_max_try": [("run_max_try: 1", TAKEN), ("run_max_try: 0", COUNT), ("run_max_try: 1.5", COUNT)],
    "logging_level": [
        ("logging_level: WARNING", TAKEN),
        ("logging_level: info", TAKEN),
        ("logging_level: ERROR", "WARNING, INFO, DEBUG"),
    ],
    "environment_variables": [
        ("environment_variables: {A: b, N: 1}", TAKEN),
        ("environment_variables: A=b", "a mapping"),
    ],
    "description": [("description: what for", TAKEN)],
}

STEP_ROWS: Rows = {
    "type": [
        ("type: ParallelRunStep", TAKEN),
        ("type: parallelrunstep", TAKEN),
        ("type: ParalelRunStep", 'Did you mean "ParallelRunStep"?'),
        ("type: DatabricksStep", "does not support"),
        ("type:", "is missing"),
    ],
    "name": [
        ("name: abc", TAKEN),
        ("name: " + "a" * 32, TAKEN),
        ("name: ScoreParallel", TAKEN),
    ],
    "description": [("description: what for", TAKEN)],
    "comment": [("comment: any", TAKEN)],
    "arguments": [
        ("arguments: []", TAKEN),
        ("arguments: [--a, b]", TAKEN),
        ("arguments: --a b", "a list of arguments"),
        ("arguments: [--a, 'parameter:nothing']", 'no parameter "nothing"'),
        ("arguments: [--a, 'side_input:nothing']", 'no side input "nothing"'),
        ("arguments: [--a, 'input:nothing']", 'no input "nothing"'),
        ("arguments: [--a, 'output:nothing']", 'no output "nothing"'),
        ("arguments: [--a, [b]]", "text or a number"),
        ("arguments: [a]", "first has to start with -"),
        *((f"arguments: [--{name}, 1]", "reserved argument") for name in RESERVED_ARGUMENTS),
        *((f"arguments: [--a, --{name}=1]", "reserved argument") for name in RESERVED_ARGUMENTS),
    ],
    "parameters": [
        ("parameters: {n: 3, s: {source: seconds}}", TAKEN),
        ("parameters: {s: {source: second}}", 'Did you mean "seconds"?'),
        ("parameters: {s: [1]}", "source: <parameter>"),
        ("parameters: 3", "a mapping"),
    ],
    "inputs": [
        ("inputs: {images: {source: pictures}}", TAKEN),
        ("inputs: {images: pictures}", TAKEN),
        ("inputs: {images: {source: nothing}}", "Available: pictures, seconds, rows"),
        ("inputs: {images: {}}", "is missing"),
        ("inputs: {images: }", "is empty"),
        ("inputs: {}", "--rank_mini_batch_count"),
        ("inputs: {}\n      arguments: [--rank_mini_batch_count, 3]", TAKEN),
    ],
    "side_inputs": [
        ("side_inputs: {m: {source: pictures, bind_mode: mount}}", TAKEN),
        ("side_inputs: {images: pictures}", "name of another input"),
        ("side_inputs: {m: nothing}", "Available"),
    ],
    "outputs": [
        ("outputs: {scores: {destination: rows}}", TAKEN),
        ("outputs: {scores: }", TAKEN),
        ("outputs: {scores: rows}", TAKEN),
        ("outputs: {}", "append_row needs an output"),
        ("outputs: {a: {destination: pictures}}", "already names something else"),
        ("outputs: {a: x, b: x}", "already names something else"),
    ],
    "allow_reuse": [("allow_reuse: false", TAKEN), ("allow_reuse: perhaps", "true or false")],
    "parallel_run_config": [
        ("parallel_run_config: config.yml", TAKEN),
        ("parallel_run_config: absent.yml", "does not exist"),
        ("parallel_run_config: src", "is a folder"),
        ("parallel_run_config:", "is missing"),
    ],
    "source_directory": [("source_directory: src", TAKEN)],
    "script_name": [("script_name: score.py", TAKEN)],
    "compute": [("compute: cpu", TAKEN)],
    "compute_target": [("compute_target: cpu", TAKEN)],
}

INPUT_ROWS: Rows = {
    "source": [("source: pictures", TAKEN)],
    "bind_mode": [
        *((f"source: pictures, bind_mode: {mode}", TAKEN) for mode in ("mount", "download", "direct", "Mount")),
        ("source: pictures, bind_mode: upload", "one of mount, download, direct"),
    ],
    "as_table": [("source: pictures, as_table: false", TAKEN), ("source: pictures, as_table: maybe", "true or false")],
    "type": [("source: pictures, type: mltable", TAKEN)],
    "path_on_compute": [("source: pictures, path_on_compute: x", TAKEN)],
    "overwrite": [("source: pictures, overwrite: true", TAKEN)],
}

OUTPUT_ROWS: Rows = {
    "destination": [("destination: rows", TAKEN), ("destination: [a]", "it must be text")],
    "datastore": [("datastore: workspaceblobstore", TAKEN)],
    "path_on_datastore": [("path_on_datastore: a/b", TAKEN)],
    "path": [("path: ./out", TAKEN)],
    "bind_mode": [
        ("bind_mode: mount", TAKEN),
        ("bind_mode: upload", TAKEN),
        ("bind_mode: download", "one of mount, upload"),
    ],
    "register_as": [("register_as: scores", TAKEN), ("register_as: a b", "letters, digits, _, . and -")],
    "type": [("type: uri_folder", TAKEN)],
    "path_on_compute": [("path_on_compute: x", TAKEN)],
    "overwrite": [("overwrite: true", TAKEN)],
    "is_directory": [("is_directory: true", TAKEN)],
    "make_folder": [("make_folder: true", TAKEN)],
}

REFERENCE_ROWS: Rows = {
    "path": [("path: ./images", TAKEN), ("path: ./absent", "does not exist"), ("type: uri_folder", "names no data")],
    "type": [("path: ./images, type: uri_folder", TAKEN), ("path: ./images, type: folder", "uri_folder, uri_file")],
    "bind_mode": [("path: ./images, bind_mode: download", TAKEN), ("path: ./images, bind_mode: hdfs", "one of mount")],
    "dataset_name": [("path: ./images, dataset_name: d", "gives path and dataset_name")],
    "dataset_version": [("path: ./images, dataset_version: 3", TAKEN)],
    "dataset_id": [("path: ./images, dataset_id: x", TAKEN)],
    "datastore": [("datastore: lake, path_on_datastore: a", "does not have")],
    "path_on_datastore": [("path_on_datastore: a", "names no data")],
    "data_reference_name": [("path: ./images, data_reference_name: x", TAKEN)],
    "path_on_compute": [("path: ./images, path_on_compute: x", TAKEN)],
    "overwrite": [("path: ./images, overwrite: true", TAKEN)],
}

PARAMETER_ROWS: list[Case] = [
    ("{type: int, default: 3}", TAKEN),
    ("{type: float, default: 1.5}", TAKEN),
    ("{type: string, default: a}", TAKEN),
    ("{type: bool, default: true}", TAKEN),
    ("{type: dataPath, default: {path: ./images}}", TAKEN),
    ("7", TAKEN),
    ("{type: int}", "is missing"),
    ("{type: list, default: 3}", "one of int"),
]

PIPELINE_ROWS: Rows = {
    "name": [("name: Two words", TAKEN)],
    "description": [("description: what for", TAKEN)],
    "default_compute": [("default_compute: cpu", TAKEN), ("default_compute: {a: b}", "it must be text")],
    "data_references": [("data_references: 3", "a mapping")],
    "parameters": [("parameters: 3", "a mapping")],
    "steps": [("steps: {}", "it has to hold steps"), ("steps:", "is missing"), ("steps: {Score: 3}", "with a type")],
}

CONFIG = {
    "entry_script": "entry_script: score.py",
    "source_directory": "source_directory: src",
    "error_threshold": "error_threshold: 10",
    "output_action": "output_action: append_row",
}
STEP = {
    "type": "type: ParallelRunStep",
    "parallel_run_config": "parallel_run_config: config.yml",
    "inputs": "inputs: {images: {source: pictures}}",
    "outputs": "outputs: {scores: {destination: rows}}",
}
PIPELINE_TEXT = {
    "data_references": "data_references: {pictures: {path: ./images}}",
    "parameters": "parameters: {seconds: {type: int, default: 600}}",
    "steps": "",
}


def load(workspace: Workspace, config: dict[str, str], step: dict[str, str], pipeline: dict[str, str]) -> None:
    workspace.write("env.yml", "name: e\n")
    workspace.write("envdir/azureml_environment.json", '{"name": "e"}')
    workspace.write("config.yml", "parallel_run_config:\n" + "".join(f"  {line}\n" for line in config.values()))
    steps = "steps:\n    Score:\n" + "".join(f"      {line}\n" for line in step.values())
    lines = {"steps": steps, **{key: line for key, line in pipeline.items() if line}}
    load_job(workspace.write("v1.yml", "pipeline:\n" + "".join(f"  {line}\n" for line in lines.values())))


def cases(rows: Rows) -> list[object]:
    return [
        pytest.param(name, text, words, id=f"{name}-{number}")
        for name, those in rows.items()
        for number, (text, words) in enumerate(those)
    ]


def check(
    workspace: Workspace, key: str, words: str, config: dict[str, str], step: dict[str, str], pipeline: dict[str, str]
) -> None:
    """The file is taken, or has an error at the key (or below it) that says these words; and no other one."""
    if not words:
        load(workspace, config, step, pipeline)
        return
    with pytest.raises(JobFileError) as caught:
        load(workspace, config, step, pipeline)
    (problem,) = caught.value.problems
    assert problem.key.startswith(key)
    assert words in problem.message
    assert problem.line > 0


@pytest.mark.parametrize(("name", "text", "words"), cases(CONFIG_ROWS))
def test_a_key_of_the_config(workspace: Workspace, name: str, text: str, words: str) -> None:
    check(workspace, f"parallel_run_config.{name}", words, {**CONFIG, name: text}, STEP, PIPELINE_TEXT)


@pytest.mark.parametrize(("name", "text", "words"), cases(STEP_ROWS))
def test_a_key_of_a_step(workspace: Workspace, name: str, text: str, words: str) -> None:
    check(workspace, f"pipeline.steps.Score.{name}", words, CONFIG, {**STEP, name: text}, PIPELINE_TEXT)


@pytest.mark.parametrize(("name", "text", "words"), cases(INPUT_ROWS))
def test_a_key_of_an_input(workspace: Workspace, name: str, text: str, words: str) -> None:
    step = {**STEP, "inputs": f"inputs: {{images: {{{text}}}}}"}
    check(workspace, f"pipeline.steps.Score.inputs.images.{name}", words, CONFIG, step, PIPELINE_TEXT)


@pytest.mark.parametrize(("name", "text", "words"), cases(OUTPUT_ROWS))
def test_a_key_of_an_output(workspace: Workspace, name: str, text: str, words: str) -> None:
    step = {**STEP, "outputs": f"outputs: {{scores: {{{text}}}}}"}
    check(workspace, f"pipeline.steps.Score.outputs.scores.{name}", words, CONFIG, step, PIPELINE_TEXT)


@pytest.mark.parametrize(("name", "text", "words"), cases(REFERENCE_ROWS))
def test_a_key_of_a_data_reference(workspace: Workspace, name: str, text: str, words: str) -> None:
    pipeline = {**PIPELINE_TEXT, "data_references": f"data_references: {{pictures: {{{text}}}}}"}
    check(workspace, "pipeline.data_references.pictures", words, CONFIG, STEP, pipeline)


@pytest.mark.parametrize(("text", "words"), PARAMETER_ROWS)
def test_a_parameter_of_the_pipeline(workspace: Workspace, text: str, words: str) -> None:
    pipeline = {**PIPELINE_TEXT, "parameters": f"parameters: {{seconds: {text}}}"}
    check(workspace, "pipeline.parameters.seconds", words, CONFIG, STEP, pipeline)


@pytest.mark.parametrize(("name", "text", "words"), cases(PIPELINE_ROWS))
def test_a_key_of_the_pipeline(workspace: Workspace, name: str, text: str, words: str) -> None:
    step = STEP if name != "data_references" else {**STEP, "inputs": "inputs: {images: seconds}"}
    with_key = {**PIPELINE_TEXT, name: text}
    if not words:
        load(workspace, CONFIG, step, with_key)
        return
    with pytest.raises(JobFileError) as caught:
        load(workspace, CONFIG, step, with_key)
    (problem,) = [one for one in caught.value.problems if one.key.startswith(f"pipeline.{name}")]
    assert words in problem.message


TABLES = {
    "config": (CONFIG_ROWS, RUN_CONFIG),
    "step": (STEP_ROWS, PARALLEL_STEP),
    "input": (INPUT_ROWS, INPUT),
    "output": (OUTPUT_ROWS, OUTPUT),
    "reference": (REFERENCE_ROWS, DATA_REFERENCE),
    "pipeline": (PIPELINE_ROWS, PIPELINE),
}


@pytest.mark.parametrize("table", TABLES)
def test_no_key_is_without_a_row(table: str) -> None:
    rows, known = TABLES[table]
    assert set(rows) == set(known)


def test_keys_of_a_script_step_are_those_of_a_parallel_one_or_its_own() -> None:
    assert set(SCRIPT_STEP) - set(PARALLEL_STEP) == {"environment", "runconfig", "runconfig_parameters"}
