"""`--set path=value`."""

from __future__ import annotations

from typing import Any

import pytest
from spec_workspace import Workspace
from windrow.spec import DataInput, LiteralInput
from windrow.spec.effective.job import Environment


@pytest.mark.parametrize(
    ("text", "setting", "value"),
    [
        ("jobs.score.mini_batch_size=10kb", "mini_batch_size", 10240),
        ("jobs.score.resources.instance_count=3", "instance_count", 3),
        ("jobs.score.retry_settings.timeout=5", "run_invocation_timeout_s", 5),
        ("jobs.score.retry_settings={max_retries: 4, timeout: 6}", "max_retries", 4),
        ("jobs.score.environment_variables.A=b=c", "environment_variables", {"A": "b=c"}),
        (" jobs . score . logging_level =DEBUG", "logging_level", "DEBUG"),
        ("jobs.score.mini_batch_size=", "mini_batch_size", None),
        ("jobs.score.task.program_arguments=--error_threshold 4", "error_threshold", 4),
    ],
)  # fmt: skip
def test_a_setting_is_put_over_the_files(workspace: Workspace, text: str, setting: str, value: Any) -> None:
    assert getattr(workspace.step("", text), setting) == value


@pytest.mark.parametrize(
    ("text", "setting", "value"),
    [
        ("jobs.score.limits.timeout=5", "run_invocation_timeout_s", 5),
        ("jobs.score.environment={conda_file: {dependencies: [python=3.11]}}", "environment", Environment("3.11")),
        ("jobs.score.environment.conda_file={dependencies: [python=3.11]}", "environment", Environment("3.11")),
    ],
)
def test_a_setting_of_a_command_is_put_over_the_files(
    workspace: Workspace, text: str, setting: str, value: Any
) -> None:
    command = "type: command\ncommand: echo\nenvironment: {name: e}\n"
    assert getattr(workspace.job(workspace.job_of(command), text).job.steps[0], setting) == value


def test_later_ones_win(workspace: Workspace) -> None:
    assert (
        workspace.step(
            "error_threshold: 1", "jobs.score.error_threshold=2", "jobs.score.error_threshold=3"
        ).error_threshold
        == 3
    )


@pytest.mark.parametrize("path", ["jobs.score.inputs.images.path", "jobs.score.inputs.images"])
def test_an_input_is_pointed_at_other_data_and_keeps_its_type(workspace: Workspace, path: str) -> None:
    workspace.write("other/one.csv", "")
    step = workspace.step("inputs: {images: {type: mltable, path: ./images, mode: direct}}", f"{path}=./other")
    assert step.inputs["images"] == DataInput("mltable", "direct", str(workspace.folder / "other"))


def test_pipeline_inputs_can_be_set(workspace: Workspace) -> None:
    changes = "inputs: {images: {path: ./images}, n: '${{parent.inputs.n}}'}"
    assert workspace.step(changes, "inputs.n=8", more="inputs: {n: 1}\n").inputs["n"] == LiteralInput("8")


def test_the_tree_of_the_file_is_not_changed_for_aliases(workspace: Workspace) -> None:
    changes = "retry_settings: &r {max_retries: 3, timeout: 50}\ncomment: *r"
    assert workspace.step(changes, "jobs.score.comment.timeout=1").run_invocation_timeout_s == 50


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nonsense", "not of the form path=value"),
        ("=x", "not of the form path=value"),
        ("a..b=x", "not of the form path=value"),
        ("jbs.score.mini_batch_size=1", 'Did you mean "jobs"?'),
        ("jobs.scor.mini_batch_size=1", 'Did you mean "score"?'),
        ("jobs.score.mini_batchsize=1", 'Did you mean "mini_batch_size"?'),
        ("jobs.score.resources.instance_cuont=1", 'Did you mean "instance_count"?'),
        ("jobs.score.inputs.imagse.path=x", 'Did you mean "images"?'),
        ("jobs.score.inputs.images.pth=x", 'Did you mean "path"?'),
        ("inputs.x.path=x", 'no "x" in inputs'),
        ("jobs.score.input_data.x=1", "nothing below it"),
        ("jobs.score.task.code.x=1", "nothing below it"),
        ("jobs.score.mini_batch_size=[", "not valid YAML"),
        ("jobs.score.mini_batch_size=x", '"x"'),
        ("jobs.score.error_threshold=-5", "from -1"),
    ],
)
def test_a_bad_one_is_an_error_that_shows_it(workspace: Workspace, text: str, said: str) -> None:
    problem = workspace.only_problem("", text)
    assert problem.file == f"--set {text}"
    assert problem.line == 0
    assert said in problem.message


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("mini_batch_size=1", "Set jobs.score.mini_batch_size instead: the step's own settings win."),
        ("task.entry_script=x.py", "Set jobs.score.task.entry_script instead: "),
        ("inputs.images.mode=direct", "Set jobs.score.inputs.images.mode instead: "),
        ("version=2", "a step does not replace its version. Change it in that file."),
    ],
)
def test_a_setting_in_a_components_file_is_set_by_the_step(workspace: Workspace, path: str, said: str) -> None:
    workspace.write(
        "part.yml",
        "type: parallel\ninputs: {images: {type: uri_folder}}\ninput_data: ${{inputs.images}}\n"
        "task: {type: run_function, code: ./src, entry_script: score.py}\n",
    )
    text = workspace.job_of("component: ./part.yml\ninputs: {images: {path: ./images}}\n")
    (problem,) = workspace.problems(text, f"jobs.score.component.{path}")
    assert 'jobs.score.component is the file "./part.yml", which --set does not change' in problem.message
    assert said in problem.message


def test_elements_of_lists_go_by_number(workspace: Workspace) -> None:
    changes = "partition_keys: [a, b]"
    assert "is a, c," in workspace.only_problem(changes, "jobs.score.partition_keys.1=c").message
    problems = workspace.step_problems(changes, "jobs.score.partition_keys.2=c")
    assert "is a list of 2" in problems[0].message


def test_null_leaves_a_step_out(workspace: Workspace) -> None:
    text = workspace.job_of(more="") + "  prepare: {type: sweep}\n"
    (problem,) = workspace.problems(text)
    assert "--set jobs.prepare=null" in problem.message
    assert [step.name for step in workspace.job(text, "jobs.prepare=null").job.steps] == ["score"]
    assert workspace.problems(text, "jobs.prepare=null", "jobs.score=null")[0].message.startswith("has no steps")
    assert 'Did you mean "prepare"?' in workspace.problems(text, "jobs.prepar=null")[0].message
