"""A table scored by a model, as in the public samples with iris data: every spelling here stands in one of them."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

import pytest
from compatibility_job import CompatibilityJob, output_of

IRIS = """
    $schema: https://azuremlschemas.azureedge.net/latest/pipelineJob.schema.json
    type: pipeline

    display_name: flowers-scored-in-parallel
    description: Scores a table with an inline parallel step
    experiment_name: hello-world-parallel-job
    tags:
      tag: tagvalue
      owner: sdkteam

    settings:
      default_compute: azureml:cpu-cluster

    jobs:
      batch_prediction:
        type: parallel
        compute: azureml:cpu-cluster
        inputs:
          input_data:
            type: mltable
            path: ./flowers-mltable
            mode: direct
          score_model:
            type: uri_folder
            path: ./flowers-model
            mode: download
        outputs:
          job_output_file:
            type: uri_file
            {place}
            mode: rw_mount

        input_data: ${{{{inputs.input_data}}}}
        mini_batch_size: "10kb"
        resources:
            instance_count: 2
        max_concurrency_per_instance: 2

        logging_level: "DEBUG"
        mini_batch_error_threshold: 5
        retry_settings:
          max_retries: 2
          timeout: 60

        environment_variables:
          "AZUREML_PARALLEL_EXAMPLE": "2a_yaml"

        task:
          type: run_function
          code: "./script"
          entry_script: flowers_prediction.py
          environment:
            name: "prs-env"
            version: 1
            image: mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu20.04
            conda_file: ./environment/environment_parallel.yml
          program_arguments: >-
            --model ${{{{inputs.score_model}}}}
            --error_threshold 5
            --allowed_failed_percent 30
            --task_overhead_timeout 1200
            --progress_update_timeout 600
            --first_task_creation_timeout 600
            --copy_logs_to_parent True
            --resource_monitor_interva 20
            {arguments}
          append_row_to: ${{{{outputs.job_output_file}}}}
"""

IRIS_SCRIPT = """
    import argparse
    import json
    import os

    import numpy


    def init():
        print("Environment variables start ****")
        for key, val in os.environ.items():
            print(key, val)
        print("Environment variables end ****")

        parser = argparse.ArgumentParser(allow_abbrev=False, description="ParallelRunStep Agent")
        parser.add_argument("--model", type=str, default=0)
        args, _ = parser.parse_known_args()

        global limit
        with open(os.path.join(args.model, "limit.json")) as file:
            limit = json.load(file)


    def run(input_data):
        num_rows, num_cols = input_data.shape
        assert num_cols == 44, num_cols
        pred = numpy.where(input_data.iloc[:, 2] > limit, "long", "short").reshape((num_rows, 1))

        result = input_data.drop(input_data.columns[4:], axis=1)
        result["variety"] = pred[:, 0]
        return result
"""

LIMIT = 2.5


def flower_lines() -> list[list[float]]:
    """75 lines of 44 numbers, all of the first line different: they become the names of the columns."""
    return [[(line * 44 + column) % 97 / 16 + column for column in range(44)] for line in range(75)]


def write_iris(job: CompatibilityJob, *, place: str, arguments: str = "") -> Path:
    job.write("pipeline.yml", IRIS.format(place=place, arguments=arguments))
    job.write("script/flowers_prediction.py", IRIS_SCRIPT)
    job.write("environment/environment_parallel.yml", "dependencies: [python=3.10, pip, {pip: [pandas]}]\n")
    job.write("flowers-model/limit.json", str(LIMIT))
    table = job.write(
        "flowers-mltable/flowers.csv",
        "".join(",".join(f"{value:.18e}" for value in line) + "\n" for line in flower_lines()),
    )
    job.write(
        "flowers-mltable/MLTable",
        """
        paths:
          - file: ./flowers.csv
        transformations:
          - read_delimited:
              delimiter: ","
              encoding: utf8
              header: all_files_same_headers
        """,
    )
    return table


def mini_batches_of(table: Path) -> int:
    """Slices of 10 KiB in which a line begins that is not the first one, by the rule of
    docs/reference/azure-ml/mltable.md#partitions."""
    lines = table.read_bytes().splitlines(keepends=True)
    offsets = list(accumulate(map(len, lines[:-1])))
    return len({-(-offset // 10240) - 1 for offset in offsets})


def expected_flowers() -> str:
    """A blank between values, no header; the first line of the file is taken for one
    (docs/reference/azure-ml/mltable.md#the-mltable-file)."""
    return "".join(
        " ".join(map(repr, line[:4])) + (" long\n" if line[2] > LIMIT else " short\n") for line in flower_lines()[1:]
    )


@pytest.mark.parametrize(
    ("place", "arguments", "file"),
    [
        (
            "path: azureml://datastores/${{default_datastore}}/paths/${{name}}/aggregated_returns.csv",
            "",
            "aggregated_returns.csv",
        ),
        ("path: azureml://datastores/workspaceblobstore/paths/${{name}}/returns.csv", "", "returns.csv"),
        ("", "", "parallel_run_step.txt"),
        ("", "--append_row_file_name predictions.txt", "predictions.txt"),
    ],
)
def test_a_table_is_scored_as_in_the_iris_sample(job: CompatibilityJob, place: str, arguments: str, file: str) -> None:
    table = write_iris(job, place=place, arguments=arguments)
    printed = job.completed(file="pipeline.yml")

    assert output_of(printed).name == file
    assert output_of(printed).read_text() == expected_flowers()
    assert job.counters()["items_ok"] == 74
    assert job.counters()["planned"] == mini_batches_of(table)
    told = [line for line in printed.splitlines() if line.startswith("note: ")]
    assert any("jobs.batch_prediction.task.environment" in line and "no effect" in line for line in told), told


def test_the_sample_s_script_prints_into_the_documented_log(job: CompatibilityJob) -> None:
    write_iris(job, place="")
    job.completed(file="pipeline.yml")
    logs = sorted(job.state.glob("jobs/*/logs/*/user/stdout/*/process*.stdout.txt"))
    assert logs
    text = logs[0].read_text()
    assert "Environment variables start ****" in text
    assert "AZUREML_PARALLEL_EXAMPLE 2a_yaml" in text
    for name in ("AZUREML_RUN_ID ", "AZUREML_CR_NODE_RANK ", "HostName ", "AZUREML_BI_OUTPUT_PATH "):
        assert f"\n{name}" in text


def test_thresholds_of_the_sample_fail_the_job_when_passed(job: CompatibilityJob) -> None:
    write_iris(job, place="")
    job.write("script/flowers_prediction.py", "def run(data):\n    raise ValueError('no model today')\n")
    code, text = job.run("--set", "jobs.batch_prediction.retry_settings.max_retries=0", file="pipeline.yml")
    assert code == 1
    assert "error_threshold" in text
    assert "no model today" in text
