"""Cells as in notebooks of Azure ML. `API` stands for azure.ai.ml, or for windrow.ml; `job` is what they build."""

from __future__ import annotations

IMPORTS = """\
from API import Input, Output, command, load_component
from API.constants import AssetTypes, InputOutputModes
from API.dsl import pipeline
from API.entities import Environment, ResourceConfiguration, RetrySettings
from API.parallel import RunFunction, parallel_run_function

environment = Environment(image="mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu20.04", conda_file="./src/conda.yml")
"""

FILES_AND_COMMAND = """\
prepare = command(
    name="prepare",
    code="./src",
    command="python prepare.py --data ${{inputs.data}} --out ${{outputs.out}} $[[--limit ${{inputs.limit}}]]",
    inputs={"data": Input(type=AssetTypes.URI_FOLDER), "limit": Input(type="integer", optional=True)},
    outputs={"out": Output(type=AssetTypes.URI_FOLDER)},
    environment=environment,
)
score = parallel_run_function(
    name="score",
    display_name="Score images",
    inputs=dict(
        images=Input(type=AssetTypes.URI_FOLDER, mode=InputOutputModes.RO_MOUNT),
        model=Input(type=AssetTypes.URI_FILE),
        factor=Input(type="number", default=0.5),
    ),
    outputs=dict(rows=Output(type=AssetTypes.URI_FILE)),
    input_data="${{inputs.images}}",
    mini_batch_size="3",
    instance_count=2,
    max_concurrency_per_instance=2,
    error_threshold=4,
    mini_batch_error_threshold=-1,
    retry_settings=dict(max_retries=2, timeout=30),
    logging_level="DEBUG",
    environment_variables={"MODE": "fast"},
    task=RunFunction(
        code="./src",
        entry_script="score.py",
        program_arguments="--model ${{inputs.model}} --factor ${{inputs.factor}} --error_threshold 5",
        append_row_to="${{outputs.rows}}",
        environment=environment,
    ),
)


@pipeline(default_compute="cpu-cluster", description="files and a command")
def build(data, model, factor=2.5):
    made = prepare(data=data)
    scored = score(images=made.outputs.out, model=model, factor=factor)
    scored.mini_batch_size = "1"
    scored.retry_settings.timeout = 9
    return {"rows": scored.outputs.rows, "made": made.outputs.out}


job = build(data=Input(path="./files", type="uri_folder"), model=Input(path="./model.txt", type="uri_file"))
job.outputs.rows.mode = "upload"
job.outputs.made.path = "azureml://datastores/workspaceblobstore/paths/made/${{name}}/"
job.settings.continue_on_step_failure = True
"""

TABLE_BY_KEYS = """\
count = parallel_run_function(
    name="count",
    inputs=dict(rows=Input(type=AssetTypes.MLTABLE, mode=InputOutputModes.EVAL_MOUNT)),
    outputs=dict(sums=Output(type=AssetTypes.URI_FOLDER)),
    input_data="${{inputs.rows}}",
    partition_keys=["x"],
    error_threshold=5,
    retry_settings=RetrySettings(max_retries=1, timeout=20),
    is_deterministic=False,
    task=RunFunction(
        code="./src",
        entry_script="upper.py",
        append_row_to="${{outputs.sums}}",
        environment=environment,
    ),
)


@pipeline()
def build(rows):
    count(rows=rows)


job = build(rows=Input(path="./table", type="mltable"))
job.settings.force_rerun = False
"""

COMPONENT_FILES = """\
upper = load_component(source="./upper.yml")
train = load_component(source="./train.yml")


@pipeline(display_name="inner")
def inner(lines, size):
    first = upper(lines=lines)
    second = upper(lines=first.outputs.out)
    second.resources = ResourceConfiguration(instance_count=3)
    return {"last": second.outputs.out}


@pipeline()
def build(data, rounds=3):
    made = inner(lines=data, size=4)
    trained = train(data=made.outputs.last, rounds=rounds)
    return {"model": trained.outputs.model}


job = build(data=Input(path="./files", type="uri_folder"), rounds=7)
"""

NOTEBOOKS = {"files and command": FILES_AND_COMMAND, "table by keys": TABLE_BY_KEYS, "component files": COMPONENT_FILES}

FILES = {
    "files/a.txt": "a",
    "files/b.txt": "b",
    "model.txt": "m1",
    "table/MLTable": "paths: [{file: ./data.csv}]\ntransformations: [read_delimited]\n",
    "table/data.csv": "x,y\n1,2\n3,4\n",
    "src/conda.yml": "dependencies: [pip, {pip: [numpy]}]\n",
    "src/prepare.py": "print()\n",
    "src/train.py": "print()\n",
    "src/score.py": "def run(mini_batch):\n    return mini_batch\n",
    "src/upper.py": "def run(mini_batch):\n    return [str(mini_batch)]\n",
    "upper.yml": """\
$schema: https://azuremlschemas.azureedge.net/latest/parallelComponent.schema.json
type: parallel
name: make_upper
version: 1
display_name: Upper
is_deterministic: true
inputs: {lines: {type: uri_folder}}
outputs: {out: {type: uri_folder}}
input_data: ${{inputs.lines}}
mini_batch_size: "2"
resources: {instance_count: 1}
max_concurrency_per_instance: 2
error_threshold: -1
retry_settings: {max_retries: 3, timeout: 45}
task:
  type: run_function
  code: ./src
  entry_script: upper.py
  append_row_to: ${{outputs.out}}
  environment: {image: mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu20.04, conda_file: ./src/conda.yml}
""",
    "train.yml": """\
$schema: https://azuremlschemas.azureedge.net/latest/commandComponent.schema.json
type: command
name: train
version: 1
inputs: {data: {type: uri_folder}, rounds: {type: integer, default: 5}}
outputs: {model: {type: uri_folder}}
code: ./src
command: python train.py --data ${{inputs.data}} --rounds ${{inputs.rounds}} --model ${{outputs.model}}
environment: {image: mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu20.04, conda_file: ./src/conda.yml}
""",
}
