"""Images by count, as in the public samples with MNIST: every spelling here stands in one of them."""

from __future__ import annotations

import pytest
from compatibility_job import CompatibilityJob, output_of

MNIST = """
    $schema: https://azuremlschemas.azureedge.net/latest/pipelineJob.schema.json
    type: pipeline
    display_name: images-identified-in-parallel

    jobs:
      prepare_data:
        type: command
        compute: azureml:cpu-cluster
        component: ./script/prepare_data.yml

      predict_digits:
        type: parallel
        compute: azureml:cpu-cluster
        inputs:
          job_data_path:
            type: {type}
            path: ${{{{parent.jobs.prepare_data.outputs.images}}}}
            mode: {mode}
          score_model:
            type: uri_folder
            path: ./models
            mode: download
        outputs:
          job_output_file:
            type: uri_file
            mode: rw_mount

        mini_batch_size: "5"
        resources:
          instance_count: 2
        mini_batch_error_threshold: 5
        logging_level: "DEBUG"
        input_data: ${{{{inputs.job_data_path}}}}
        max_concurrency_per_instance: 2
        retry_settings:
          max_retries: 2
          timeout: 60

        task:
          type: run_function
          code: ./script
          entry_script: digits.py
          environment:
            image: mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu20.04
            conda_file: ./script/environment_parallel.yml
          program_arguments: >-
            --model ${{{{inputs.score_model}}}}
          append_row_to: ${{{{outputs.job_output_file}}}}

      view_prediction_result:
        type: command
        compute: azureml:cpu-cluster
        inputs:
          inference_result: ${{{{parent.jobs.predict_digits.outputs.job_output_file}}}}
        command: >-
          cat ${{{{inputs.inference_result}}}}
        environment: azureml://registries/azureml/environments/sklearn-1.5/labels/latest
"""

PREPARE = """
    $schema: https://azuremlschemas.azureedge.net/latest/commandComponent.schema.json
    type: command
    name: prepare_data
    display_name: prepare-data
    version: 1
    outputs:
      images:
        type: {type}
    code: .
    environment: azureml://registries/azureml/environments/sklearn-1.5/labels/latest
    command: >-
      python prepare_data.py --output_folder ${{{{outputs.images}}}}
"""

PREPARE_SCRIPT = """
    import argparse
    import os

    parser = argparse.ArgumentParser()
    parser.add_argument("--output_folder", type=str, default=0)
    args, _ = parser.parse_known_args()
    folder = os.path.join(args.output_folder, "mnist")
    os.makedirs(folder)
    for number in range(12):
        with open(os.path.join(folder, f"{{number}}.png"), "w") as file:
            file.write(str(number))
    print("images are in", folder)
    if "{type}" == "mltable":
        with open(os.path.join(args.output_folder, "MLTable"), "w") as file:
            file.write("paths: [{{pattern: ./mnist/*.png}}]")
"""

MNIST_SCRIPT = """
    import argparse
    import os

    from azureml_user.parallel_run import EntryScript


    def init():
        global scale
        parser = argparse.ArgumentParser(allow_abbrev=False, description="ParallelRunStep Agent")
        parser.add_argument("--model", type=str, default=0)
        args, _ = parser.parse_known_args()
        scale = int(open(os.path.join(args.model, "scale.txt")).read())
        EntryScript().logger.info("init() is called.")


    def run(mini_batch):
        print(f"run method start: {__file__}, run({mini_batch})")
        resultList = []
        for image in mini_batch:
            resultList.append("{}: {}".format(os.path.basename(image), int(open(image).read()) * scale))
        return resultList
"""


def write_mnist(job: CompatibilityJob, *, input_type: str = "uri_folder", mode: str = "ro_mount") -> None:
    job.write("pipeline.yml", MNIST.format(type=input_type, mode=mode))
    job.write("script/digits.py", MNIST_SCRIPT)
    job.write("script/prepare_data.yml", PREPARE.format(type=input_type))
    job.write("script/prepare_data.py", PREPARE_SCRIPT.format(type=input_type))
    job.write("script/environment_parallel.yml", "dependencies: [python=3.10, pip, {pip: [numpy]}]\n")
    job.write("models/scale.txt", "3")
    for number in range(12):
        # In a folder below the input, as the sample's preparing step writes them.
        job.write(f"prepared/mnist/{number}.png", str(number))


ALONE = ("--set", "jobs.prepare_data=null", "--set", "jobs.view_prediction_result=null")
PREPARED = ("--set", "jobs.predict_digits.inputs.job_data_path=./prepared")


def expected_digits() -> str:
    return "".join(f"{name}.png: {int(name) * 3}\n" for name in sorted(map(str, range(12))))


@pytest.mark.parametrize(("input_type", "mode"), [("uri_folder", "ro_mount"), ("mltable", "eval_mount")])
def test_the_whole_sample_runs_from_preparing_to_the_view_of_the_result(
    job: CompatibilityJob, input_type: str, mode: str
) -> None:
    write_mnist(job, input_type=input_type, mode=mode)
    printed = job.completed(file="pipeline.yml")
    (viewed,) = job.state.glob("jobs/*/logs/view_prediction_result/user/stdout/*/process000.stdout.txt")
    assert viewed.read_text() == expected_digits(), printed
    (prepared,) = job.state.glob("jobs/*/logs/prepare_data/user/stdout/*/process000.stdout.txt")
    assert "images are in" in prepared.read_text()


def test_a_step_that_is_left_out_is_missed_where_it_is_read(job: CompatibilityJob) -> None:
    write_mnist(job)
    code, text = job.run(*ALONE, file="pipeline.yml")
    assert code == 2
    assert 'jobs.predict_digits.inputs.job_data_path: is "${{parent.jobs.prepare_data.outputs.images}}"' in text
    assert "--set jobs.predict_digits.inputs.job_data_path=./path" in text


@pytest.mark.parametrize(
    ("input_type", "mode", "table"),
    [
        ("uri_folder", "ro_mount", None),
        ("uri_folder", "download", None),
        ("mltable", "eval_mount", "paths:\n  - folder: ./mnist\n"),
        ("mltable", "eval_mount", "paths:\n  - file: ./mnist\n"),
        ("mltable", "eval_download", "type: mltable\npaths:\n  - pattern: ./mnist/*.png\n"),
    ],
)
def test_images_are_identified_as_in_the_mnist_sample(
    job: CompatibilityJob, input_type: str, mode: str, table: str | None
) -> None:
    write_mnist(job, input_type=input_type, mode=mode)
    if table:
        job.write("prepared/MLTable", table)
    printed = job.completed(*ALONE, *PREPARED, file="pipeline.yml")
    assert output_of(printed).read_text() == expected_digits()
    assert job.counters()["planned"] == 3
    logged = list(job.state.glob("jobs/*/logs/*/user/entry_script_log/*/process*.log.txt"))
    assert logged
    assert "init() is called." in logged[0].read_text()


def test_one_bad_image_is_left_out_alone(job: CompatibilityJob) -> None:
    """The sample tolerates 5 mini-batches; the 10th image is in the first one by name."""
    write_mnist(job)
    job.write("prepared/mnist/10.png", "no number")
    code, text = job.run(*ALONE, *PREPARED, file="pipeline.yml")
    assert code == 0
    rows = output_of(text).read_text().splitlines()
    assert len(rows) == 12 - 1
    assert not [row for row in rows if row.startswith("10.png")]
    code, _ = job.run("--strict", *ALONE, *PREPARED, file="pipeline.yml")
    assert code == 3
