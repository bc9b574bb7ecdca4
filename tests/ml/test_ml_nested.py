"""Pipelines in pipelines: functions called in others, and components of that type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from notebook_pipelines import digest, upper
from windrow.ml import Input, MLClient, Output, command, load_component, load_job
from windrow.ml.dsl import pipeline
from windrow.ml.entities import CommandComponent
from windrow.spec import JobFileError, PipelineOutput
from windrow.spec import load_job as load_job_file


@pipeline(display_name="Twice")
def twice(lines: Any, size: int = 4, label: Any = None) -> dict[str, Any]:
    one = upper()(lines=lines)
    one.mini_batch_size = size
    if label is not None:
        one.environment_variables = {"LABEL": label}
    two = upper()(lines=one.outputs.out)
    return {"last": two.outputs.out, "first": one.outputs.out}


@pipeline()
def four_times(data: Any) -> dict[str, Any]:
    first = twice(lines=data, size=7)
    second = twice(lines=first.outputs.last, label="second")
    second.jobs["upper_1"].retry_settings.timeout = 9
    second.outputs.last.mode = "upload"
    return {"end": second.outputs.last}


def test_a_pipeline_may_return_all_outputs_of_a_step(notebook: Path) -> None:
    @pipeline()
    def one_by_one(files: Any) -> dict[str, Any]:
        step = upper()(lines=files)
        return {"out": step.outputs.out}

    @pipeline()
    def at_once(files: Any) -> Any:
        step = upper()(lines=files)
        assert list(step.outputs.keys()) == ["out"] == [name for name, _ in step.outputs.items()]
        return step.outputs

    @pipeline()
    def unpacked(files: Any) -> dict[str, Any]:
        step = upper()(lines=files)
        return {**step.outputs}

    data = Input(path="./files")
    assert digest(at_once(files=data).load()) == digest(one_by_one(files=data).load()) == digest(unpacked(data).load())


def test_an_inner_pipeline_is_a_step_of_the_outer_one(notebook: Path) -> None:
    job = four_times(Input(path="./files"))
    job.outputs.end.path = "./end.csv"
    assert list(job.jobs) == ["first", "second"]
    loaded = job.load()
    steps = {step.name: step for step in loaded.job.steps}
    assert {name: step.depends_on for name, step in steps.items()} == {
        "first__upper": (),
        "first__upper_1": ("first__upper",),
        "second__upper": ("first__upper_1",),
        "second__upper_1": ("second__upper",),
    }
    assert [step.mini_batch_size for step in steps.values()] == [7, None, 4, None]
    assert [step.environment_variables for step in steps.values()] == [{}, {}, {"LABEL": "second"}, {}]
    assert [step.run_invocation_timeout_s for step in steps.values()] == [60, 60, 60, 9]
    end = steps["second__upper_1"].outputs["out"]
    assert (end.type, end.mode, end.path) == ("uri_file", "upload", str(notebook / "end.csv"))
    assert loaded.job.outputs == {"end": PipelineOutput("second__upper_1", "out")}


def test_an_inner_pipeline_is_written_and_read_again(notebook: Path, tmp_path_factory: Any) -> None:
    job = four_times(Input(path="./files"))
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "job.yml"
    job.dump(elsewhere)
    assert digest(load_job(elsewhere).load()) == digest(load_job_file(elsewhere)) == digest(job.load())
    assert str(load_job(elsewhere)) == str(job)


def test_a_component_that_is_a_pipeline_is_called_like_any_other(notebook: Path) -> None:
    job = four_times(Input(path="./files"))
    tree = yaml.safe_load(str(job))["jobs"]["first"]["component"]
    (notebook / "twice.yml").write_text(yaml.safe_dump(tree))
    component = load_component(source="twice.yml")

    @pipeline()
    def four_times_by_file(data: Any) -> dict[str, Any]:
        first = component(lines=data, size=7)
        second = component(lines=first.outputs.last)
        second.component.jobs["upper"].environment_variables = {"LABEL": "second"}
        second.jobs["upper_1"].retry_settings.timeout = 9
        second.outputs.last.mode = "upload"
        return {"end": second.outputs.last}

    made = four_times_by_file(Input(path="./files"))
    assert [step._replace(entry_script="") for step in made.load().job.steps] == [
        step._replace(entry_script="") for step in job.load().job.steps
    ]


def test_a_pipeline_is_kept_as_a_component(notebook: Path) -> None:
    @pipeline()
    def inner(lines: Input(type="uri_folder")) -> dict[str, Any]:  # type: ignore[valid-type]
        return {"last": upper()(lines=lines).outputs.out}

    client = MLClient()
    client.components.create_or_update(inner().component, version="2")
    kept = client.components.get("inner", version="2")

    @pipeline()
    def outer(lines: Any) -> dict[str, Any]:
        return {"end": kept(lines=lines).outputs.last}

    @pipeline()
    def same(lines: Any) -> dict[str, Any]:
        return {"end": inner(lines=lines).outputs.last}

    data = Input(type="uri_folder", path="./files")
    assert outer(data).load().job.steps == same(data).load().job.steps


def test_settings_of_an_inner_pipeline_are_told_to_have_no_effect(notebook: Path) -> None:
    @pipeline(default_compute="inner")
    def inner(lines: Any) -> None:
        upper()(lines=lines)

    @pipeline(default_compute="outer")
    def outer(data: Any) -> None:
        inner(lines=data)

    loaded = outer(Input(path="./files")).load()
    assert [(step.name, step.compute) for step in loaded.job.steps] == [("inner__upper", "outer")]
    assert any("jobs.inner.component.settings: has no effect" in str(warning) for warning in loaded.warnings)


def test_a_command_is_named_after_its_variable_and_a_parallel_step_by_itself(notebook: Path) -> None:
    prepare = command(name="prepare", command="true", outputs={"out": Output(type="uri_folder")})

    @pipeline()
    def both() -> None:
        made = prepare()
        scored = upper()(lines=made.outputs.out)
        assert scored

    assert list(both().jobs) == ["made", "upper"]


def test_a_pipeline_function_is_kept_as_a_component(notebook: Path) -> None:
    components = MLClient(state=notebook / "state").components
    kept = components.create_or_update(twice, version="2")
    assert components.get("twice", "2").type == kept.type == "pipeline"

    @pipeline()
    def outer(data: Any) -> None:
        first = twice(lines=data)
        last = kept(lines=first.outputs.last)
        assert last

    assert [step.name for step in outer(Input(path="./files")).load().job.steps] == [
        "first__upper",
        "first__upper_1",
        "last__upper",
        "last__upper_1",
    ]


def test_steps_are_put_in_order_by_inputs_that_nothing_reads(notebook: Path) -> None:
    touch = CommandComponent(name="touch", command="true", outputs={"out": {"type": "uri_folder"}})

    @pipeline()
    def part(after: Input(type="uri_folder", optional=True) = None) -> dict[str, Any]:  # type: ignore[valid-type]
        side = touch()
        assert side
        main = touch()
        return {"out": main.outputs.out}

    @pipeline()
    def sequence() -> None:
        one = part()
        two = part(one.outputs.out)
        three = part(two.outputs.out)
        assert three

    steps = {step.name: set(step.depends_on) for step in sequence().load().job.steps}
    assert steps == {
        f"{name}__{step}": {f"{before}__side", f"{before}__main"} if before else set()
        for name, before in (("one", ""), ("two", "one"), ("three", "two"))
        for step in ("side", "main")
    }


def test_the_name_of_a_pipeline_is_not_that_of_the_job(notebook: Path) -> None:
    """So that its function can be called, and the job submitted, again."""

    @pipeline(name="nightly")
    def named() -> None:
        command(name="one", command="true")

    @pipeline()
    def outer() -> None:
        named()

    loaded = named().load().job
    assert (loaded.name, loaded.display_name) == (None, "nightly")
    assert list(outer().jobs) == ["nightly"]


def test_files_that_name_each_other_load_and_are_told_by_reading(notebook: Path) -> None:
    step = "type: pipeline\njobs:\n  on: {type: pipeline, component: ./%s.yml}\n"
    (notebook / "a.yml").write_text(step % "b")
    (notebook / "b.yml").write_text(step % "a")
    with pytest.raises(JobFileError, match="would put a pipeline into itself"):
        load_job(notebook / "a.yml").load()
