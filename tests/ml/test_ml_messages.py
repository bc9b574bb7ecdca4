"""What is wrong in a notebook's pipeline is told with its line, or at once where it is written."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
from notebook_pipelines import scorer, two_steps, upper
from windrow.errors import UsageError
from windrow.ml import Input, MLClient, command, load_component, load_job
from windrow.ml.dsl import pipeline
from windrow.ml.entities import Data, JobService, PipelineComponent
from windrow.ml.jobs.pipeline_job import PipelineJob
from windrow.ml.parallel import parallel_run_function
from windrow.spec import JobFileError, LiteralInput


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


def test_an_argument_of_a_pipeline_may_be_given_later(notebook: Path) -> None:
    @pipeline()
    def without(data: Any, model: Input(type="uri_file"), unused: int) -> None:  # type: ignore[valid-type]
        scorer()(files=data, model=model)

    job = without(Input(path="./files"))
    with pytest.raises(JobFileError, match=r"inputs.model: has no value"):
        job.load()
    job.inputs.model = Input(type="uri_file", path="./model.txt")
    job.load()
    with pytest.raises(TypeError, match="unexpected keyword argument 'dta'"):
        without(dta=1)


def test_instance_count_and_resources_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="both given"):
        parallel_run_function(instance_count=2, resources={"instance_count": 3})


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("sweep.Choice", "steps that search hyperparameters are not supported"),
        ("automl.classification", "steps that search models are not supported"),
        ("spark", "steps of type spark are not supported; do the work in a command"),
        ("load_datastore", "files; datastores are named where the master is started"),
        ("entities.CommandJob", r"write the job as a step, command\(...\) of windrow.ml"),
        ("entities.Workspace", r"the workspace is a master.*MLClient\(master=ADDRESS\)"),
        ("entities.AzureBlobDatastore", "datastores are named where the master is started"),
        ("entities.CodeConfiguration", "belongs to deployments, which Windrow does not have"),
        ("entities.ComputeInstance", "Windrow does not create machines: agents join a pool"),
        ("entities.BatchEndpoint", "Windrow has no endpoints and deployments. Submit"),
        ("entities.FeatureStore", "nothing in Windrow corresponds to it. Leave it out"),
        ("parallel.ParallelJob", "write the job as a step, parallel_run_function"),
        ("operations.JobOperations", "attributes of an MLClient, such as client.jobs"),
    ],
)
def test_what_is_not_there_says_so_when_it_is_used(name: str, says: str) -> None:
    module, _, name = name.rpartition(".")
    module = f"windrow.ml.{module}".rstrip(".")
    exec(f"from {module} import {name}", there := {})
    with pytest.raises(UsageError, match=rf"^windrow.ml has no {name}: .*{says}"):
        there[name]()


def test_a_name_that_is_nowhere_keeps_pythons_own_words() -> None:
    for line in ("from windrow.ml.entities import Dat", "from windrow.ml.parallel import RunFunktion"):
        with pytest.raises(ImportError, match=f"cannot import name {line.split()[-1]!r}"):
            exec(line)


def test_the_names_of_exceptions_catch_what_is_raised(notebook: Path) -> None:
    from windrow.ml.exceptions import AssetException, JobException, MlException, ValidationException

    broken = PipelineJob(jobs={"hello": command(name="hello", command="true", limits={"timeout": -1})})
    for kind in (ValidationException, MlException):
        with pytest.raises(kind, match=r"limits\.timeout"):
            broken.load()
    with MLClient(slots=1) as client:
        for kind in (AssetException, MlException):
            with pytest.raises(kind, match="nowhere"):
                client.data.get("nowhere", "1")
        with pytest.raises(ValidationException, match="needs a path"):
            client.data.create_or_update(Data(name="flowers"))
        failing = client.jobs.create_or_update(command(name="hello", command="false"))
        with pytest.raises(JobException, match=failing.name):
            client.jobs.stream(failing.name)


def test_a_component_of_type_pipeline_has_a_type(notebook: Path) -> None:
    (notebook / "part.yml").write_text("type: pipeline\njobs: {a: {type: command, command: echo}}\n")
    assert isinstance(load_component("part.yml"), PipelineComponent)
    assert not isinstance(command(name="hello", command="true"), PipelineComponent)


def test_what_is_wrong_with_outputs_of_a_file_names_its_line(notebook: Path) -> None:
    text = """\
type: pipeline
outputs:
  rows:
  kept: ./kept
jobs:
  a:
    type: command
    command: echo
    outputs:
      rows: ${{parent.outputs.rowz}}
      kept: {path: "${{parent.outputs.kept}}"}
"""
    (notebook / "job.yml").write_text(text)
    with pytest.raises(JobFileError, match=r'^job\.yml:10:13: jobs\.a\.outputs\.rows: .*Did you mean "rows"'):
        load_job("job.yml").load()
    (notebook / "job.yml").write_text(text.replace("rows: ${{parent.outputs.rowz}}", "other:"))
    (warning,) = load_job("job.yml").load().warnings
    assert str(warning).startswith("job.yml:3:8: outputs.rows: is not written by any step")


def test_a_sweep_is_refused_by_the_step(notebook: Path) -> None:
    with pytest.raises(UsageError, match="step 'score': steps that search hyperparameters are not supported"):
        scorer().sweep(primary_metric="loss", goal="minimize")


def test_a_prompt_flow_is_told_as_that(notebook: Path) -> None:
    (notebook / "flow.dag.yaml").write_text("inputs: {text: {type: string}}\nnodes: []\n")
    with pytest.raises(JobFileError, match="is a prompt flow"):
        load_component("flow.dag.yaml")
    (notebook / "job.yml").write_text("type: pipeline\njobs: {f: {type: parallel, component: ./flow.dag.yaml}}\n")
    with pytest.raises(JobFileError, match=r"prompt flow.*--set jobs\.f=null"):
        load_job("job.yml").load()


def test_a_component_shows_its_inputs_to_help(notebook: Path) -> None:
    assert str(inspect.signature(scorer()._func)) == "(*, files, model, factor)"


def test_a_command_with_bare_values_is_called_with_others(notebook: Path) -> None:
    hello = command(name="hello", command="echo ${{inputs.word}}", inputs={"word": "a", "n": 3})

    @pipeline()
    def says(word: str) -> None:
        hello(word=word)

    (step,) = says("b").load().job.steps
    assert step.inputs == {"word": LiteralInput("b"), "n": LiteralInput("3")}


def test_services_are_told_to_have_no_effect(notebook: Path) -> None:
    step = command(name="hello", command="true", services={"lab": JobService(type="jupyter_lab")})
    warnings = PipelineJob(jobs={"hello": step}).load().warnings
    assert any("jobs.hello.services: has no effect" in str(warning) for warning in warnings)
