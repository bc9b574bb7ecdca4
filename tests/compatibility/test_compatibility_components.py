"""Components, and scripts that write their own files, as in the public samples and published components."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from compatibility_job import CompatibilityJob

COMPONENT = """
    $schema: http://azureml/sdk-2-0/ParallelComponent.json
    name: file_batch_score
    type: parallel
    version: 1.0.0
    display_name: BatchScore
    description: parallel component for batch score
    is_deterministic: true
    tags:
      Preview: ""

    inputs:
      job_data_path:
        type: mltable
        description: The data to be split and scored in parallel.
        optional: false
      factor:
        type: number
        default: 10.99
      nodes:
        type: integer
      retrain:
        type: boolean
      note:
        type: string
        optional: true

    outputs:
      job_output_path:
        type: uri_folder
        mode: mount

    mini_batch_size: "10"
    input_data: ${{inputs.job_data_path}}
    output_data: ${{outputs.job_output_path}}
    mini_batch_error_threshold: 1
    max_concurrency_per_instance: 1
    logging_level: "WARNING"
    error_threshold: -1
    retry_settings:
      max_retries: 2
      timeout: 60

    resources:
      instance_count: 2

    task:
      type: function
      code: ../script_parallel/
      entry_script: ./pass_through.py
      args: >-
        --job_output_path ${{outputs.job_output_path}} --factor ${{inputs.factor}}
        --nodes-count ${{inputs.nodes}} --process_count_per_node ${{inputs.nodes}}
        --retrain ${{inputs.retrain}} $[[--note ${{inputs.note}}]]
      environment: azureml:AzureML-sklearn-1.0-ubuntu20.04-py38-cpu:33
"""

PIPELINE_OF_COMPONENT = """
    type: pipeline
    inputs:
      pipeline_job_data_path:
        type: mltable
        path: ../dataset/
        mode: eval_mount
      literal_input: 2
      {note}
    outputs:
      job_out_path:
        type: uri_folder
        mode: upload
        path: ./result
    jobs:
      score:
        type: parallel
        compute: azureml:cpu-cluster
        component: file:../components/parallel_component.yml
        resources:
          instance_count: ${{{{parent.inputs.literal_input}}}}
        inputs:
          job_data_path: ${{{{parent.inputs.pipeline_job_data_path}}}}
          nodes: ${{{{parent.inputs.literal_input}}}}
          retrain: true
          {bound}
        outputs:
          job_output_path: ${{{{parent.outputs.job_out_path}}}}
        mini_batch_size: "1"
        mini_batch_error_threshold: ${{{{parent.inputs.literal_input}}}}
"""

PASS_THROUGH = """
    import argparse
    import json
    import sys
    from pathlib import Path

    def init():
        global OUTPUT_PATH
        parser = argparse.ArgumentParser(allow_abbrev=False)
        parser.add_argument("--job_output_path", type=str, default=0)
        parser.add_argument("--logging_level", default="not told")
        args, _ = parser.parse_known_args()
        OUTPUT_PATH = Path(args.job_output_path)
        print("Pass through init done", args.logging_level)

    def run(mini_batch):
        for file_path in mini_batch:
            file = Path(file_path)
            assert file.exists()
            (OUTPUT_PATH / file.name).write_text(json.dumps(sys.argv[1:]))
        return mini_batch
"""
"""Writes its own results into the output's folder, which it does not make."""


@pytest.mark.parametrize("note", ["", "all of them, please"])
def test_a_component_writes_its_own_files(job: CompatibilityJob, note: str) -> None:
    given, bound = (f"note: {note}", "note: ${{parent.inputs.note}}") if note else ("", "")
    job.write("components/parallel_component.yml", COMPONENT)
    job.write("script_parallel/pass_through.py", PASS_THROUGH)
    job.write("jobs/pipeline.yml", PIPELINE_OF_COMPONENT.format(note=given, bound=bound))
    job.write("dataset/MLTable", "paths:\n  - file: ./0.png\n  - file: ./1.png\n  - file: ./2.png\n")
    for number in range(4):
        job.write(f"dataset/{number}.png", "")
    printed = job.completed(file="jobs/pipeline.yml")

    result = job.folder / "jobs/result"
    assert sorted(path.name for path in result.iterdir()) == ["0.png", "1.png", "2.png"]
    arguments = json.loads((result / "0.png").read_text())
    assert arguments[:2] == ["--job_output_path", str(result)]
    expected = ["--factor", "10.99", "--nodes-count", "2", "--process_count_per_node", "2", "--retrain", "True"]
    assert arguments[2:] == [*expected, *(["--note", note] if note else []), "--logging_level=WARNING"]
    assert job.counters()["planned"] == 3
    assert "program_arguments" in printed  # `args` is its old name


def test_a_training_job_returns_nothing_for_its_partitions(job: CompatibilityJob) -> None:
    """`return []` with `error_threshold: -1` completes, as the sample for model training needs
    (docs/reference/azure-ml/parallel-job.md#thresholds)."""
    job.write(
        "code/score.py",
        """
        import argparse
        import os

        def init():
            parser = argparse.ArgumentParser()
            parser.add_argument("--drop_cols", type=str)
            parser.add_argument("--lagging_orders", type=str)
            parser.add_argument("--model_folder", type=str)
            parser.add_argument("--partition_keys", type=str)
            args, _ = parser.parse_known_args()
            global model_folder, orders
            model_folder = args.model_folder
            orders = [int(i) for i in args.lagging_orders.split(",")]
            assert args.drop_cols.split(",") == ["Revenue", "Advert"] and args.partition_keys is None

        def run(input_data, mini_batch_context):
            print(f"partition_key_value = {mini_batch_context.partition_key_value}, {mini_batch_context.dataset}")
            folder = os.path.join(model_folder, str(mini_batch_context.minibatch_index))
            os.makedirs(folder)
            open(os.path.join(folder, "model"), "w").write(str(len(input_data) * sum(orders)))
            return []
        """,
    )
    job.write("sales.csv", "Week,Quantity\n" + "".join(f"{week},{week * 3}\n" for week in range(200)))
    job.write(
        "job.yml",
        """
        type: pipeline
        jobs:
          parallel_train:
            type: parallel
            compute: azureml:cpu-cluster
            inputs:
              data_source:
                path: ./sales.csv
                type: mltable
                mode: direct
              drop_cols: "Revenue,Advert"
              lagging_orders: "1,2,3"
            outputs:
              model_folder:
                type: uri_folder
                mode: rw_mount
                path: ./models
            mini_batch_size: "500"
            error_threshold: -1
            mini_batch_error_threshold: 5
            logging_level: "INFO"
            input_data: ${{inputs.data_source}}
            task:
              type: run_function
              code: ./code
              entry_script: score.py
              environment: azureml:e@latest
              program_arguments: >-
                --drop_cols ${{inputs.drop_cols}}
                --lagging_orders ${{inputs.lagging_orders}}
                --model_folder ${{outputs.model_folder}}
        """,
    )
    job.completed()
    count = job.counters()["succeeded"]
    models = sorted((job.folder / "models").glob("*/model"))
    assert len(models) == count == -(-(job.folder / "sales.csv").stat().st_size // 500)
    assert sum(int(model.read_text()) for model in models) == 200 * 6


def test_what_failed_is_no_data_of_the_next_step(job: CompatibilityJob) -> None:
    """Many-models pipelines write a file a series, tolerate failures, and read the whole folder then."""
    for number in range(4):
        job.write(f"data/f{number}", str(number))
    job.write(
        "code/forecast.py",
        """
        import os
        import sys

        def run(mini_batch):
            for path in mini_batch:
                if path.endswith("f2"):
                    raise ValueError("no model")
                with open(os.path.join(sys.argv[1], os.path.basename(path) + ".csv"), "w") as file:
                    file.write("prediction")
            return []
        """,
    )
    job.write("code/names.py", "import os\ndef run(mini_batch):\n    return list(map(os.path.basename, mini_batch))\n")
    job.write(
        "job.yml",
        """
        type: pipeline
        jobs:
          forecast:
            type: parallel
            inputs: {series: {type: uri_folder, path: ./data}}
            outputs: {forecasts: {type: uri_folder}}
            input_data: ${{inputs.series}}
            mini_batch_size: 1
            retry_settings: {max_retries: 0}
            task:
              {type: run_function, code: ./code, entry_script: forecast.py, program_arguments: "${{outputs.forecasts}}"}
          collect:
            type: parallel
            inputs: {forecasts: {type: uri_folder, path: "${{parent.jobs.forecast.outputs.forecasts}}"}}
            outputs: {rows: {type: uri_file, path: ./rows.txt}}
            input_data: ${{inputs.forecasts}}
            task: {type: run_function, code: ./code, entry_script: names.py, append_row_to: "${{outputs.rows}}"}
        """,
    )
    text = job.completed()
    assert (job.folder / "rows.txt").read_text().split() == ["f0.csv", "f1.csv", "f3.csv"]
    (listed,) = re.findall(r"^CompletedWithFailures: .*; listed in (\S+)\. Output:", text, re.MULTILINE)
    assert Path(listed).name == "forecast.failed_items.csv"
    assert Path(listed).read_text().count("\n") == 5  # with the header: nothing was returned for the other three
    (logged,) = job.state.glob("jobs/*/logs/forecast/failed_items.csv")
    assert logged.read_bytes() == Path(listed).read_bytes()


def test_models_of_a_class_of_the_training_script_load_in_another(job: CompatibilityJob) -> None:
    job.write("data/s1", "3")
    job.write("data/s2", "4")
    job.write(
        "code/train.py",
        """
        import os
        import pickle
        import sys

        class Mean:
            def __init__(self, value):
                self.value = value

        def run(mini_batch):
            for path in mini_batch:
                with open(path) as series, open(os.path.join(sys.argv[1], os.path.basename(path)), "wb") as model:
                    pickle.dump(Mean(float(series.read())), model)
            return mini_batch
        """,
    )
    job.write(
        "code/forecast.py",
        """
        import pickle
        from train import Mean

        def run(mini_batch):
            models = [pickle.load(open(path, "rb")) for path in mini_batch]
            return [model.value for model in models if isinstance(model, Mean)]
        """,
    )
    job.write(
        "job.yml",
        """
        type: pipeline
        jobs:
          train:
            type: parallel
            inputs: {series: {type: uri_folder, path: ./data}}
            outputs: {models: {type: uri_folder, path: ./models}}
            input_data: ${{inputs.series}}
            task: {type: run_function, code: ./code, entry_script: train.py, program_arguments: "${{outputs.models}}"}
          forecast:
            type: parallel
            inputs: {models: {type: uri_folder, path: "${{parent.jobs.train.outputs.models}}"}}
            outputs: {rows: {type: uri_file, path: ./rows.txt}}
            input_data: ${{inputs.models}}
            task: {type: run_function, code: ./code, entry_script: forecast.py, append_row_to: "${{outputs.rows}}"}
        """,
    )
    job.completed()
    assert (job.folder / "rows.txt").read_text() == "3.0\n4.0\n"
