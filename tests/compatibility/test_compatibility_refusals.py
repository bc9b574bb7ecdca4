"""What cannot be carried out is refused before anything starts, by name, with what to do instead."""

from __future__ import annotations

import pytest
from compatibility_job import CompatibilityJob

STANDALONE = """
type: parallel
inputs:
  data: {type: uri_folder, path: ./data}
"""


def write(job: CompatibilityJob, settings: str = "") -> None:
    job.write("data/a", "1")
    job.write("code/score.py", "def run(mini_batch):\n    return mini_batch\n")
    job.write_job("uri_folder", "./data", settings=settings)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("partition_keys: [Store, Brand]", ["jobs.score.partition_keys", "Store, Brand", "is a uri_folder"]),
        ("partition_keys: '[\"Store\"]'", ["jobs.score.partition_keys", "Store", "type: mltable"]),
    ],
)
def test_of_a_step(job: CompatibilityJob, settings: str, said: list[str]) -> None:
    write(job, settings)
    check_refused(job, said)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("task.type=model", ["jobs.score.task.type", "run_function"]),
        ("task.code=azureml:code:1", ["jobs.score.task.code", "azureml:code:1"]),
        ("task.code=git+https://github.com/a/b", ["jobs.score.task.code", "github.com"]),
        ("component=azureml:batch_score:1.0.0", ["azureml:batch_score:1.0.0", "not a registered component", "path"]),
        ("component=azureml://registries/azureml/components/x/versions/1", ["windrow registry add azureml"]),
        ("inputs.data=azureml:images@latest", ["jobs.score.inputs.data", "images@latest", "windrow data create"]),
        ("inputs.data=azureml:images:2", ["jobs.score.inputs.data", "azureml:images:2", "windrow data create"]),
        ("inputs.data=azureml://datastores/d/paths/x", ["azureml://datastores/d/paths/x", "local"]),
        ("inputs.data=https://account.blob.core.windows.net/c/x.csv?sv=1", ["https://account.blob", "query"]),
        ("inputs.data=adl://account/x", ["adl://", "s3://"]),
        ("inputs.data=hdfs://host/x", ["hdfs://", "s3://"]),
        ("task.program_arguments=--amlbi_async_mode True", ["--amlbi_async_mode", "enqueue()", "run()"]),
        ("task.program_arguments=--amlbi_file_format csv", ["--amlbi_file_format", "one of jsonl"]),
        ("type=sweep", ["jobs.score.type", "sweep", "--set jobs.score=null"]),
        ("type=command", ["jobs.score.command", "is missing", "python train.py"]),
    ],
)  # fmt: skip
def test_of_a_setting(job: CompatibilityJob, setting: str, said: list[str]) -> None:
    write(job)
    check_refused(job, said, "--set", f"jobs.score.{setting}")


def test_of_a_file_of_another_kind(job: CompatibilityJob) -> None:
    write(job)
    job.write("job.yml", STANDALONE)
    check_refused(job, ["exists only as a step", "type: pipeline", "component"])


def check_refused(job: CompatibilityJob, said: list[str], *options: str) -> None:
    code, text = job.run(*options)
    assert code == 2, text
    for word in said:
        assert word in text, (word, text)
    assert "Traceback" not in text
    assert not (job.folder / "rows.txt").exists()


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("filter: 'a = 1'", ["filter", "(character 3)", 'write "=="']),
        (
            "extract_columns_from_partition_format: {partition_format: '{Store/{file_name}.{extension}'}",
            ["extract_columns_from_partition_format", '"{" at character 1 is not closed'],
        ),
    ],
)
def test_of_a_step_in_an_mltable_file(job: CompatibilityJob, table: str, said: list[str]) -> None:
    """Found before anything is started."""
    write(job)
    job.write("table/t.csv", "a\n1\n")
    job.write("table/MLTable", "paths:\n  - file: ./t.csv\ntransformations:\n  - read_delimited: {delimiter: ','}\n")
    with (job.folder / "table/MLTable").open("a") as file:
        file.write(f"  - {table}\n")
    code, text = job.run("--set", "jobs.score.inputs.data={type: mltable, path: ./table}")
    assert code == 2
    for word in ["table/MLTable:5", *said]:
        assert word in text, (word, text)
    assert not (job.folder / "rows.txt").exists()
