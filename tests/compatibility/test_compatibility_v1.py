"""Files of Azure ML v1, run as they are: a pipeline with a ParallelRunStep, and a ParallelRunConfig by itself."""

from __future__ import annotations

from compatibility_job import CompatibilityJob

CONFIG = """
    parallel_run_config:
      environment:
        name: batch_environment
        python: {userManagedDependencies: true}
        docker: {baseImage: mcr.microsoft.com/azureml/base}
        environmentVariables: {MODE: fast}
      entry_script: score.py
      source_directory: code
      mini_batch_size: "2"
      error_threshold: 10
      output_action: append_row
      append_row_file_name: scores.txt
      compute_target_name: cpu-cluster
      node_count: 1
      process_count_per_node: 1
      run_invocation_timeout: 600
      run_max_try: 2
      logging_level: DEBUG
    """

PIPELINE = """
    pipeline:
      description: SamplePipelineFromYaml
      default_compute: cpu-cluster
      data_references:
        Images: {path: ./data}
        Labels: {path: labels.txt}
      parameters:
        Timeout: {type: int, default: 600}
      steps:
        Step1:
          type: "ParallelRunStep"
          name: "parallel-run-step-1"
          parallel_run_config: "yaml/config.yml"
          allow_reuse: True
          arguments: ["--progress_update_timeout", parameter:timeout, "--labels", side_input:Labels]
          parameters:
            timeout: {source: Timeout}
          inputs:
            Images: {source: Images}
          side_inputs:
            Labels: {source: Labels, bind_mode: mount}
          outputs:
            Scores: {destination: scores, path: ./out, bind_mode: mount}
    """

SCRIPT = """
    import argparse
    import os


    def init():
        global labels, output
        parser = argparse.ArgumentParser()
        parser.add_argument("--labels")
        parser.add_argument("--output")
        arguments, _ = parser.parse_known_args()
        with open(arguments.labels) as file:
            labels = file.read().strip()
        output = arguments.output


    def run(mini_batch):
        told = os.environ["AZUREML_BI_OUTPUT_PATH"]
        assert output == told, (output, told)
        return [f"{os.path.basename(name)} {labels} {os.environ['MODE']} {len(mini_batch)}" for name in mini_batch]
    """


def write(job: CompatibilityJob) -> None:
    for name in "abc":
        job.write(f"data/{name}", name)
    job.write("labels.txt", "cat\n")
    job.write("code/score.py", SCRIPT)
    job.write("yaml/config.yml", CONFIG)


def test_a_pipeline_of_v1(job: CompatibilityJob) -> None:
    write(job)
    job.write("pipeline.yml", PIPELINE)
    job.completed(file="pipeline.yml")
    assert (job.folder / "out" / "scores.txt").read_text() == "a cat fast 2\nb cat fast 2\nc cat fast 1\n"


def test_a_config_by_itself_on_data_named_beside_it(job: CompatibilityJob) -> None:
    write(job)
    job.write("code/score.py", "def run(mini_batch):\n    return [len(mini_batch)] * len(mini_batch)\n")
    code, text = job.run(file="yaml/config.yml")
    assert code == 2
    assert "--set inputs.input.path=PATH" in text
    job.completed("--set", "inputs.input.path=../data", "--set", "outputs.output.path=../out", file="yaml/config.yml")
    assert (job.folder / "out" / "scores.txt").read_text() == "2\n2\n1\n"
