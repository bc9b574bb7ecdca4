"""What is wrong in a notebook's pipeline is told with its line, or at once where it is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from notebook_pipelines import scorer, two_steps, upper
from windrow.ml import Input
from windrow.ml.dsl import pipeline
from windrow.ml.parallel import parallel_run_function
from windrow.spec import JobFileError


def test_an_error_of_a_setting_names_the_line_of_the_notebook(notebook: Path) -> None:
    job = two_steps()
    job.jobs["score"].error_threshold = -2  # this line
    with pytest.raises(JobFileError) as caught:
        job.load()
    (problem,) = caught.value.problems
    assert problem.key == "jobs.score.error_threshold"
    source = Path(__file__).read_text().splitlines()
    assert source[problem.line - 1].endswith("# this line")
    assert problem.file.endswith("test_ml_messages.py")


def test_an_error_in_a_notebook_names_its_cell(notebook: Path) -> None:
    job = two_steps()
    cell = compile("\n\njob.jobs['score'].mini_batch_size = '1x'\n", "/tmp/ipykernel_1/2.py", "exec")
    exec(cell, {"job": job, "__name__": "__main__"})
    with pytest.raises(JobFileError) as caught:
        job.load()
    (problem,) = caught.value.problems
    assert (problem.file, problem.line, problem.key) == ("notebook cell", 3, "jobs.score.mini_batch_size")


def test_an_unknown_setting_is_told_with_the_one_that_is_meant(notebook: Path) -> None:
    job = two_steps()
    job.jobs["score"].mini_batch_sise = 2
    assert any('Did you mean "mini_batch_size"?' in warning.message for warning in job.load().warnings)


def test_names_that_a_step_does_not_have_are_refused_at_once(notebook: Path) -> None:
    step = scorer()
    with pytest.raises(TypeError, match=r"no input 'file'.* Did you mean \"files\"\?"):
        step(file=1)
    with pytest.raises(AttributeError, match=r"no output 'row'.*Its outputs: rows"):
        _ = step.outputs.row
    with pytest.raises(AttributeError, match="no input 'nothing'"):
        step.inputs.nothing = 3


def test_a_pipeline_function_returns_outputs_by_name_or_nothing(notebook: Path) -> None:
    @pipeline()
    def returns_step(data: Any) -> Any:
        return upper()(lines=data)

    @pipeline()
    def returns_other(data: Any) -> Any:
        return {"x": 3}

    @pipeline()
    def returns_twice(data: Any) -> Any:
        step = upper()(lines=data)
        return {"x": step.outputs.out, "y": step.outputs.out}

    for function, words in ((returns_step, "dictionary"), (returns_other, "output of a step")):
        with pytest.raises(TypeError, match=words):
            function(Input(path="./files"))
    with pytest.raises(ValueError, match="as x and as y"):
        returns_twice(Input(path="./files"))


def test_a_missing_input_is_an_error_of_the_job(notebook: Path) -> None:
    @pipeline()
    def without(data: Any) -> None:
        scorer()(files=data)

    with pytest.raises(JobFileError, match=r"jobs.score.inputs.model: has no value"):
        without(Input(path="./files")).load()


def test_instance_count_and_resources_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="both given"):
        parallel_run_function(instance_count=2, resources={"instance_count": 3})
