"""The JSON Schema of job files. That it takes what the reader takes, each test of a job file checks (`job_schema`)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from job_schema import schema_errors, validator

ROOT = Path(__file__).resolve().parents[2]
JOB = """\
type: pipeline
inputs:
  size: 10
jobs:
  score:
    type: parallel
    inputs:
      images: {type: uri_folder, path: ./images}
    outputs:
      scores: {type: uri_file}
    input_data: ${{inputs.images}}
    mini_batch_size: ${{parent.inputs.size}}
    error_threshold: "5"
    logging_level: debug
    retry_settings: {timeout: 60}
    task:
      type: run_function
      code: ./src
      entry_script: score.py
      append_row_to: ${{outputs.scores}}
"""


def test_the_command_prints_it() -> None:
    windrow = Path(sys.executable).with_name("windrow")
    printed = subprocess.run([windrow, "schema"], capture_output=True, text=True, check=True).stdout
    assert json.loads(printed) == validator().schema


@pytest.mark.parametrize("file", sorted((ROOT / "examples").glob("*/job.yml")), ids=lambda file: file.parent.name)
def test_it_takes_the_examples(file: Path) -> None:
    assert schema_errors(file) == []


def test_it_takes_spellings_that_the_reader_takes(tmp_path: Path) -> None:
    file = tmp_path / "job.yml"
    file.write_text(JOB)
    assert schema_errors(file) == []


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("type: pipeline", "kind: pipeline"),
        ("mini_batch_size: ${{parent.inputs.size}}", "mini_batch_size: 10 kb"),
        ("mini_batch_size", "minibatch_size"),
        ('error_threshold: "5"', "error_threshold: -2"),
        ('error_threshold: "5"', "error_threshold: many"),
        ("logging_level: debug", "logging_level: error"),
        ("timeout: 60", "timeout: 0"),
        ("timeout: 60", "timeout: 259201"),
        ("timeout: 60", "time_out: 60"),
        ("type: parallel", "type: sweep"),
        ("type: uri_folder", "type: folder"),
        ("entry_script: score.py", "entry_script: [score.py]"),
    ],
)
def test_it_refuses_what_an_editor_should_mark(tmp_path: Path, right: str, wrong: str) -> None:
    assert right in JOB
    file = tmp_path / "job.yml"
    file.write_text(JOB.replace(right, wrong, 1))
    assert len(schema_errors(file)) >= 1
