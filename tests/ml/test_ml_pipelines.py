"""Pipelines built in Python: the same job as their YAML, names, bindings, what is set afterwards."""

from __future__ import annotations

import io
import shutil
import textwrap
from pathlib import Path
from typing import Any

import pytest
from notebook_pipelines import TWIN, digest, from_yaml, two_steps, upper
from windrow.ml import Input, Output, command, load_component, load_data, load_job, load_model
from windrow.ml.constants import AssetTypes
from windrow.ml.dsl import pipeline
from windrow.ml.entities import Environment, ResourceConfiguration, RetrySettings
from windrow.ml.jobs.pipeline_job import PipelineJob
from windrow.spec import JobFileError, LiteralInput
from windrow.spec import load_job as load_job_file


def test_a_pipeline_is_the_job_of_its_yaml(notebook: Path) -> None:
    assert digest(two_steps().load()) == digest(from_yaml(notebook, TWIN))


def test_what_it_writes_loads_to_the_same_job_from_any_folder(notebook: Path, tmp_path_factory: Any) -> None:
    job = two_steps()
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "job.yml"
    job.dump(elsewhere)
    assert digest(load_job(elsewhere).load()) == digest(load_job_file(elsewhere)) == digest(job.load())
    assert str(load_job(elsewhere)) == str(job) == elsewhere.read_text()


BARE = """\
type: pipeline
inputs:
  data: ./files
  word: ./files
jobs:
  score:
    type: command
    command: cat ${{inputs.data}}/* && echo ${{inputs.word}} > ${{outputs.made}}/x
    environment: %s
    inputs:
      data: {type: uri_folder, path: "${{parent.inputs.data}}"}
      word: "${{parent.inputs.word}}"
    outputs:
      made: {type: uri_folder}
"""


@pytest.mark.parametrize("environment", ["./requirements.txt", "src/conda.yml", "requirements.json"])
def test_bare_paths_are_written_as_absolute_ones(
    notebook: Path, tmp_path_factory: pytest.TempPathFactory, environment: str
) -> None:
    (notebook / "requirements.txt").write_text("numpy\n")
    (notebook / "requirements.json").write_text('{"conda_file": {"dependencies": ["pip"]}}')
    (notebook / "job.yml").write_text(BARE % environment)
    job = load_job("job.yml")
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "job.yml"
    job.dump(elsewhere)
    assert digest(load_job_file(elsewhere)) == digest(job.load())
    # What no step reads as data is a text like any other.
    assert load_job_file(elsewhere).job.steps[0].inputs["word"] == LiteralInput("./files")


TABLE = """\
type: pipeline
inputs:
  data: {type: mltable, path: ./table, mode: direct}
jobs:
  score:
    type: parallel
    mini_batch_size: 1kb
    input_data: ${{inputs.data}}
    inputs:
      data: ${{parent.inputs.data}}
    task: {type: run_function, code: ./src, entry_script: upper.py}
"""


@pytest.mark.parametrize(("key", "value"), [("path", "./other"), ("mode", "ro_mount")])
def test_a_loaded_input_keeps_what_is_not_set_of_it(notebook: Path, key: str, value: str) -> None:
    shutil.copytree("table", "other")
    job = load_job(from_text(TABLE, notebook))
    assert job.inputs.data.type == "mltable"
    setattr(job.inputs.data, key, value)
    expected = {"path": "./table", "mode": "direct", key: value}
    text = TABLE.replace("path: ./table, mode: direct", "path: {path}, mode: {mode}".format(**expected))
    assert digest(job.load()) == digest(load_job_file(from_text(text, notebook)))


def test_a_bare_input_that_is_pointed_elsewhere_is_a_path(notebook: Path) -> None:
    shutil.copytree("files", "more")
    job = load_job(from_text(BARE.replace("    environment: %s\n", ""), notebook))
    job.inputs.data.path = "./more"
    text = BARE.replace("    environment: %s\n", "").replace("data: ./files", "data: {path: ./more}")
    assert digest(job.load()) == digest(load_job_file(from_text(text, notebook)))


def from_text(text: str, folder: Path) -> Path:
    path = folder / "job.yml"
    path.write_text(text)
    return path


# What is done to the steps of `two`, and the same in its YAML twin.
CHANGES: dict[str, tuple[Any, str, str]] = {
    "attribute": (
        lambda job: setattr(job.jobs["score"], "max_concurrency_per_instance", 2),
        "mini_batch_size: 1\n",
        "mini_batch_size: 1\n    max_concurrency_per_instance: 2\n",
    ),
    "mapping": (
        lambda job: setattr(job.jobs["score"], "retry_settings", RetrySettings(max_retries=1, timeout=9)),
        "mini_batch_size: 1\n",
        "mini_batch_size: 1\n    retry_settings: {max_retries: 1, timeout: 9}\n",
    ),
    "key_of_a_mapping_that_was_not_there": (
        lambda job: setattr(job.jobs["score"].retry_settings, "timeout", 9),
        "mini_batch_size: 1\n",
        "mini_batch_size: 1\n    retry_settings: {timeout: 9}\n",
    ),
    "resources": (
        lambda job: setattr(job.jobs["score"], "resources", ResourceConfiguration(instance_count=3)),
        "mini_batch_size: 1\n",
        "mini_batch_size: 1\n    resources: {instance_count: 3}\n",
    ),
    "set_resources": (
        lambda job: job.jobs["score"].set_resources(instance_count=3),
        "mini_batch_size: 1\n",
        "mini_batch_size: 1\n    resources: {instance_count: 3}\n",
    ),
    "environment_variables": (
        lambda job: job.jobs["score"].environment_variables.update({"A": "b"}),
        "mini_batch_size: 1\n",
        "mini_batch_size: 1\n    environment_variables: {A: b}\n",
    ),
    "task": (
        lambda job: setattr(job.jobs["score"].task, "program_arguments", "--model ${{inputs.model}} --factor 9"),
        "--factor ${{inputs.factor}}",
        "--factor 9",
    ),
    "input_mode": (
        lambda job: setattr(job.jobs["score"].inputs.files, "mode", "download"),
        "mode: ro_mount, path",
        "mode: download, path",
    ),
    "output_path": (
        lambda job: setattr(job.outputs.upper, "path", "./upper.txt"),
        "upper: {type: uri_file}",
        "upper: {type: uri_file, path: ./upper.txt}",
    ),
    "output_type": (
        lambda job: setattr(job.outputs.rows, "type", AssetTypes.URI_FILE),
        "",
        "",
    ),
    "pipeline_input": (
        lambda job: setattr(job.inputs, "factor", 7),
        "value: 5",
        "value: 7",
    ),
    "pipeline_input_path": (
        lambda job: setattr(job.inputs.data, "path", "./src"),
        "path: ./files",
        "path: ./src",
    ),
}


@pytest.mark.parametrize(("change", "old", "new"), CHANGES.values(), ids=CHANGES)
def test_what_is_set_afterwards_is_what_yaml_would_say(notebook: Path, change: Any, old: str, new: str) -> None:
    job = two_steps()
    change(job)
    assert old in TWIN
    assert digest(job.load()) == digest(from_yaml(notebook, TWIN.replace(old, new, 1)))
    assert digest(load_job(_dumped(job, notebook)).load()) == digest(job.load())


def _dumped(job: PipelineJob, folder: Path) -> Path:
    path = folder / "dumped.yml"
    job.dump(path)
    return path


def test_steps_are_called_after_their_builder_their_variable_or_their_component(notebook: Path) -> None:
    (notebook / "upper.yml").write_text(
        "type: parallel\nname: make_upper\ninputs: {lines: {type: uri_folder}}\noutputs: {out: {type: uri_file}}\n"
        "input_data: ${{inputs.lines}}\n"
        "task: {type: run_function, code: ./src, entry_script: upper.py, append_row_to: '${{outputs.out}}'}\n"
    )
    component = load_component(source="./upper.yml")

    @pipeline()
    def several(data: Any) -> None:
        upper()(lines=data)
        upper()(lines=data)
        held = component(lines=data)
        component(lines=data)
        renamed = component(lines=held.outputs.out)
        renamed.name = "last_one"

    job = several(data=Input(path="./files"))
    assert list(job.jobs) == ["upper", "upper_1", "held", "make_upper", "last_one"]
    assert [step.depends_on for step in job.load().job.steps] == [(), (), (), (), ("held",)]


def test_a_component_of_a_file_starts_its_paths_there_and_takes_settings_beside_it(notebook: Path) -> None:
    (notebook / "src" / "component.yml").write_text(
        "$schema: x\ntype: parallel\nname: upper\ninputs: {lines: {type: uri_folder}}\n"
        "outputs: {out: {type: uri_file}}\ninput_data: ${{inputs.lines}}\n"
        "resources: {instance_count: 2, shm_size: 2g}\n"
        "task: {type: run_function, code: ., entry_script: upper.py, append_row_to: '${{outputs.out}}'}\n"
    )
    component = load_component("src/component.yml")
    assert component.resources.instance_count == 2
    assert list(component.outputs) == ["out"]

    @pipeline()
    def one(data: Any) -> dict[str, Any]:
        step = component(lines=data)
        step.resources.instance_count = 3
        step.mini_batch_size = 2
        return {"out": step.outputs.out}

    job = one(Input(path="files"))
    loaded = job.load()
    assert loaded.code_folders == {"step": str(notebook / "src")}
    assert (loaded.job.steps[0].instance_count, loaded.job.steps[0].mini_batch_size) == (3, 2)
    assert component.resources.instance_count == 2
    assert digest(load_job(_dumped(job, notebook)).load()) == digest(loaded)


def test_settings_can_be_bound_to_inputs_of_the_pipeline(notebook: Path) -> None:
    @pipeline()
    def bound(data: Any, size: int, level: str = "DEBUG", extra: Any = None) -> None:
        step = upper()(lines=data)
        step.mini_batch_size = size
        step.logging_level = level
        if extra is not None:
            raise AssertionError("an input without a value is None")

    step = bound(Input(path="./files"), 7).load().job.steps[0]
    assert (step.mini_batch_size, step.logging_level) == (7, "DEBUG")


def test_types_of_parameters_are_told_by_their_annotations(notebook: Path) -> None:
    @pipeline()
    def typed(data: Input(type="uri_folder", mode="download"), count: int = 3) -> None:  # type: ignore[valid-type]
        upper()(lines=data)

    job = typed(data="./files")
    plain = job.to_dict()
    assert plain is not None
    text = str(job)
    assert "type: integer" in text
    assert str(notebook / "files") in text


def test_a_command_is_written_as_a_command_step(notebook: Path) -> None:
    step = command(
        name="prepare",
        command="python prepare.py --data ${{inputs.data}} --out ${{outputs.out}}",
        code="./src",
        environment=Environment(image="img", conda_file="./src/conda.yml"),
        inputs={"data": Input(type="uri_folder", path="./files"), "n": 3},
        outputs={"out": Output(type="uri_folder", mode="rw_mount")},
        environment_variables={"A": "b"},
        timeout=60,
    )
    from windrow.spec.writing.dumping import to_yaml

    text = to_yaml(PipelineJob(jobs={"prepare": step}).to_node())
    expected = f"""\
        type: pipeline
        jobs:
          prepare:
            type: command
            name: prepare
            command: python prepare.py --data ${{{{inputs.data}}}} --out ${{{{outputs.out}}}}
            code: {notebook}/src
            environment:
              image: img
              conda_file: {notebook}/src/conda.yml
            environment_variables:
              A: b
            limits:
              timeout: 60
            inputs:
              data:
                type: uri_folder
                path: {notebook}/files
              n: 3
            outputs:
              out:
                type: uri_folder
                mode: rw_mount
        """
    assert text == textwrap.dedent(expected)


DUMPED = """\
description: two steps
display_name: two
inputs:
  data: {path: 'azureml:./files', type: uri_folder}
  factor: 5
  model: {path: 'azureml:model.txt', type: uri_file}
jobs:
  score:
    component:
      input_data: ${{inputs.files}}
      inputs:
        factor: {default: '3', type: integer}
        files: {mode: ro_mount, type: uri_folder}
        model: {type: uri_file}
      is_deterministic: true
      mini_batch_size: '1'
      name: score
      outputs:
        rows: {type: uri_file}
      task: &task
        append_row_to: ${{outputs.rows}}
        code: FOLDER/src
        entry_script: score.py
        program_arguments: --model ${{inputs.model}} --factor ${{inputs.factor}}
        type: run_function
      type: parallel
    input_data: ${{inputs.files}}
    inputs:
      factor: {path: '${{parent.inputs.factor}}'}
      files: {path: '${{parent.inputs.data}}'}
      model: {path: '${{parent.inputs.model}}'}
    mini_batch_size: '1'
    outputs:
      rows: '${{parent.outputs.rows}}'
    task: *task
    type: parallel
  upper:
    component:
      input_data: ${{inputs.lines}}
      inputs:
        lines: {type: uri_folder}
      mini_batch_size: '0'
      name: upper
      outputs:
        out: {type: uri_file}
      task: &upper
        append_row_to: ${{outputs.out}}
        code: FOLDER/src
        entry_script: upper.py
        type: run_function
      type: parallel
    input_data: ${{inputs.lines}}
    inputs:
      lines: {path: '${{parent.jobs.score.outputs.rows}}'}
    mini_batch_size: '0'
    outputs:
      out: {path: '${{parent.outputs.upper}}', type: uri_folder}
    task: *upper
    type: parallel
outputs:
  rows: {type: uri_file}
  upper: {type: uri_file}
type: pipeline
"""
"""As the vendor's client writes `two`: inline components beside the same settings, typed by the component alone."""


def test_the_same_pipeline_dumped_by_the_vendors_client_is_the_same_job(notebook: Path) -> None:
    dumped = from_yaml(notebook, DUMPED.replace("FOLDER", str(notebook)))
    assert digest(dumped) == digest(two_steps().load())
    assert digest(load_job(notebook / "twin.yml").load()) == digest(dumped)


def test_load_job_reads_v1_as_well(notebook: Path) -> None:
    (notebook / "v1.yml").write_text(
        "pipeline:\n  data_references: {files: {path: ./files}}\n  steps:\n    up:\n      type: ParallelRunStep\n"
        "      parallel_run_config: {entry_script: upper.py, source_directory: src, error_threshold: 0,"
        " output_action: append_row}\n      inputs: {lines: files}\n      outputs: {rows: }\n"
    )
    job = load_job("v1.yml")
    job.jobs["up"].mini_batch_size = 2
    assert job.load().job.steps[0].mini_batch_size == 2
    assert digest(load_job(_dumped(job, notebook)).load()) == digest(job.load())


def test_params_override_changes_a_loaded_job(notebook: Path) -> None:
    (notebook / "job.yml").write_text(TWIN)
    job = load_job("job.yml", params_override=[{"jobs.score.mini_batch_size": 4}, {"inputs.factor": 9}])
    assert job.load().job.steps[0].mini_batch_size == 4


def test_a_file_that_is_no_pipeline_is_refused(notebook: Path) -> None:
    (notebook / "other.yml").write_text("type: command\n")
    with pytest.raises(JobFileError, match="is not a pipeline"):
        load_job("other.yml")
    with pytest.raises(JobFileError, match="no such file"):
        load_component("absent.yml")


@pytest.mark.parametrize("origin", ["there", "there/", "there/any.yml"])
def test_relative_paths_of_a_file_start_at_the_given_origin(notebook: Path, origin: str) -> None:
    (notebook / "there").mkdir()
    for name in ("files", "src", "model.txt"):
        (notebook / name).rename(notebook / "there" / name)
    text = "type: pipeline\njobs:\n  a:\n    type: command\n    command: ls ${{inputs.x}}\n    code: ./src\n"
    (notebook / "job.yml").write_text(text + "    inputs: {x: {type: uri_folder, path: ./files}}\n")
    (step,) = load_job("job.yml", relative_origin=origin).load().job.steps
    assert getattr(step.inputs["x"], "path", "") == str(notebook / "there" / "files")
    with pytest.raises(JobFileError, match=r"(?m)^job\.yml:6:11: jobs\.a\.code: "):
        load_job("job.yml").load()
    (notebook / "asset.yml").write_text("name: m\npath: ./model.txt\n")
    assert load_model("asset.yml", relative_origin=origin).path == "there/model.txt"
    assert load_data(io.StringIO("name: m\npath: ./model.txt\n"), relative_origin=origin).path == "there/model.txt"
    (notebook / "step.yml").write_text("type: command\ncommand: ls\ncode: ./src\n")
    job = PipelineJob(jobs={"a": load_component("step.yml", relative_origin=origin)()})
    assert f"code: {notebook}/there/src" in str(job)


def test_a_step_without_a_type_is_told_as_in_a_job_file(notebook: Path) -> None:
    inner = "{jobs: {a: {type: command, command: echo}}, task: {type: run_function, entry_script: upper.py}}"
    (notebook / "job.yml").write_text(f"type: pipeline\njobs: {{both: {{component: {inner}}}}}\n")
    assert load_job("job.yml").jobs["both"].type == "pipeline"
    (notebook / "job.yml").write_text("type: pipeline\njobs: {a: {type: null, command: echo, task: null}}\n")
    assert load_job("job.yml").jobs["a"].type == "command"


def test_an_error_of_a_job_has_its_warnings(notebook: Path) -> None:
    job = PipelineJob(jobs={"hello": command(name="hello", command="true", limits={"timeout": -1}, services={"a": 1})})
    with pytest.raises(JobFileError) as caught:
        job.load()
    assert [problem.key for problem in caught.value.problems] == ["jobs.hello.limits.timeout"]
    assert "jobs.hello.services" in [warning.key for warning in caught.value.warnings]
