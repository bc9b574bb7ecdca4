"""The pipeline of the Python API's tests, and its YAML twin."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from windrow.ml import Input, Output
from windrow.ml.constants import AssetTypes, InputOutputModes
from windrow.ml.dsl import pipeline
from windrow.ml.jobs.pipeline_job import PipelineJob
from windrow.ml.jobs.step import Step
from windrow.ml.parallel import RunFunction, parallel_run_function
from windrow.spec import LoadedJob
from windrow.spec import load_job as load_job_file


def scorer(**more: Any) -> Step:
    settings: dict[str, Any] = {
        "name": "score",
        "inputs": {
            "files": Input(type=AssetTypes.URI_FOLDER, mode=InputOutputModes.RO_MOUNT),
            "model": Input(type="uri_file"),
            "factor": Input(type="integer", default=3),
        },
        "outputs": {"rows": Output(type=AssetTypes.URI_FILE)},
        "input_data": "${{inputs.files}}",
        "mini_batch_size": 1,
        "task": RunFunction(
            code="./src",
            entry_script="score.py",
            program_arguments="--model ${{inputs.model}} --factor ${{inputs.factor}}",
            append_row_to="${{outputs.rows}}",
        ),
    }
    return parallel_run_function(**{**settings, **more})


def upper(**more: Any) -> Step:
    return parallel_run_function(
        name="upper",
        inputs={"lines": Input(type="uri_folder")},
        outputs={"out": Output(type="uri_file")},
        input_data="${{inputs.lines}}",
        task=RunFunction(code="./src", entry_script="upper.py", append_row_to="${{outputs.out}}"),
        **more,
    )


@pipeline(description="two steps")
def two(data: Any, model: Any, factor: int = 5) -> dict[str, Any]:
    first = scorer()(files=data, model=model, factor=factor)
    second = upper()(lines=first.outputs.rows)
    return {"upper": second.outputs.out, "rows": first.outputs.rows}


def two_steps() -> PipelineJob:
    job: PipelineJob = two(data=Input(path="./files"), model=Input(path="model.txt", type="uri_file"))
    return job


TWIN = """\
type: pipeline
description: two steps
inputs:
  data: {type: uri_folder, path: ./files}
  model: {type: uri_file, path: ./model.txt}
  factor: {type: integer, value: 5}
outputs:
  upper: {type: uri_file}
  rows: {type: uri_file}
jobs:
  score:
    type: parallel
    inputs:
      files: {type: uri_folder, mode: ro_mount, path: "${{parent.inputs.data}}"}
      model: {type: uri_file, path: "${{parent.inputs.model}}"}
      factor: ${{parent.inputs.factor}}
    outputs:
      rows: ${{parent.outputs.rows}}
    input_data: ${{inputs.files}}
    mini_batch_size: 1
    task:
      type: run_function
      code: ./src
      entry_script: score.py
      program_arguments: --model ${{inputs.model}} --factor ${{inputs.factor}}
      append_row_to: ${{outputs.rows}}
  upper:
    type: parallel
    inputs:
      lines: {type: uri_folder, path: "${{parent.jobs.score.outputs.rows}}"}
    outputs:
      out: ${{parent.outputs.upper}}
    input_data: ${{inputs.lines}}
    task: {type: run_function, code: ./src, entry_script: upper.py, append_row_to: "${{outputs.out}}"}
"""


def from_yaml(folder: Path, text: str) -> LoadedJob:
    path = folder / "twin.yml"
    path.write_text(textwrap.dedent(text))
    return load_job_file(path)


def digest(loaded: LoadedJob) -> str:
    return loaded.job.run_digest
